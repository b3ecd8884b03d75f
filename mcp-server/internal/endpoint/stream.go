package endpoint

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"
)

// leaveGrace is how long calls may go on after the client closed its end: a script may send its calls and close.
const leaveGrace = 60 * time.Second

// ServeStream serves one MCP session of newline-delimited JSON until the client leaves or ctx ends. A client that closes only
// its sending end gets the answers to what it sent.
func ServeStream(ctx context.Context, server *mcp.Server, rw io.ReadWriteCloser) error {
	session, err := server.Connect(ctx, patient{&mcp.IOTransport{Reader: rw, Writer: closedOnce{rw}}, func() bool { return hungUp(rw) }}, nil)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = session.Close() })
	defer stop()
	return session.Wait()
}

// closedOnce is the writing side of a stream that its reading side closes.
type closedOnce struct{ io.Writer }

// Close does nothing.
func (closedOnce) Close() error { return nil }

// patient is a transport whose connections do not end before what was asked has been answered.
type patient struct {
	mcp.Transport
	gone func() bool // nobody can read an answer any more
}

// Connect implements mcp.Transport.
func (p patient) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := p.Transport.Connect(ctx)
	return &patientConn{Connection: c, gone: p.gone, answered: make(chan struct{}, 1), closed: make(chan struct{})}, err
}

type patientConn struct {
	mcp.Connection
	gone     func() bool
	open     atomic.Int64  // calls without an answer
	answered chan struct{} // one signal: an answer was written
	closed   chan struct{}
	once     sync.Once
}

// Read reads a message. The end of the stream is told only when every call is answered, the client has gone for good, or
// a while has passed.
func (c *patientConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
		c.open.Add(1)
	}
	if !errors.Is(err, io.EOF) {
		return m, err
	}
	grace := time.NewTimer(leaveGrace)
	defer grace.Stop()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for c.open.Load() > 0 && !c.gone() {
		select {
		case <-c.answered:
		case <-look.C:
		case <-c.closed:
			return m, err
		case <-grace.C:
			return m, err
		case <-ctx.Done():
			return m, err
		}
	}
	return m, err
}

// Write writes a message. When that fails the client has gone for good.
func (c *patientConn) Write(ctx context.Context, m jsonrpc.Message) error {
	err := c.Connection.Write(ctx, m)
	if _, ok := m.(*jsonrpc.Response); ok {
		c.open.Add(-1)
		select {
		case c.answered <- struct{}{}:
		default:
		}
	}
	if err != nil {
		c.end()
	}
	return err
}

// Close closes the connection.
func (c *patientConn) Close() error {
	c.end()
	return c.Connection.Close()
}

func (c *patientConn) end() { c.once.Do(func() { close(c.closed) }) }

// hungUp reports whether the reader of what we write has closed its end.
func hungUp(rw any) bool {
	if s, ok := rw.(Stdio); ok {
		rw = s.Out
	}
	c, ok := rw.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone || err != nil
}

// Stdio is the process's own input and output as one stream.
type Stdio struct {
	In  io.ReadCloser
	Out io.WriteCloser
}

// Read reads from In.
func (s Stdio) Read(p []byte) (int, error) { return s.In.Read(p) }

// Write writes to Out.
func (s Stdio) Write(p []byte) (int, error) { return s.Out.Write(p) }

// Close closes In, so that a read ends, and keeps Out: answers may still be on their way.
func (s Stdio) Close() error { return s.In.Close() }
