// Package sandbox is a sandbox as mcp-server uses it: sandboxd, the proxy that is its only way out, and the catalog
// that both have.
package sandbox

import (
	"context"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/published"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// Sandbox is one sandbox. It is safe for concurrent use.
type Sandbox struct {
	Runs    *runapi.Client
	Control *controlapi.Client
	Catalog *published.Watcher
}

// Source grants leases: a Sandbox, or several.
type Source interface {
	// Acquire takes a lease for a run in a language, as runapi.LeaseRequest has it. runapi.ErrBusy: all slots are taken.
	Acquire(ctx context.Context, language string) (Lease, error)
	// Ahead takes a lease for a future run. An error means that the run takes its own.
	Ahead(ctx context.Context) (Lease, error)
}

// Lease is the right to use a slot of a sandbox once. Release ends it.
type Lease struct {
	runapi.Lease
	Of *Sandbox
	// Released, if not nil, is called when the lease has ended.
	Released func()

	stream uint64 // the connection it was taken on
}

// Acquire implements Source.
func (s *Sandbox) Acquire(ctx context.Context, language string) (Lease, error) {
	l, err := s.Runs.AcquireFor(ctx, language)
	return Lease{Lease: l, Of: s}, err
}

// Ahead implements Source. The lease is valid while Good says so.
func (s *Sandbox) Ahead(ctx context.Context) (Lease, error) {
	stream := s.Runs.Stream()
	l, err := s.Runs.AcquireAhead(ctx)
	return Lease{Lease: l, Of: s, stream: stream}, err
}

// Good reports whether a lease that was taken ahead is still valid: it ends with its connection.
func (l Lease) Good() bool { return l.stream == l.Of.Runs.Stream() }

// Release ends the lease and kills what still runs in it. After an error the lease, or the sandbox, is gone.
func (l Lease) Release(ctx context.Context) error {
	if l.Released != nil {
		defer l.Released()
	}
	return l.Of.Runs.Release(ctx, l.Generation)
}
