// Package history is the store of runs: one SQLite file, written by one goroutine from a bounded queue, so that no run
// ever waits for it. What is in it is described by mcp-server/historyapi.
//
// A nil *Store is one that is off: everything that would be stored is dropped, and readers get ErrOff.
package history

import (
	"context"
	"errors"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
)

// ErrOff is the answer to readers when HISTORY is off.
var ErrOff = errors.New("nothing is kept of runs: HISTORY is off")

// ErrUnknown is the answer for what is not in the store.
var ErrUnknown = errors.New("nothing is recorded of this")

// Store is an open store. It is safe for concurrent use.
type Store struct{}

// Runs lists runs, latest first. An empty cursor begins with the latest.
func (s *Store) Runs(context.Context, historyapi.Filter, string) (historyapi.Page, error) {
	return historyapi.Page{}, ErrOff
}

// Run is all that is kept of a run, by its id or a prefix of it; empty means the latest. ErrUnknown: there is none.
func (s *Store) Run(context.Context, string) (historyapi.Detail, error) {
	return historyapi.Detail{}, ErrOff
}

// Exchanges lists exchanges, latest first, with those of MCP servers.
func (s *Store) Exchanges(context.Context, historyapi.ExchangeFilter, string) (historyapi.ExchangePage, error) {
	return historyapi.ExchangePage{}, ErrOff
}

// Ledger sums up what left in a time.
func (s *Store) Ledger(_ context.Context, _, _ time.Time) (historyapi.Ledger, error) {
	return historyapi.Ledger{}, ErrOff
}

// Hours is the traffic by API in steps of time, a multiple of a quarter of an hour, oldest first.
func (s *Store) Hours(_ context.Context, _, _ time.Time, _ time.Duration) ([]historyapi.Hour, error) {
	return nil, ErrOff
}

// SkillVersions are the versions of a skill, latest first; of all skills if the name is empty.
func (s *Store) SkillVersions(context.Context, string) ([]historyapi.SkillVersion, error) {
	return nil, ErrOff
}

// SkillSource is the source of a version of a skill. ErrUnknown: it is not kept.
func (s *Store) SkillSource(_ context.Context, _ string, _ int) (string, error) { return "", ErrOff }

// SkillUses is how often skills were imported.
func (s *Store) SkillUses(context.Context) ([]historyapi.SkillUse, error) { return nil, ErrOff }

// Alerts lists alerts, latest first.
func (s *Store) Alerts(_ context.Context, _ bool) ([]historyapi.Alert, error) { return nil, ErrOff }

// SeeAlerts marks alerts up to a number as seen.
func (s *Store) SeeAlerts(_ context.Context, _ int64) error { return ErrOff }

// Remove forgets a run: its content, exchanges and itself. Sums keep what it sent.
func (s *Store) Remove(_ context.Context, _ string) error { return ErrOff }

// Status is what is kept, and how much.
func (s *Store) Status(context.Context) (historyapi.Status, error) {
	return historyapi.Status{Mode: "off"}, nil
}

// Follow waits for events after the cursor and returns them, at least one; an empty cursor means from now on. The
// cursor to go on with is that of the last event. A reader who was away for so long that events are gone, or since
// before mcp-server's start, first gets an EventGap. It works when the store is off too.
func (s *Store) Follow(ctx context.Context, _ string) ([]historyapi.Event, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
