package broker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// tidyTime is the interval between checks for a new catalog. Removed servers need a moment to end.
const tidyTime = 5 * time.Second

// tidyAfterChanges calls Config.Tidy after changes of the catalog.
func (b *Broker) tidyAfterChanges() {
	tidied := ""
	for range timing.EachTick(b.ctx, tidyTime) {
		b.mu.Lock()
		version := b.version
		b.mu.Unlock()
		// Not marked as done if packages were still in use: the next tick tries again.
		if version != tidied && !b.cfg.Tidy(b.ctx) {
			tidied = version
		}
	}
}

// RemoveUnused removes the installed packages that no API names, active or not, and logs the freed space. It returns
// true if it must be called again.
func (l *BridgeLauncher) RemoveUnused(ctx context.Context, log *slog.Logger) (again bool) {
	ctx, cancel := context.WithTimeout(ctx, launchTime)
	defer cancel()
	found, err := l.Control.FetchInspection(ctx)
	if err != nil {
		return true
	}
	keep, ok := listWantedPackages(found)
	if !ok {
		return false
	}
	tidied, err := l.Client.Tidy(ctx, sandboxapi.Packages{Keep: keep})
	if err != nil {
		return true
	}
	for _, r := range tidied.Removed {
		log.Info(fmt.Sprintf("removed the package %s, which no API uses any more: %.1f MB freed",
			cleanText(r.Package), float64(r.Bytes)/1e6), logline.Tag("server"))
	}
	return tidied.InUse > 0
}

// listWantedPackages returns the packages that apis/ names. ok is false if the list may be incomplete,
// because an unreadable folder may name any package. It is also false without any folder, which is more often a mistake
// than a wish.
func listWantedPackages(found proxyapi.Inspection) (packages []string, ok bool) {
	for _, p := range found.Problems {
		if p.Severity == "error" {
			return nil, false
		}
	}
	packages = []string{}
	npm, pypi := sandboxapi.SplitPackages(found.Packages)
	for _, kind := range [][]string{npm, pypi} {
		if len(kind) > 0 {
			packages = append(packages, sandboxapi.PackageSet(kind))
		}
	}
	for _, api := range found.APIs {
		if api.Server != nil && api.Server.Package != "" {
			packages = append(packages, api.Server.PackageToInstall())
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages), len(found.APIs) > 0
}
