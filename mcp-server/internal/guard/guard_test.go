package guard_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/guard"
)

// send sends a request. Its headers are "Name: value", more by |.
func send(t *testing.T, h http.Handler, method, path, host, headers string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	r.Host = host
	for line := range strings.SplitSeq(headers, "|") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			r.Header.Add(name, value)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// say returns a handler that answers with a text.
func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

// locals are requests without a public host. defence is the only defence that refuses one, or "" if it passes.
var locals = []struct{ host, header, defence string }{
	{"localhost", "", ""},
	{"localhost:8080", "", ""},
	{"LOCALHOST:8080", "", ""},
	{"127.0.0.1:8080", "", ""},
	{"[::1]:8080", "", ""},
	{"[::1]", "", ""},
	{"forge.example.com", "", ""},
	{"forge.example.com:443", "", ""},
	{"host.docker.internal:8080", "", ""},
	{"127.0.0.1:8080", "Origin: http://127.0.0.1:8080", ""},
	{"localhost:8080", "Origin: http://LOCALHOST:8080", ""},
	{"127.0.0.1:8080", "Sec-Fetch-Site: none", ""},
	{"127.0.0.1:8080", "Sec-Fetch-Site: same-origin|Origin: http://127.0.0.1:8080", ""},

	{"", "", "mcp-host"},
	{"evil.com", "", "mcp-host"},
	{"evil.com:8080", "", "mcp-host"},
	{"localhost.", "", "mcp-host"},
	{"localhost.evil.com", "", "mcp-host"},
	{"127.0.0.1.evil.com:8080", "", "mcp-host"},
	{"127.0.0.2:8080", "", "mcp-host"},
	{"127.1:8080", "", "mcp-host"},
	{"0.0.0.0:8080", "", "mcp-host"},
	{"[::ffff:127.0.0.1]:8080", "", "mcp-host"},
	{"10.77.0.2:8080", "", "mcp-host"},
	{"host.docker.internal", "", "mcp-host"},
	{"host.docker.internal:9090", "", "mcp-host"},
	{"localhost\x00", "", "mcp-host"},
	{"localhost:8080:8080", "", "mcp-host"},
	{"user@localhost", "", "mcp-host"},
	{"127.0.0.1:8080", "Origin: http://evil.com", "mcp-origin"},
	{"127.0.0.1:8080", "Origin: null", "mcp-origin"},
	{"127.0.0.1:8080", "Origin: ", "mcp-origin"},
	{"127.0.0.1:8080", "Origin: http://127.0.0.1:3000", "mcp-origin"},
	{"127.0.0.1:8080", "Origin: http://localhost:8080", "mcp-origin"},
	{"127.0.0.1:8080", "Origin: file://127.0.0.1:8080", "mcp-origin"},
	{"127.0.0.1:8080", "Origin: http://127.0.0.1:8080|Origin: http://evil.com", "mcp-origin"},
	{"127.0.0.1:8080", "Origin: http://evil.com@127.0.0.1:8080.evil.com", "mcp-origin"},
	{"127.0.0.1:8080", "Sec-Fetch-Site: cross-site", "mcp-origin"},
	{"127.0.0.1:8080", "Sec-Fetch-Site: same-site", "mcp-origin"},
	{"127.0.0.1:8080", "Sec-Fetch-Site: anything", "mcp-origin"},
}

// newLocalGuard returns the handler for locals.
func newLocalGuard() http.Handler {
	g := guard.New(guard.Config{AllowedHosts: []string{"Forge.example.com", "host.docker.internal:8080"}})
	return g.SplitRequests(say("local"), nil)
}

// Promise: mcp-endpoint, console-sessions
func TestLocal(t *testing.T) {
	h := newLocalGuard()
	for _, c := range locals {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodOptions} {
			want := http.StatusForbidden
			if c.defence == "" {
				want = http.StatusOK
			}
			if w := send(t, h, method, "/mcp", c.host, c.header); w.Code != want {
				t.Errorf("%s Host %q %q: %d, want %d", method, c.host, c.header, w.Code, want)
			}
		}
	}
}

// TestLoginPage: another web page may only open the login page, in a whole tab.
// Promise: mcp-endpoint
func TestLoginPage(t *testing.T) {
	h := guard.New(guard.Config{PublicHost: "forge.example.com", Required: true, LoginPage: "/oauth/authorize"}).SplitRequests(http.NotFoundHandler(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, c := range []struct {
		method, path, mode, dest, origin string
		pass                             bool
	}{
		{"GET", "/oauth/authorize?client_id=a", "navigate", "document", "", true},
		{"POST", "/oauth/authorize?client_id=a", "navigate", "document", "", false},
		{"GET", "/oauth/authorize?client_id=a", "navigate", "iframe", "", false},
		{"GET", "/oauth/authorize?client_id=a", "no-cors", "image", "", false},
		{"GET", "/oauth/authorize?client_id=a", "cors", "empty", "https://evil.com", false},
		{"GET", "/oauth/authorize?client_id=a", "navigate", "document", "https://evil.com", false},
		{"GET", "/oauth/authorize/?client_id=a", "navigate", "document", "", false},
		{"POST", "/oauth/decide", "navigate", "document", "https://evil.com", false},
		{"GET", "/oauth/style.css", "no-cors", "style", "", false},
		{"GET", "/mcp", "navigate", "document", "", false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil)
		r.Host = "forge.example.com"
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Mode", c.mode)
		r.Header.Set("Sec-Fetch-Dest", c.dest)
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if (w.Code == http.StatusNoContent) != c.pass {
			t.Errorf("%+v: %d", c, w.Code)
		}
	}
}

// TestRevokedStream: a stream ends within two seconds of the revocation of its token.
// Promise: hosted-logins
func TestRevokedStream(t *testing.T) {
	if took, ended := revokeDuringStream(t); !ended || took > 2*time.Second {
		t.Errorf("the stream ended %v, after %v", ended, took)
	}
}

// revokeDuringStream revokes the token of an open stream. It reports whether the stream ends within five seconds, and
// when.
func revokeDuringStream(t *testing.T) (took time.Duration, ended bool) {
	t.Helper()
	var revoked atomic.Bool
	began, over := make(chan bool), make(chan bool)
	stream := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		for end := r.Context().Done(); ; { // as package transport changes headers while it reads a body
			select {
			case <-end:
				close(over)
				return
			case <-time.After(time.Millisecond):
				r.Header.Set("Mcp-Method", "subscriptions/listen")
			}
		}
	})
	g := guard.New(guard.Config{
		Required: true, CanRevoke: true, Tenant: func(string) (string, http.Handler) { return "", nil },
		Login: func(_ context.Context, _, address string) (guard.Login, error) {
			if address != "192.0.2.1" {
				t.Errorf("the address is %q", address)
			}
			if revoked.Load() {
				return guard.Login{}, auth.ErrInvalidToken
			}
			return guard.Login{Subject: "login-1", Expires: time.Now().Add(time.Hour), Tenant: "ann", Handler: stream}, nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/mcp", nil)
	r.Header.Set("Authorization", "Bearer token")
	go g.RequireClient(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
	<-began
	time.Sleep(1500 * time.Millisecond) // several checks of a valid token
	select {
	case <-over:
		t.Fatal("the stream ended with a valid token")
	default:
	}
	revoked.Store(true)
	at := time.Now()
	select {
	case <-over:
		return time.Since(at), true
	case <-time.After(5 * time.Second):
		return 0, false
	}
}

// app is an allowed origin.
const app = "https://app.example.com"

// outside are requests with a public host, and the handlers that answer: at the endpoint, at the socket, and if no token
// is required. defence is the only defence that keeps a request from another handler, or "" if there is no such handler.
var outside = []struct{ host, header, want, onSocket, withOpen, defence string }{
	{"localhost:8080", "", "local", "local", "local", ""},
	{"forge.example.com", "", "public", "", "public", "public-paths"},
	{"FORGE.example.com:443", "", "public", "", "public", "public-paths"},
	{"forge.example.com:8080", "", "", "", "", "mcp-host"},
	{"forge.example.com.", "", "", "", "", "mcp-host"},
	{"xforge.example.com", "", "", "", "", "mcp-host"},
	{"evil.com", "X-Forwarded-Host: forge.example.com", "", "", "", "mcp-host"},
	{"evil.com", "X-Forwarded-Host: localhost", "", "", "", "mcp-host"},
	{"evil.com", "Forwarded: host=localhost", "", "", "", "mcp-host"},
	{"localhost", "X-Forwarded-For: 127.0.0.1", "public", "", "public", "public-paths"},
	{"localhost", "X-Forwarded-For: ", "public", "", "public", "public-paths"},
	{"localhost", "Forwarded: for=127.0.0.1;host=localhost", "public", "", "public", "public-paths"},
	{"localhost", "X-Forwarded-Host: localhost", "public", "", "public", "public-paths"},
	{"localhost", "X-Real-IP: 127.0.0.1", "public", "", "public", "public-paths"},
	{"127.0.0.1", "CF-Connecting-IP: 127.0.0.1", "public", "", "public", "public-paths"},
	{"localhost", "True-Client-IP: 127.0.0.1", "public", "", "public", "public-paths"},
	{"localhost", "Fly-Client-IP: 127.0.0.1", "public", "", "public", "public-paths"},
	{"localhost", "X-Forwarded-Proto: https", "public", "", "public", "public-paths"},
	{"localhost", "X-Forwarded-Port: 443", "public", "", "public", "public-paths"},
	{"localhost", "Via: 1.1 tunnel", "public", "", "public", "public-paths"},
	{"forge.example.com", "Origin: https://forge.example.com", "public", "", "public", "public-paths"},
	{"forge.example.com", "Origin: https://evil.com", "", "", "", "mcp-origin"},
	{"forge.example.com", "Sec-Fetch-Site: cross-site", "", "", "", "mcp-origin"},
	{"localhost", "Origin: " + app, "public", "", "", ""},
	{"localhost", "Origin: " + app + "|Sec-Fetch-Site: cross-site", "public", "", "", ""},
	{"forge.example.com", "Origin: " + app, "public", "", "", ""},
	{"evil.com", "Origin: " + app, "", "", "", "mcp-host"},
	{"localhost", "Origin: " + app + ".evil.com", "", "", "", "mcp-origin"},
	{"localhost", "Origin: http://app.example.com", "", "", "", "mcp-origin"},
	{"localhost", "Origin: " + app + "|Origin: https://evil.com", "", "", "", "mcp-origin"},
	{"localhost", "Origin: null", "", "", "", "mcp-origin"},
}

// newPublicConfig returns the configuration for outside.
func newPublicConfig() guard.Config {
	return guard.Config{PublicHost: "forge.example.com", AllowedOrigins: []string{app}, Required: true, Page: "/console"}
}

// TestOutside: a request from another machine, by its Host or by a header of a proxy, gets the public paths, and no page of
// the console. Pages of allowed origins get them too, if clients need a token.
// Promise: public-paths
func TestOutside(t *testing.T) {
	cfg := newPublicConfig()
	both := guard.New(cfg).SplitRequests(say("local"), say("public"))
	socket := guard.New(cfg).SplitRequests(say("local"), nil)
	cfg.Required = false
	open := guard.New(cfg).SplitRequests(say("local"), say("public"))
	for _, c := range outside {
		for name, h := range map[string]http.Handler{c.want + "/": both, c.onSocket + "/socket": socket, c.withOpen + "/open": open} {
			w := send(t, h, http.MethodPost, "/console", c.host, c.header)
			want, _, _ := strings.Cut(name, "/")
			if got := w.Body.String(); want == "" && w.Code != http.StatusForbidden || want != "" && got != want {
				t.Errorf("Host %q %q, %q: %d %s", c.host, c.header, name, w.Code, got)
			}
			if allow := w.Header().Get("Access-Control-Allow-Origin"); (allow != "") != (want == "public" && strings.Contains(c.header, "Origin: "+app)) {
				t.Errorf("Host %q %q: Access-Control-Allow-Origin %q", c.host, c.header, allow)
			}
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodOptions, "/mcp", nil)
	r.Host = "forge.example.com"
	r.Header.Set("Origin", app)
	r.Header.Set("Access-Control-Request-Method", "POST")
	w := httptest.NewRecorder()
	both.ServeHTTP(w, r)
	if h := w.Header(); w.Code != http.StatusNoContent || h.Get("Access-Control-Allow-Origin") != app || !strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") || h.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("a preflight: %d %v", w.Code, h)
	}
}

// Promise: mcp-endpoint
func TestBearer(t *testing.T) {
	g := guard.New(guard.Config{Token: secret.New("s3cret-token")})
	h := g.RequireBearer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info := auth.TokenInfoFromContext(r.Context()); info == nil || info.UserID == "" {
			t.Error("the session is not bound to the token")
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	for header, want := range map[string]int{
		"Bearer s3cret-token":   http.StatusNoContent,
		"bearer s3cret-token":   http.StatusNoContent,
		"":                      http.StatusUnauthorized,
		"Bearer":                http.StatusUnauthorized,
		"Bearer ":               http.StatusUnauthorized,
		"Bearer s3cret-tokem":   http.StatusUnauthorized,
		"Bearer s3cret-token2":  http.StatusUnauthorized,
		"Bearer s3cret":         http.StatusUnauthorized,
		"Basic s3cret-token":    http.StatusUnauthorized,
		"s3cret-token":          http.StatusUnauthorized,
		"Bearer a s3cret-token": http.StatusUnauthorized,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
		r.Header.Set("Authorization", header)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: %d, want %d", header, w.Code, want)
		}
		if asked := w.Header().Get("WWW-Authenticate") != ""; asked != (want == http.StatusUnauthorized) {
			t.Errorf("%q: WWW-Authenticate %v", header, asked)
		}
		if strings.Contains(w.Body.String(), "s3cret") {
			t.Errorf("%q: the answer shows the token: %s", header, w.Body)
		}
	}
}

func listen(t *testing.T, addr string, uids ...int) (string, *bytes.Buffer) {
	t.Helper()
	inner, err := net.Listen("tcp", addr)
	if err != nil {
		testkit.SkipBecause(t, err.Error())
	}
	log := new(bytes.Buffer)
	l := &guard.Listener{Listener: inner, UIDs: uids, Log: slog.New(logline.New(log, "text", nil).Handler())}
	server := &http.Server{ReadHeaderTimeout: testkit.Patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "in") })}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return l.Addr().String(), log
}

func get(t *testing.T, addr string) string {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testkit.Patience}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return "refused"
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

func TestListener(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		ours, _ := listen(t, addr, os.Getuid())
		if got := get(t, strings.Replace(ours, "[::]", "127.0.0.1", 1)); got != "in" {
			t.Errorf("%s, our own connection: %s", addr, got)
		}
		others, _ := listen(t, addr, os.Getuid()+1)
		if got := get(t, strings.Replace(others, "[::]", "127.0.0.1", 1)); got != "refused" {
			t.Errorf("%s, a connection of another: %s", addr, got)
		}
	}
}

// TestOtherUser connects as another user, for real.
// Promise: mcp-endpoint
func TestOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		testkit.SkipBecause(t, "becoming another user needs root")
	}
	addr, _ := listen(t, "127.0.0.1:0", 0)
	host, port, _ := net.SplitHostPort(addr)
	script := `exec 3<>/dev/tcp/` + host + `/` + port + `; printf 'GET / HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3; cat <&3`
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, _ := cmd.Output() // refused: an error, or no output
	if strings.Contains(string(out), "in") {
		t.Errorf("another user got %q", out)
	}
	if got := get(t, addr); got != "in" {
		t.Errorf("root got %q", got)
	}
}

// queue is a listener of connections that were made already.
type queue chan net.Conn

func (q queue) Accept() (net.Conn, error) {
	c, ok := <-q
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (q queue) Close() error   { return nil }
func (q queue) Addr() net.Addr { return &net.UnixAddr{Name: "queue"} }

// TestUnknownUser: a connection of nobody that can be found is one of another user, though the number 0, -1 or that of
// this process would be let in.
// Promise: mcp-endpoint
func TestUnknownUser(t *testing.T) {
	far, near := net.Pipe()
	defer far.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	client, err := net.Dial("tcp", gone.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	left, err := gone.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = client.Close() // its socket has no owner any more
	conns := make(queue, 2)
	conns <- near
	conns <- left
	close(conns)
	l := &guard.Listener{Listener: conns, UIDs: []int{-1, 0, os.Getuid()}, Log: slog.New(slog.DiscardHandler)}
	if c, err := l.Accept(); err == nil {
		t.Errorf("accepted %v", c.RemoteAddr())
	}
	for _, c := range []net.Conn{near, left} {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // a pipe that is open waits for its reader
		if _, err := c.Write([]byte("x")); err == nil {
			t.Errorf("%v is still open", c.RemoteAddr())
		}
	}
}

// TestTenants: with tenants a token is required, also where the operator has none; that of a tenant leads to its own MCP
// endpoint, and nowhere else.
// Promise: tenant-sessions
func TestTenants(t *testing.T) {
	const alice = "alice-token-0123456789"
	of := func(token string) (string, http.Handler) {
		if token == alice {
			return "alice", say("alice")
		}
		return "", nil
	}
	for _, operator := range []string{"", "operator-token"} {
		g := guard.New(guard.Config{Token: secret.New(operator), Required: true, Tenant: of})
		for header, want := range map[string][2]string{
			"Bearer " + alice: {"alice", ""}, "bearer " + alice: {"alice", ""}, "Basic " + alice: {}, alice: {}, "": {}, "Bearer": {}, "Bearer ": {},
			"Bearer " + alice + "x": {}, "Bearer operator-token": {operator, operator},
		} {
			for i, h := range []http.Handler{g.RequireClient(say(operator)), g.RequireBearer(say(operator))} {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
				r.Header.Set("Authorization", header)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				got := w.Body.String()
				if w.Code != http.StatusOK {
					got = ""
				}
				if w.Code == http.StatusUnauthorized && !strings.Contains(w.Body.String(), "MCP_TOKENS_FILE") {
					t.Errorf("%q is told %q", header, w.Body)
				}
				if got != want[i] || (want[i] == "") != (w.Code == http.StatusUnauthorized) {
					t.Errorf("operator %q, %q: %d %q, want %q", operator, header, w.Code, got, want[i])
				}
			}
		}
		if g.IsToken("") || g.IsToken(alice) {
			t.Error("what is no token of the operator's is taken for it")
		}
	}
}
