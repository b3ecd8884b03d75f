package docker

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/stdiorelay"
)

// RelayCommand is the command of codeforge that runs in the container (package stdiorelay).
const RelayCommand = "relay"

// helloTime limits the start of docker exec.
const helloTime = 30 * time.Second

// DialOperator connects to the operator's socket in mcp-server's container.
func DialOperator(ctx context.Context, name string) (net.Conn, error) {
	return dialIn(ctx, name, "codeforge")
}

// DialProxy connects to the socket for credentials in the proxy's container.
func DialProxy(ctx context.Context, name string) (net.Conn, error) {
	return dialIn(ctx, name, "egress-proxy")
}

// dialIn starts the relay of a program in a container.
func dialIn(ctx context.Context, name, program string) (net.Conn, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	// The connection outlives ctx, which only bounds the dialling.
	cmd := exec.Command("docker", "exec", "-i", name, program, RelayCommand) //nolint:noctx // see above
	return dialRelay(ctx, cmd)
}

// dialRelay starts a relay and waits for its hello.
func dialRelay(ctx context.Context, cmd *exec.Cmd) (net.Conn, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c := &processConn{in: in, out: bufio.NewReader(out), cmd: cmd}
	cmd.Stderr = &c.said
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("docker exec: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if line, err := c.out.ReadString('\n'); err != nil || line != stdiorelay.Hello {
		_ = c.Close()
		return nil, fmt.Errorf("docker exec: %s", c.said.firstLine())
	}
	return c, nil
}

type processConn struct {
	in   io.WriteCloser
	out  *bufio.Reader
	cmd  *exec.Cmd
	said stderrStart
	end  sync.Once
}

func (c *processConn) Read(p []byte) (int, error) { return c.out.Read(p) }

func (c *processConn) Write(p []byte) (int, error) { return c.in.Write(p) }

// Close ends the process. The relay in the container ends when its standard input ends.
func (c *processConn) Close() error {
	err := errClosed
	c.end.Do(func() {
		err = c.in.Close()
		// docker exec has a second to end by itself.
		kill := time.AfterFunc(time.Second, func() { _ = c.cmd.Process.Kill() })
		_ = c.cmd.Wait() // the exit status does not matter
		kill.Stop()
	})
	return err
}

func (c *processConn) LocalAddr() net.Addr { return processAddr{} }

func (c *processConn) RemoteAddr() net.Addr { return processAddr{} }

// SetDeadline implements net.Conn. It does nothing: callers close the connection instead.
func (c *processConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn, see SetDeadline.
func (c *processConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn, see SetDeadline.
func (c *processConn) SetWriteDeadline(time.Time) error { return nil }

type processAddr struct{}

func (processAddr) Network() string { return "docker" }
func (processAddr) String() string  { return "docker exec" }

// stderrStart keeps the start of the process's standard error.
type stderrStart struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const maxText = 4 << 10

func (t *stderrStart) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p[:min(len(p), maxText-min(t.buf.Len(), maxText))])
	return len(p), nil
}

// firstLine returns the first non-empty line.
func (t *stderrStart) firstLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	line, _, _ := strings.Cut(strings.TrimSpace(t.buf.String()), "\n")
	return cmp.Or(line, "the relay in the container ended without a message")
}
