package broker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// tidyTime is how often it is looked whether the catalog has changed. Servers that are gone need a moment to end.
const tidyTime = 5 * time.Second

// tidy calls Config.Tidy after changes of the catalog.
func (b *Broker) tidy() {
	tick := time.NewTicker(tidyTime)
	defer tick.Stop()
	tidied := ""
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-tick.C:
		}
		b.mu.Lock()
		version := b.version
		b.mu.Unlock()
		if version != tidied && !b.cfg.Tidy(b.ctx) {
			tidied = version
		}
	}
}

// Tidy removes the installed packages that no API names, active or not, and says what it freed. It is true when it has
// to be called again.
func (l *Sandbox) Tidy(ctx context.Context, log *slog.Logger) (again bool) {
	ctx, cancel := context.WithTimeout(ctx, launchTime)
	defer cancel()
	found, err := l.Control.Inspection(ctx)
	if err != nil {
		return true
	}
	keep, ok := wanted(found)
	if !ok {
		return false
	}
	tidied, err := l.Client.Tidy(ctx, runapi.Packages{Keep: keep})
	if err != nil {
		return true
	}
	for _, r := range tidied.Removed {
		log.Info(fmt.Sprintf("removed the package %s, which no API uses any more: %.1f MB freed",
			clean(r.Package), float64(r.Bytes)/1e6), logline.Tag("server"))
	}
	return tidied.InUse > 0
}

// wanted are the packages that the folders of apis/ name. It is false where that cannot be told: a folder that cannot
// be read may name any, and that there is no folder at all is more often a mistake than a wish.
func wanted(found controlapi.Inspection) (packages []string, ok bool) {
	for _, p := range found.Problems {
		if p.Severity == "error" {
			return nil, false
		}
	}
	packages = []string{}
	for _, api := range found.APIs {
		if api.Server != nil && api.Server.Package != "" {
			packages = append(packages, installed(api.Server.Package))
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages), len(found.APIs) > 0
}
