package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/catalog/logline"
)

// Join is a unix socket on which each connection is one MCP session of newline-delimited JSON, as on stdio. Who may open
// the socket is who may join: it is the owner's alone (0600).
type Join struct {
	server *mcp.Server
	log    *slog.Logger
	path   string
	l      net.Listener
	cancel context.CancelFunc
	ctx    context.Context
	open   sync.WaitGroup
}

// maxJoined bounds the connections of the socket.
const maxJoined = 256

// OpenJoin listens at path, in place of a socket that a dead process left there.
func OpenJoin(ctx context.Context, path string, server *mcp.Server, log *slog.Logger) (*Join, error) {
	if c, err := new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("listening on %s: another process does already", path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket == 0 {
		return nil, fmt.Errorf("listening on %s: there is something that is no socket", path)
	}
	l, err := listenPrivate(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	open, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return &Join{server: server, log: log, path: path, l: l, ctx: open, cancel: cancel}, nil
}

// Serve serves connections until Close.
func (j *Join) Serve() error {
	seats := make(chan struct{}, maxJoined)
	for {
		c, err := j.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting on the join socket: %w", err)
		}
		select {
		case seats <- struct{}{}:
		default:
			_ = c.Close()
			continue
		}
		j.open.Go(func() {
			defer func() { <-seats }()
			j.session(c)
		})
	}
}

// session serves one connection.
func (j *Join) session(c net.Conn) {
	defer c.Close()
	err := ServeStream(j.ctx, j.server, c)
	j.log.Info("a joined client left", logline.Tag("mcp"), slog.Bool("clean", err == nil))
}

// Close stops listening and ends every session.
func (j *Join) Close() {
	_ = os.Remove(j.path) // gone already: somebody else removed it
	_ = j.l.Close()
	j.cancel()
	j.open.Wait()
}

// listenPrivate listens on a unix socket that is the owner's alone from its first moment: it is made in a directory that
// only the owner enters, and moved to its place, over a socket that a dead process left there.
func listenPrivate(ctx context.Context, path string) (net.Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".j")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	draft := filepath.Join(dir, "s")
	l, err := new(net.ListenConfig).Listen(ctx, "unix", draft)
	if err != nil {
		return nil, err
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // it would remove the draft
	}
	if err := errors.Join(os.Chmod(draft, 0o600), os.Rename(draft, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
