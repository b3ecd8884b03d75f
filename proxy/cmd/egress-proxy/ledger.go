package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/version"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
)

// lockTime is how long a starting proxy waits for an ending one to release the ledger.
const lockTime = 10 * time.Second

// openLedger opens the ledger, unless it is switched off.
func (d *daemon) openLedger(o options, set settings.Settings) (err error) {
	if set.Audit == "off" {
		return nil
	}
	d.ledger, err = ledger.Open(ledger.Config{
		Dir: o.audit, Patience: lockTime, Keep: set.AuditKeep, Most: set.AuditSize, Anchor: set.AuditAnchor,
		Version: version.Version, Log: d.log,
	})
	if err != nil {
		return fmt.Errorf("%w; AUDIT=off starts without it", err)
	}
	return nil
}

// writeCheckpoint brings the ledger to the disk, and returns its short form, or nothing.
func (d *daemon) writeCheckpoint(run string) string {
	if d.ledger == nil {
		return ""
	}
	head, err := d.ledger.WriteCheckpoint(run)
	if err != nil {
		return "" // a lost record is counted and logged
	}
	return head.String()
}

// newIntentWriter records requests before they leave, where that is required.
func (d *daemon) newIntentWriter(set settings.Settings) func(ledger.Sending) error {
	if set.Audit != "required" {
		return nil
	}
	return func(s ledger.Sending) error { return d.ledger.AppendRecord(ledger.Entry{Sending: &s}) }
}

// logUncounted logs that the use of limits cannot be stored.
func (d *daemon) logUncounted(err error) {
	d.log.LogAttrs(context.Background(), slog.LevelError, "a restart forgets the used amounts of limits",
		logline.Tag("error"), slog.String("error", err.Error()))
}
