package pool

import (
	"fmt"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/packages"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// heldPackages are packages of one kind for code that the store does not remove before release.
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

// codePackages are the packages for code, by the language that imports them.
type codePackages struct{ deno, python heldPackages }

// holdCodePackages holds the packages for code of both languages, as holdPackages does.
func (p *Pool) holdCodePackages(list []string) (c codePackages, err error) {
	npm, pypi := sandboxapi.SplitPackages(list)
	if c.deno, err = p.holdPackages(sandboxapi.PackageSet(npm)); err != nil {
		return c, err
	}
	if c.python, err = p.holdPackages(sandboxapi.PackageSet(pypi)); err != nil {
		c.deno.release()
	}
	return c, err
}

// selectLanguage returns the packages for a language.
func (c codePackages) selectLanguage(python bool) heldPackages {
	if python {
		return c.python
	}
	return c.deno
}

// release allows the store to remove the packages.
func (c codePackages) release() {
	c.deno.release()
	c.python.release()
}

// findInstalledSet returns the set in force of the kind of a package, or "".
func (p *Pool) findInstalledSet(pkg string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.packages.selectLanguage(sandboxapi.IsPyPI(pkg)).Set
}

// permissionHash identifies the hosts and the packages in force. The caller holds p.mu.
func (p *Pool) permissionHash() string {
	return p.set.HashHosts() + p.packages.deno.interpreterKey() + p.packages.python.interpreterKey()
}

// interpreterKey identifies the packages in keys of interpreters. Without packages it is empty.
func (h heldPackages) interpreterKey() string {
	if h.Set == "" {
		return ""
	}
	return sandboxapi.PackageKey(h.Set)
}
