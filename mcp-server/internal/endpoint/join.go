package endpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/catalog/logline"
	"github.com/codeforge-mcp/codeforge/internal/unixsocket"
)

// Join is a unix socket on which each connection is one MCP session of newline-delimited JSON, as on stdio. Who may open
// the socket is who may join: it is the owner's alone (0600).
type Join struct {
	server *mcp.Server
	log    *slog.Logger
	l      net.Listener
	cancel context.CancelFunc
	ctx    context.Context
	open   sync.WaitGroup
}

// maxJoined bounds the connections of the socket.
const maxJoined = 256

// OpenJoin listens at path.
func OpenJoin(ctx context.Context, path string, server *mcp.Server, log *slog.Logger) (*Join, error) {
	l, err := unixsocket.Listen(ctx, path, 0o600)
	if err != nil {
		return nil, err
	}
	open, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return &Join{server: server, log: log, l: l, ctx: open, cancel: cancel}, nil
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
	_ = j.l.Close()
	j.cancel()
	j.open.Wait()
}
