package pool

import (
	"fmt"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/packages"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// heldPackages are packages for code that the store does not remove before release.
type heldPackages struct {
	jail.CodePackages
	store   *packages.Store
	release func()
}

// holdAgain holds the packages for one interpreter, until release is called.
func (h heldPackages) holdAgain() (release func()) {
	if h.Set == "" {
		return func() {}
	}
	return h.store.HoldPackage(h.Set)
}

// holdPackages holds an installed set of packages for code. It returns sandboxapi.ErrNotInstalled for another one.
func (p *Pool) holdPackages(set string) (heldPackages, error) {
	store := p.cfg.Servers.Packages
	switch {
	case set == "":
		return heldPackages{release: func() {}}, nil
	case store == nil:
		return heldPackages{}, fmt.Errorf("%w: there are no slots for installations (SANDBOX_SERVERS=0)",
			sandboxapi.ErrNotInstalled)
	}
	if err := packages.CheckSet(set); err != nil {
		return heldPackages{}, fmt.Errorf("%w: %w", sandboxapi.ErrBadRequest, err)
	}
	// Held before the check: the store must not remove the set in between.
	h := heldPackages{CodePackages: jail.CodePackages{Set: set}, store: store, release: store.HoldPackage(set)}
	var err error
	if h.Registry, err = store.RegistryOf(set); err != nil {
		h.release()
	}
	return h, err
}

func (p *Pool) codePackages() jail.CodePackages {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.packages.CodePackages
}

// permissionHash identifies the hosts and the packages in force. The caller holds p.mu.
func (p *Pool) permissionHash() string {
	if p.packages.Set == "" {
		return p.set.HashHosts()
	}
	return p.set.HashHosts() + sandboxapi.PackageKey(p.packages.Set)
}
