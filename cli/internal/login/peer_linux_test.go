package login_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/login"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

// TestOtherUsers: a redirect with the right state from another user of the machine is refused, and does not end the
// login: such a user may have read the state in the command line of the browser.
// Promise: logins-belong-to-their-user
func TestOtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		testkit.SkipBecause(t, "only root can be another user")
	}
	l, err := login.ListenLoopback(t.Context(), "127.0.0.1", 0)
	testkit.Must(t, err)
	defer l.Close()
	relayed := make(chan credentialapi.Redirect, 2)
	waited := make(chan error, 1)
	go func() {
		waited <- l.WaitForRedirect(t.Context(), started(), func(_ context.Context, r credentialapi.Redirect) error {
			relayed <- r
			return nil
		})
	}()
	ask := func(uid uint32, code string) string {
		script := fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%d; printf 'GET /callback?code=%s&state=%s HTTP/1.1\r\nHost: 127.0.0.1:%[1]d\r\n`+
			`Connection: close\r\n\r\n' >&3; head -n 1 <&3`, l.Port(), code, state)
		cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if got := ask(31338, "planted"); got != "HTTP/1.1 403 Forbidden" || len(relayed) > 0 {
		t.Errorf("another user: %s, %d relayed", got, len(relayed))
	}
	if got := ask(0, "own"); got != "HTTP/1.1 200 OK" {
		t.Errorf("the user: %s", got)
	}
	testkit.Must(t, <-waited)
	if r := <-relayed; r.Code != "own" || len(relayed) > 0 {
		t.Errorf("relayed %+v", r)
	}
}

// TestClosedSocket: a redirect with the right state over a connection that was closed before it was accepted is
// refused: the kernel shows such a socket as root's, whoever had it.
// Promise: logins-belong-to-their-user
func TestClosedSocket(t *testing.T) {
	l, err := login.ListenLoopback(t.Context(), "127.0.0.1", 0)
	testkit.Must(t, err)
	defer l.Close()
	send := func() net.Conn {
		c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", l.Port()))
		testkit.Must(t, err)
		_, err = fmt.Fprintf(c, "GET /callback?code=planted&state=%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n", state, l.Port())
		testkit.Must(t, err)
		return c
	}
	testkit.Must(t, send().Close())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = l.WaitForRedirect(ctx, started(), func(_ context.Context, r credentialapi.Redirect) error {
		t.Errorf("relayed %+v", r)
		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the login ended: %v", err)
	}
}
