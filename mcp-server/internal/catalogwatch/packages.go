package catalogwatch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// packageState is the state of the packages for code. Watcher.mu guards it, except for ask.
type packageState struct {
	// wanted are the catalog's packages while they are not installed. registry is that of npm packages, and index that of
	// packages from PyPI.
	wanted          []string
	registry, index string
	failed          error         // of the last installation of wanted, or nil
	ask             chan struct{} // has an entry if wanted should be installed
}

// retryInstall is the pause after an installation that failed.
const retryInstall = time.Minute

// setPermissions sends sandboxd the permission set of a catalog. If its packages are not installed, it asks for their
// installation, and the packages in force stay. It sets cat.Packages to those in force.
func (w *Watcher) setPermissions(ctx context.Context, cat *proxyapi.Catalog) (sandboxapi.PermissionSet, error) {
	wanted, now := cat.Packages, w.Catalog().Packages
	npm, pypi := sandboxapi.SplitPackages(wanted)
	npmNow, pypiNow := sandboxapi.SplitPackages(now)
	// The packages of one kind are installed or not as a whole, and sandboxd may have lost the earlier ones too.
	for _, try := range [][]string{
		wanted, slices.Concat(npm, pypiNow), slices.Concat(npmNow, pypi), now, npm, pypi, nil,
	} {
		cat.Packages = try
		set, err := w.cfg.Sandbox.SetPermissions(ctx, sandboxapi.Permissions{AllowNet: AllowNet(*cat), Packages: try})
		if errors.Is(err, sandboxapi.ErrNotInstalled) {
			continue
		}
		if err == nil {
			w.notePackages(wanted, try, cat)
		}
		return set, err
	}
	return sandboxapi.PermissionSet{}, sandboxapi.ErrNotInstalled // a set without packages is never refused
}

// notePackages records which packages are wanted and in force, and asks for a missing installation.
func (w *Watcher) notePackages(wanted, inForce []string, cat *proxyapi.Catalog) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &w.packages
	if slices.Equal(wanted, inForce) {
		p.wanted, p.failed = nil, nil
		return
	}
	if !slices.Equal(p.wanted, wanted) {
		p.failed = nil
	}
	p.wanted, p.registry, p.index = wanted, cat.PackageRegistry, cat.PackageIndex
	select {
	case p.ask <- struct{}{}:
	default: // an installation is asked for already
	}
}

// Packages returns the state of the packages for code.
func (w *Watcher) Packages() operatorapi.Packages {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := operatorapi.Packages{Installed: append([]string{}, w.catalog.Packages...), Wanted: w.packages.wanted}
	if w.packages.failed != nil {
		out.Problem = w.packages.failed.Error()
	}
	return out
}

// installWanted installs the wanted packages until ctx ends, and repeats an installation that failed.
func (w *Watcher) installWanted(ctx context.Context) {
	for {
		select {
		case <-w.packages.ask:
		case <-time.After(retryInstall): // most often, the wanted packages are installed
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		pins, registry, index := w.packages.wanted, w.packages.registry, w.packages.index
		w.mu.Unlock()
		if len(pins) == 0 {
			continue
		}
		w.cfg.Log.Info("installing the packages for code", logline.Tag("mcp"),
			slog.String("packages", strings.Join(pins, " ")))
		installed, err := w.installMissing(ctx, pins, registry, index)
		if installed {
			err = errors.Join(err, w.UpdateCatalog(ctx))
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		w.cfg.Log.Error("the packages for code could not be installed", logline.Tag("mcp"),
			slog.String("error", err.Error()))
		w.mu.Lock()
		if slices.Equal(w.packages.wanted, pins) {
			w.packages.failed = err
		}
		w.mu.Unlock()
	}
}

// refuseInstall is Config.Install of a sandbox that installs no packages.
func refuseInstall(context.Context, []string, string) error {
	return errors.New("this sandbox installs no packages, and its image does not contain this list")
}

// installMissing installs the packages of each kind that are not in force. It reports whether it installed some.
func (w *Watcher) installMissing(
	ctx context.Context, pins []string, registry, index string,
) (installed bool, err error) {
	npm, pypi := sandboxapi.SplitPackages(pins)
	npmNow, pypiNow := sandboxapi.SplitPackages(w.Catalog().Packages)
	for _, kind := range []struct {
		pins, now []string
		registry  string
	}{{npm, npmNow, registry}, {pypi, pypiNow, index}} {
		if len(kind.pins) == 0 || slices.Equal(kind.pins, kind.now) {
			continue
		}
		failed := w.cfg.Install(ctx, kind.pins, kind.registry)
		installed, err = installed || failed == nil, errors.Join(err, failed)
	}
	return installed, err
}
