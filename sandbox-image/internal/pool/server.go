package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/packages"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/serverslot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Servers configures the slots of MCP servers.
type Servers struct {
	// Slots is the number of slots. The pool prepares no slot before a server needs it.
	Slots int
	// Problem is the reason why servers cannot start, or empty if they can.
	Problem string
	// Memory limits a server's memory, in bytes.
	Memory   int64
	Packages *packages.Store
	// PyPIProblem is the reason why packages of PyPI cannot be installed. It is empty if they can be installed.
	PyPIProblem string
	// Watch reports whether a server, or the installation in its slot, exceeds another limit. It returns a reason and a
	// sentence, or "".
	Watch func(id slot.ID, installs bool, process jail.Process) (sandboxapi.Reason, string)
	// Installing returns the folder in which a slot installs.
	Installing func(slot.ID) string
}

// acquireServer takes a lease on a slot for an MCP server. The lease ends with its owner. It has no idle limit, because
// users decide how long a server stays idle. The caller holds p.mu.
func (p *Pool) acquireServer(owner context.Context) (sandboxapi.Lease, error) {
	switch {
	case p.cfg.Servers.Slots == 0:
		return sandboxapi.Lease{}, fmt.Errorf("%w: there are no slots for MCP servers (SANDBOX_SERVERS=0)",
			sandboxapi.ErrUnready)
	case p.cfg.Servers.Problem != "":
		return sandboxapi.Lease{}, fmt.Errorf("%w: %s", sandboxapi.ErrUnready, p.cfg.Servers.Problem)
	}
	for _, s := range p.servers {
		// A released slot may still have processes that are ending.
		if !s.isVacant() || s.running != nil {
			continue
		}
		g, err := p.cfg.Generations.Next()
		if err != nil {
			return sandboxapi.Lease{}, err
		}
		p.grantLease(s, g, owner)
		return sandboxapi.Lease{Slot: s.id, Generation: g}, nil
	}
	return sandboxapi.Lease{}, sandboxapi.ErrBusy
}

// Server implements sandboxapi.Sandbox.
func (p *Pool) Server(
	ctx context.Context, g uint64, h sandboxapi.ServerHead, d sandboxapi.Duplex,
) (sandboxapi.Exit, error) {
	// Hold comes before the check that the package is installed: Tidy must not remove the package in between.
	if h.Package != "" && p.cfg.Servers.Packages != nil {
		defer p.cfg.Servers.Packages.HoldPackage(h.Package)()
	}
	spec, err := p.newServerSpec(h)
	if err != nil {
		return sandboxapi.Exit{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, done, err := p.claimServer(g, cancel)
	if err != nil {
		return sandboxapi.Exit{}, err
	}
	spec.Slot = s.id
	exit, broken, err := p.runServer(ctx, s, spec, d)
	p.mu.Lock()
	defer p.mu.Unlock()
	s.server = nil
	p.vacateSlot(s, done, broken)
	return exit, err
}

// Tidy implements sandboxapi.Sandbox.
func (p *Pool) Tidy(w sandboxapi.Packages) (sandboxapi.Tidied, error) {
	if p.cfg.Servers.Packages == nil {
		return sandboxapi.Tidied{}, nil
	}
	return p.cfg.Servers.Packages.RemoveUnused(w.Keep)
}

// newServerSpec checks the request and returns the server to start.
func (p *Pool) newServerSpec(h sandboxapi.ServerHead) (jail.Server, error) {
	spec := jail.Server{Package: h.Package, Registry: h.Registry, Install: h.Install, TZ: p.cfg.TZ}
	var err error
	switch {
	case h.Install && sandboxapi.IsPyPI(h.Package):
		err = errors.Join(packages.CheckName(h.Package), packages.CheckRegistry(h.Registry))
	case h.Install:
		err = errors.Join(packages.CheckSet(h.Package), packages.CheckRegistry(h.Registry))
	case h.Registry != "":
		err = errors.New("registry: only an installation has one")
	case h.Package != "":
		err = packages.CheckName(h.Package)
	}
	if err != nil {
		return spec, fmt.Errorf("%w: %w", sandboxapi.ErrBadRequest, err)
	}
	spec.Folders = jail.ChooseFolders(p.cfg.Folders, h.Folders)
	for _, name := range h.Folders {
		if !slices.ContainsFunc(spec.Folders, func(f jail.Folder) bool { return f.Name == name }) {
			return spec, fmt.Errorf("%w: there is no folder %q: codeforge folder list shows all. Restart CodeForge after "+
				"a change", sandboxapi.ErrBadRequest, name)
		}
	}
	if sandboxapi.IsPyPI(h.Package) && h.Install && p.cfg.Servers.PyPIProblem != "" {
		return spec, fmt.Errorf("%w: %s", sandboxapi.ErrUnready, p.cfg.Servers.PyPIProblem)
	}
	// The server must use the registry of the installation, and the caller cannot choose another one.
	if h.Package != "" && !h.Install {
		spec.Registry, err = p.cfg.Servers.Packages.RegistryOf(h.Package)
	}
	return spec, err
}

// claimServer uses the lease's only program.
func (p *Pool) claimServer(g uint64, cancel context.CancelFunc) (*slotState, chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.leases[g]
	switch {
	case s == nil:
		return nil, nil, fmt.Errorf("%w: generation %d", sandboxapi.ErrLeaseGone, g)
	case !s.id.IsServer():
		return nil, nil, fmt.Errorf("%w: the lease is for a run", sandboxapi.ErrBadRequest)
	case s.used:
		return nil, nil, fmt.Errorf("%w: it has had its program", sandboxapi.ErrLeaseGone)
	}
	done := make(chan struct{})
	s.used, s.cancel, s.running = true, cancel, done
	return s, done, nil
}

// runServer runs the program, and seals a package that it installed. broken is not nil if the slot must not be used
// again.
func (p *Pool) runServer(
	ctx context.Context, s *slotState, spec jail.Server, d sandboxapi.Duplex,
) (exit sandboxapi.Exit, broken, err error) {
	sv := p.cfg.Servers
	if spec.Install {
		// Another slot may have installed it since the client asked.
		if _, err := sv.Packages.RegistryOf(spec.Package); err == nil { // already installed
			return sandboxapi.Exit{Reason: sandboxapi.Exited}, nil, d.ReportStart()
		}
		defer func() {
			broken = jail.ClearSlot(broken, func() error { return p.cfg.Jail.ClearInstall(s.id) })
		}()
		if err := p.cfg.Jail.PrepareInstall(s.id); err != nil {
			return exit, nil, err
		}
		spec.Frozen, err = sv.Packages.GiveLock(spec.Package, p.findInstalledSet(spec.Package), sv.Installing(s.id))
		if err != nil {
			return exit, nil, err
		}
	}
	r, err := serverslot.StartServer(serverslot.Config{
		Jail: p.cfg.Jail, Server: spec, Memory: sv.Memory, Input: d, Output: d, Started: d.ReportStart, Ended: d.ReportEnd,
		Watch: func(i jail.Process) (sandboxapi.Reason, string) { return sv.Watch(s.id, spec.Install, i) },
	})
	if err != nil {
		return exit, nil, err
	}
	p.mu.Lock()
	s.server = r
	p.mu.Unlock()
	exit, broken, err = r.Run(ctx)
	// Only a complete installation may be sealed: a package of a killed installation could lack files.
	if spec.Install && err == nil && broken == nil && exit.Code == 0 && exit.Reason == sandboxapi.Exited {
		err := p.cfg.Jail.ShareInstall(s.id)
		if err == nil {
			err = sv.Packages.SealPackage(spec.Package, spec.Registry, sv.Installing(s.id))
		}
		if err != nil {
			exit.Code, exit.Detail = 1, err.Error()
		}
	}
	return exit, broken, err
}
