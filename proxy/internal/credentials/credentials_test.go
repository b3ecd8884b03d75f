package credentials

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/internal/unixsocket"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
)

// fake answers with what it was asked.
type fake struct{ asked []string }

func (f *fake) say(words ...string) { f.asked = append(f.asked, strings.Join(words, " ")) }

func (f *fake) ListCredentials() []credentialapi.Credential {
	return []credentialapi.Credential{{Name: "A_TOKEN", State: credentialapi.StateReady}}
}

func (f *fake) BeginLogin(_ context.Context, l credentialapi.Login) (credentialapi.StartedLogin, error) {
	f.say("begin", l.Name, l.Way)
	return credentialapi.StartedLogin{ID: "1", URL: "https://x.test/"}, nil
}

func (f *fake) FinishLogin(_ context.Context, r credentialapi.Redirect) error {
	f.say("finish", r.ID, r.State, r.Code, r.Issuer)
	return &rpc.Error{Code: "wrong_state", Text: "No."}
}

func (f *fake) PollLogin(_ context.Context, id string) (credentialapi.LoginProgress, error) {
	f.say("poll", id)
	return credentialapi.LoginProgress{Done: true}, errors.New("a text that must not be shown")
}
func (f *fake) ForgetLogin(name string) error { f.say("logout", name); return nil }

func (f *fake) SupplyValue(name string, v credentialapi.SuppliedValue) error {
	f.say("supply", name, v.Value)
	return nil
}

// serve serves a fake on a socket.
func serve(t *testing.T, mode os.FileMode) (*fake, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cred")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	testkit.Must(t, os.Chmod(dir, 0o755)) //nolint:gosec // so that another user reaches the socket
	path := filepath.Join(dir, "s.sock")
	l, err := unixsocket.Listen(t.Context(), path, mode)
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	f := &fake{}
	go func() { done <- Serve(ctx, l, NewHandler(f, approval.New(approval.Config{}), "")) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f, path
}

// TestAPI: the client and the server agree, and an error of another kind shows nothing.
// Promise: logins-belong-to-their-user
func TestAPI(t *testing.T) {
	f, path := serve(t, 0o600)
	c := credentialapi.Client{HTTP: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}}
	defer c.HTTP.CloseIdleConnections()
	ctx := t.Context()
	if list, err := c.ListCredentials(ctx); err != nil || len(list) != 1 || list[0].Name != "A_TOKEN" {
		t.Errorf("list %+v, %v", list, err)
	}
	if s, err := c.BeginLogin(ctx, credentialapi.Login{Name: "A_TOKEN", Way: "browser"}); err != nil || s.ID != "1" {
		t.Errorf("begin %+v, %v", s, err)
	}
	var refused *rpc.Error
	if err := c.FinishLogin(ctx, credentialapi.Redirect{ID: "1", State: "s", Code: "c", Issuer: "i"}); !errors.As(err, &refused) || refused.Code != "wrong_state" {
		t.Errorf("finish %v", err)
	}
	if _, err := c.PollLogin(ctx, "1"); err == nil || strings.Contains(err.Error(), "must not be shown") {
		t.Errorf("poll %v", err)
	}
	testkit.Must(t, c.ForgetLogin(ctx, "A_TOKEN"))
	testkit.Must(t, c.SupplyValue(ctx, "A_TOKEN", credentialapi.SuppliedValue{Value: "v"}))
	want := "begin A_TOKEN browser, finish 1 s c i, poll 1, logout A_TOKEN, supply A_TOKEN v"
	if got := strings.Join(f.asked, ", "); got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	if err := c.SupplyValue(ctx, "A_TOKEN", credentialapi.SuppliedValue{Value: strings.Repeat("v", maxBody)}); err == nil {
		t.Error("a body over the bound")
	}
}

// TestPeer: another user that reaches the socket is not answered, whatever its mode is.
// Promise: logins-belong-to-their-user
func TestPeer(t *testing.T) {
	if path := os.Getenv("CREDENTIALS_SOCKET"); path != "" {
		c, err := net.DialTimeout("unix", path, time.Minute)
		testkit.Must(t, err)
		defer c.Close()
		_, _ = c.Write([]byte("GET " + credentialapi.Prefix + " HTTP/1.1\r\nHost: x\r\n\r\n"))
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Error("another user is answered")
		}
		return
	}
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "only root can be another user")
	}
	_, path := serve(t, 0o666)
	binary := filepath.Join(filepath.Dir(path), "test") // the build's own folder is closed to others
	data, err := os.ReadFile(os.Args[0])
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(binary, data, 0o755)) //nolint:gosec // another user runs it
	cmd := exec.Command(binary, "-test.run=^TestPeer$")
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "CREDENTIALS_SOCKET="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
