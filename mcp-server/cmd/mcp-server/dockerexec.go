package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	docker "github.com/moby/moby/client"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/shim"
)

// execConfig configures the connection of mcp-server to sandboxd in Docker mode, as a net.Conn. The connection is one
// long-lived `sandboxd attach` in the sandbox's container, started through docker-shim. An exec takes 40 ms, so one
// exec carries all runs over HTTP/2. If the connection closes, the exec's stdin ends, and sandboxd kills the runs of
// this connection.
type execConfig struct {
	// Socket is the path of docker-shim's socket.
	Socket string
	// Spec is the exec to request. docker-shim allows exactly one.
	Spec shim.Spec
	// Log receives the exec's output on stderr. Nil means slog.Default().
	Log *slog.Logger
}

// newExecDialer returns a function that opens a new stream to sandboxd in a container, through the shim on socket.
func newExecDialer(socket, container string) func(ctx context.Context) (net.Conn, error) {
	return execConfig{Socket: socket, Spec: shim.SandboxSpec(container)}.Dial
}

// Dial opens a new stream. ctx bounds the opening, not the stream.
func (c execConfig) Dial(ctx context.Context) (net.Conn, error) {
	log := cmp.Or(c.Log, slog.Default())
	api, err := docker.New(docker.WithHost("unix://" + c.Socket))
	if err != nil {
		return nil, fmt.Errorf("connecting to the sandbox: %w", err)
	}
	defer api.Close()
	stream, err := c.startExec(ctx, api)
	if err != nil {
		return nil, fmt.Errorf("connecting to the sandbox: %w", err)
	}
	near, far := net.Pipe()
	conn := &execConn{Conn: stream.Conn, near: near, copied: make(chan struct{})}
	stderr, stderrEnd := io.Pipe()
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		logStderr(log, stderr)
	}()
	go func() {
		defer close(conn.copied)
		defer far.Close()
		// After the end of the exec, writes to the stream would have no reader.
		defer stream.Close()
		if _, err := stdcopy.StdCopy(far, stderrEnd, stream.Reader); err != nil && !conn.closed.Load() {
			log.Warn("the stream to the sandbox broke", "error", err)
		}
		_ = stderrEnd.Close()
		<-logged
	}()
	return conn, nil
}

// startExec creates the exec, starts it and attaches to it.
func (c execConfig) startExec(ctx context.Context, api *docker.Client) (docker.HijackedResponse, error) {
	if _, err := api.Ping(ctx, docker.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return docker.HijackedResponse{}, fmt.Errorf("asking the engine for its version: %w", err)
	}
	made, err := api.ExecCreate(ctx, c.Spec.Container, docker.ExecCreateOptions{
		User: c.Spec.User, Cmd: c.Spec.Cmd, AttachStdin: true, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return docker.HijackedResponse{}, fmt.Errorf("creating the exec: %w", err)
	}
	got, err := api.ExecAttach(ctx, made.ID, docker.ExecAttachOptions{})
	if err != nil {
		return docker.HijackedResponse{}, fmt.Errorf("starting the exec: %w", err)
	}
	return got.HijackedResponse, nil
}

// execConn writes to the exec's stdin and reads its stdout without frames.
type execConn struct {
	net.Conn // the hijacked connection: writes, addresses, write deadlines
	near     net.Conn
	copied   chan struct{}
	closed   atomic.Bool
}

// Read reads the exec's stdout.
func (c *execConn) Read(p []byte) (int, error) { return c.near.Read(p) }

// SetReadDeadline bounds Read.
func (c *execConn) SetReadDeadline(t time.Time) error { return c.near.SetReadDeadline(t) }

// SetDeadline bounds Read and Write.
func (c *execConn) SetDeadline(t time.Time) error {
	if err := c.near.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// Close ends the exec's stdin and both directions, and waits for the copying goroutine.
func (c *execConn) Close() error {
	again := c.closed.Swap(true)
	err := c.Conn.Close()
	// The copying goroutine may be blocked in a write to the pipe.
	_ = c.near.Close()
	<-c.copied
	if again {
		return net.ErrClosed
	}
	return err
}

// maxLine bounds a logged line of stderr, in bytes.
const maxLine = 4 << 10

// logStderr logs the lines of the exec's stderr until its end. A longer line is logged in pieces.
func logStderr(log *slog.Logger, stderr io.Reader) {
	for lines := bufio.NewReaderSize(stderr, maxLine); ; {
		line, err := lines.ReadSlice('\n')
		if text := strings.TrimSpace(string(line)); text != "" {
			log.Warn("sandboxd attach: " + text)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
