package login_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/login"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

const state = "the-state-of-this-login"

func started() credentialapi.StartedLogin {
	return credentialapi.StartedLogin{ID: "id-1", URL: "https://auth.example/a?client_id=x&state=" + state}
}

// get sends a request to the port, and returns status and page.
func get(t *testing.T, method, host string, port int, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:"+strconv.Itoa(port)+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		req.Host = host
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get("Content-Security-Policy") == "" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers: %v", resp.Header)
	}
	return resp.StatusCode, string(page)
}

// TestWait: everything but the redirect of this login is refused and changes nothing, and the redirect is relayed once.
// Promise: logins-belong-to-their-user
func TestWait(t *testing.T) {
	l, err := login.ListenLoopback(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	relayed := make(chan credentialapi.Redirect, 10)
	waited := make(chan error, 1)
	go func() {
		waited <- l.WaitForRedirect(t.Context(), started(), func(_ context.Context, r credentialapi.Redirect) error {
			relayed <- r
			return nil
		})
	}()
	own := "127.0.0.1:" + strconv.Itoa(l.Port())
	good := "/callback?code=c-hunter2&state=" + state + "&iss=https%3A%2F%2Fauth.example"
	for name, e := range map[string]struct {
		method, host, path string
		want               int
	}{
		"another path":           {"GET", own, "/?code=c&state=" + state, 404},
		"a path below":           {"GET", own, "/callback/x?code=c&state=" + state, 404},
		"an icon":                {"GET", own, "/favicon.ico", 404},
		"another host":           {"GET", "evil.example:" + strconv.Itoa(l.Port()), good, 403},
		"a host, another port":   {"GET", "127.0.0.1:1", good, 403},
		"a host without a port":  {"GET", "127.0.0.1", good, 403},
		"the name":               {"GET", "localhost:" + strconv.Itoa(l.Port()), good, 403},
		"a form":                 {"POST", own, good, 405},
		"preflight":              {"OPTIONS", own, good, 405},
		"no state":               {"GET", own, "/callback?code=c", 403},
		"another state":          {"GET", own, "/callback?code=c&state=other", 403},
		"a longer state":         {"GET", own, "/callback?code=c&state=" + state + "x", 403},
		"two states":             {"GET", own, "/callback?code=c&state=x&state=" + state, 403},
		"two codes":              {"GET", own, "/callback?code=c&code=d&state=" + state, 403},
		"neither code nor error": {"GET", own, "/callback?state=" + state, 403},
		"code and error":         {"GET", own, "/callback?code=c&error=e&state=" + state, 403},
	} {
		status, page := get(t, e.method, e.host, l.Port(), e.path)
		if status != e.want || strings.Contains(page, state) {
			t.Errorf("%s: %d; want %d: %s", name, status, e.want, page)
		}
	}
	if len(relayed) > 0 {
		t.Fatalf("relayed: %+v", <-relayed)
	}
	status, page := get(t, "GET", own, l.Port(), good)
	if status != 200 || strings.Contains(page, "hunter2") || !strings.Contains(page, "logged in") {
		t.Errorf("%d: %s", status, page)
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
	want := credentialapi.Redirect{ID: "id-1", State: state, Code: "c-hunter2", Issuer: "https://auth.example"}
	if got := <-relayed; got != want || len(relayed) > 0 {
		t.Errorf("relayed %+v, and %d more; want %+v", got, len(relayed), want)
	}
	if c, err := net.Dial("tcp", own); err == nil {
		_ = c.Close()
		t.Error("the port is open after the login")
	}
}

// TestWaitFails: a refusal of the proxy is returned, and the browser is not told why; nobody coming is an error too.
// Somebody who comes at the last moment is logged in.
func TestWaitFails(t *testing.T) {
	l, err := login.ListenLoopback(t.Context(), "localhost", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	refusal := errors.New("refused-hunter2")
	waited := make(chan error, 1)
	go func() {
		waited <- l.WaitForRedirect(t.Context(), started(), func(context.Context, credentialapi.Redirect) error { return refusal })
	}()
	status, page := get(t, "GET", "localhost:"+strconv.Itoa(l.Port()), l.Port(), "/callback?error=access_denied&state="+state)
	if err := <-waited; !errors.Is(err, refusal) || status != 502 || strings.Contains(page, "hunter2") {
		t.Errorf("%v, %d: %s", err, status, page)
	}
	ctx, cancel := context.WithCancel(t.Context())
	last, err := login.ListenLoopback(t.Context(), "localhost", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	go func() {
		waited <- last.WaitForRedirect(ctx, started(), func(context.Context, credentialapi.Redirect) error { cancel(); return nil })
	}()
	status, _ = get(t, "GET", "localhost:"+strconv.Itoa(last.Port()), last.Port(), "/callback?code=c&state="+state)
	if err := <-waited; err != nil || status != 200 {
		t.Errorf("logged in at the last moment: %v, %d", err, status)
	}
	late, err := login.ListenLoopback(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := late.WaitForRedirect(ctx, started(), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestPasted(t *testing.T) {
	for text, want := range map[string]string{
		" http://127.0.0.1:8765/callback?code=c-1&state=" + state + "\n": "c-1",
		"https://example.com/?state=" + state + "&code=c%2F2":            "c/2",
	} {
		if r, err := login.ParsePasted(started(), text); err != nil || r.Code != want || r.ID != "id-1" {
			t.Errorf("%q: %+v, %v", text, r, err)
		}
	}
	for _, text := range []string{
		"", "hunter2-code", "http://127.0.0.1/callback?code=hunter2", "http://127.0.0.1/callback?code=hunter2&state=other",
		"http://127.0.0.1/callback?code=%zzhunter2&state=" + state, "http://[::1/hunter2", started().URL,
	} {
		if r, err := login.ParsePasted(started(), text); err == nil || strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%q: %+v, %v", text, r, err)
		}
	}
}

// TestOtherLoopback: a browser takes localhost for ::1 first, so nobody else may have the port there.
// Promise: logins-belong-to-their-user
func TestOtherLoopback(t *testing.T) {
	other, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		testkit.SkipBecause(t, "no IPv6")
	}
	defer other.Close()
	_, port, _ := net.SplitHostPort(other.Addr().String())
	n, _ := strconv.Atoi(port)
	if l, err := login.ListenLoopback(t.Context(), "localhost", n); err == nil {
		_ = l.Close()
		t.Error("listens at 127.0.0.1 only, while another process has ::1")
	}
	l, err := login.ListenLoopback(t.Context(), "127.0.0.1", n)
	if err != nil {
		t.Fatalf("where no browser goes to ::1: %v", err)
	}
	_ = l.Close()
}
