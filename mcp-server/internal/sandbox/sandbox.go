// Package sandbox is mcp-server's view of a sandbox: sandboxd, the proxy that is its only way out, and the catalog of
// both.
package sandbox

import (
	"context"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/catalogwatch"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Sandbox is one sandbox. It is safe for concurrent use.
type Sandbox struct {
	Runs    *sandboxapi.Client
	Control *proxyapi.Client
	Catalog *catalogwatch.Watcher
}

// Source grants leases: a Sandbox, or several.
type Source interface {
	// Acquire takes a lease. sandboxapi.ErrBusy means that all slots are taken, or, for a lease ahead, that the run must
	// request a lease itself.
	Acquire(ctx context.Context, r sandboxapi.LeaseRequest) (SlotLease, error)
}

// SlotLease is the right to use a slot of a sandbox once. Release ends it.
type SlotLease struct {
	sandboxapi.Lease
	Of *Sandbox
	// Private and Folders are the request's.
	Private bool
	Folders []string
	// Released, if not nil, is called when the lease has ended.
	Released func()

	stream uint64 // the connection it was taken on
}

// Acquire implements Source. A lease ahead is valid as long as IsValid returns true.
func (s *Sandbox) Acquire(ctx context.Context, r sandboxapi.LeaseRequest) (SlotLease, error) {
	stream := s.Runs.StreamNumber()
	l, err := s.Runs.Acquire(ctx, r)
	return SlotLease{Lease: l, Of: s, Private: r.Private, Folders: r.Folders, stream: stream}, err
}

// IsValid reports whether a lease ahead is still valid. It ends with its connection.
func (l SlotLease) IsValid() bool { return l.stream == l.Of.Runs.StreamNumber() }

// Release ends the lease and kills processes that still run in it. After an error the lease, or the sandbox, is gone.
func (l SlotLease) Release(ctx context.Context) error {
	if l.Released != nil {
		// The share counts the slot until the lease has ended, even after an error.
		defer l.Released()
	}
	return l.Of.Runs.Release(ctx, l.Generation)
}
