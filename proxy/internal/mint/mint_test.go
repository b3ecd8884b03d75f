package mint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/folderlock"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/testca"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
)

const loginName = "MAIL_ACCESS_TOKEN"

// loginServer is an authorization server with rotating refresh tokens.
type loginServer struct {
	*httptest.Server
	ca *testca.CA

	mu      sync.Mutex
	valid   string // the refresh token
	grace   string // the one before, which is valid once more, as providers with an overlap have it
	n       int
	forms   []url.Values
	rotates bool
	pending int    // polls until a device is confirmed
	dead    string // the error code of all answers
	codes   map[string]string
	// confidential: the device endpoint wants the client's secret.
	confidential bool
}

func newLoginServer(t testing.TB) *loginServer {
	ca, err := testca.New("login")
	testkit.Must(t, err)
	s := &loginServer{ca: ca, rotates: true, codes: map[string]string{}}
	s.Server = httptest.NewUnstartedServer(s)
	s.TLS = &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return ca.IssueLeaf(h.ServerName, h.ServerName, time.Now().Add(time.Hour))
	}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *loginServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forms = append(s.forms, r.PostForm)
	w.Header().Set("Content-Type", "application/json")
	fail := func(code string) {
		w.WriteHeader(400)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": "inner-canary refresh-canary"})
	}
	if s.dead != "" {
		fail(s.dead)
		return
	}
	if r.URL.Path == "/device" && s.confidential && r.PostForm.Get("client_secret") != "inner-canary-123456" {
		fail("invalid_client")
		return
	}
	if r.URL.Path == "/device" {
		_ = json.NewEncoder(w).Encode(map[string]any{"device_code": "device-canary-1", "user_code": "ABCD-EFGH",
			"verification_uri": "https://login.test/activate", "expires_in": 600, "interval": 1})
		return
	}
	switch r.PostForm.Get("grant_type") {
	case "refresh_token":
		got := r.PostForm.Get("refresh_token")
		if got != s.valid && (got != s.grace || got == "") {
			fail("invalid_grant")
			return
		}
	case "authorization_code":
		sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
		challenge, known := s.codes[r.PostForm.Get("code")]
		if delete(s.codes, r.PostForm.Get("code")); !known || challenge != base64.RawURLEncoding.EncodeToString(sum[:]) {
			fail("invalid_grant")
			return
		}
	case "urn:ietf:params:oauth:grant-type:device_code":
		if s.pending--; s.pending >= 0 {
			fail("authorization_pending")
			return
		}
	}
	s.n++
	answer := map[string]any{"access_token": fmt.Sprintf("minted-canary-9f8e7d6c5b4a3f2e-%04d", s.n), "token_type": "Bearer", "expires_in": 3600}
	if s.rotates || s.valid == "" {
		s.grace, s.valid = s.valid, fmt.Sprintf("refresh-canary-9f8e7d6c5b4a3f2e-%04d", s.n)
		answer["refresh_token"] = s.valid
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// last is the last form but n.
func (s *loginServer) last() url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forms[len(s.forms)-1]
}

func (s *loginServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.forms)
}

// transport is a pool whose connections all lead to the server.
func (s *loginServer) transport(t testing.TB) *upstream.Pool {
	p, err := upstream.New(upstream.Config{
		CAs: s.ca.PEM(),
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
		},
		Connect: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", s.Listener.Addr().String())
		},
	})
	testkit.Must(t, err)
	return p
}

// clock is a clock that a test moves.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Date(2031, 5, 4, 3, 2, 1, 0, time.UTC).UnixNano())
	return c
}
func (c *clock) now() time.Time        { return time.Unix(0, c.at.Load()).UTC() }
func (c *clock) move(by time.Duration) { c.at.Add(int64(by)) }

// world is a Minter with one login.
type world struct {
	*Minter
	server *loginServer
	values *renewedvalues.Values
	clock  *clock
	dir    string
	apis   string
	logs   *testkit.Buffer
	cred   catalog.Credential
}

const loginConfig = `{"description": "d", "domains": ["api.mail.test"], "allow_private": ["192.0.2.0/24"], "credentials": {"` + loginName + `": {"oauth2": {"grant": "refresh_token",
	"token_url": "https://login.test/token", "auth_url": "https://login.test/authorize?tenant=1", "device_url": "https://login.test/device",
	"client_id": "mail", "client_secret": "inner-canary-123456", "scopes": ["read", "send"], "params": {"access_type": "offline"}}}}}`

func newWorld(t testing.TB, server *loginServer, dir string) *world {
	t.Helper()
	return newWorldAt(t, server, dir, loginConfig, newClock())
}

func newWorldAt(t testing.TB, server *loginServer, dir, config string, at *clock) *world {
	t.Helper()
	w := &world{server: server, clock: at, dir: dir, apis: t.TempDir(), logs: &testkit.Buffer{}}
	w.values = renewedvalues.New(w.clock.now)
	w.Minter = New(Config{Transport: server.transport(t), Values: w.values, Dir: dir, APIs: w.apis, UserAgent: "t", Now: w.clock.now,
		Log: slog.New(slog.NewTextHandler(w.logs, nil))})
	t.Cleanup(w.Close)
	w.configure(t, config)
	return w
}

func (w *world) configure(t testing.TB, text string) {
	t.Helper()
	testkit.Must(t, os.MkdirAll(filepath.Join(w.apis, "mail"), 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(w.apis, "mail", "config.json"), []byte(text), 0o600))
	c, problems := catalog.Load(w.apis, catalog.Options{})
	if len(problems) > 0 && c.API("mail") == nil {
		t.Fatal(problems.String())
	}
	testkit.Must(t, w.Configure(c))
	w.cred = c.API("mail").Credentials[0]
}

// login logs in as a browser does.
func (w *world) login(t testing.TB) {
	t.Helper()
	started, err := w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayBrowser, Port: 49152})
	testkit.Must(t, err)
	testkit.Must(t, w.FinishLogin(t.Context(), w.approve(t, started)))
}

// approve is what the authorization server gives the browser.
func (w *world) approve(t testing.TB, s credentialapi.StartedLogin) credentialapi.Redirect {
	t.Helper()
	u, err := url.Parse(s.URL)
	testkit.Must(t, err)
	q := u.Query()
	code := fmt.Sprintf("code-canary-%d", w.server.count())
	w.server.mu.Lock()
	w.server.codes[code] = q.Get("code_challenge")
	w.server.mu.Unlock()
	return credentialapi.Redirect{ID: s.ID, State: q.Get("state"), Code: code}
}

func (w *world) value(t testing.TB) string {
	t.Helper()
	v, err := w.ObtainValue(t.Context(), w.cred)
	testkit.Must(t, err)
	return v
}

// TestLogin: the proxy makes state and verifier, and the address has what RFC 7636 and 8252 want; params do not replace it.
// Promise: logins-belong-to-their-user
func TestLogin(t *testing.T) {
	w := newWorld(t, newLoginServer(t), t.TempDir())
	var e *Error
	if _, err := w.ObtainValue(t.Context(), w.cred); !errors.As(err, &e) || e.Code != policy.CodeLoginNeeded || w.server.count() != 0 {
		t.Fatalf("before a login: %v after %d requests", err, w.server.count())
	}
	started, err := w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayBrowser, Port: 49152})
	testkit.Must(t, err)
	u, err := url.Parse(started.URL)
	testkit.Must(t, err)
	q := u.Query()
	for name, want := range map[string]string{"response_type": "code", "client_id": "mail", "redirect_uri": "http://127.0.0.1:49152/callback",
		"code_challenge_method": "S256", "scope": "read send", "access_type": "offline", "tenant": "1"} {
		if q.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, q.Get(name), want)
		}
	}
	if len(q.Get("state")) < 40 || len(q.Get("code_challenge")) != 43 || len(q["state"]) != 1 {
		t.Errorf("address %s", started.URL)
	}
	testkit.Must(t, w.FinishLogin(t.Context(), w.approve(t, started)))
	if v := w.value(t); v != "minted-canary-9f8e7d6c5b4a3f2e-0001" {
		t.Errorf("value %q", v)
	}
	if f := w.server.last(); f.Get("redirect_uri") != "http://127.0.0.1:49152/callback" || f.Get("client_secret") != "inner-canary-123456" || len(f.Get("code_verifier")) < 43 {
		t.Errorf("the exchange sent %v", f)
	}
	listed, _ := json.Marshal(w.ListCredentials())
	if strings.Contains(string(listed)+w.logs.String(), "canary") || !strings.Contains(string(listed), `"state":"ready"`) {
		t.Errorf("list %s, log %s", listed, w.logs)
	}
	testkit.Must(t, w.ForgetLogin(loginName))
	if _, err := w.ObtainValue(t.Context(), w.cred); !errors.As(err, &e) || e.Code != policy.CodeLoginNeeded {
		t.Errorf("after logout: %v", err)
	}
	if files, _ := filepath.Glob(w.dir + "/*"); len(files) != 0 {
		t.Errorf("left after logout: %q", files)
	}
}

// TestLoginForged: another state, a state twice, after its time, with another issuer, of a replaced login or with another
// code gets nothing, and the login that is under way is not disturbed by one wrong guess.
// Promise: logins-belong-to-their-user
func TestLoginForged(t *testing.T) {
	w := newWorld(t, newLoginServer(t), t.TempDir())
	begin := func() credentialapi.StartedLogin {
		t.Helper()
		s, err := w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayBrowser, Port: 49152})
		testkit.Must(t, err)
		return s
	}
	refused := func(name string, r credentialapi.Redirect, code string) {
		t.Helper()
		var got *rpc.Error
		if err := w.FinishLogin(t.Context(), r); !errors.As(err, &got) || got.Code != code {
			t.Errorf("%s: %v, want %s", name, err, code)
		}
		if s := w.ListCredentials()[0]; s.ValidUntil != nil {
			t.Errorf("%s: logged in", name)
		}
	}
	first := w.approve(t, begin())
	wrong := first
	wrong.State = strings.Repeat("x", len(first.State))
	refused("another state", wrong, "wrong_state")
	wrong.State = ""
	refused("no state", wrong, "wrong_state")
	wrong = first
	wrong.ID = "nobody"
	refused("another login", wrong, "unknown_login")
	second := w.approve(t, begin())
	refused("a replaced login", first, "unknown_login")
	mixed := second
	mixed.State = first.State
	refused("the state of another login", mixed, "wrong_state")
	issuer := second
	issuer.Issuer = "https://evil.test"
	refused("another issuer", issuer, "wrong_issuer")
	refused("twice", second, "unknown_login")
	third := w.approve(t, begin())
	w.clock.move(loginTime + time.Second)
	refused("after its time", third, "unknown_login")
	fourth := w.approve(t, begin())
	guess := fourth
	guess.State = "x"
	for range maxGuesses {
		refused("a guess", guess, "wrong_state")
	}
	refused("after guesses", fourth, "unknown_login")
	fifth := w.approve(t, begin())
	fifth.Code = "other"
	refused("another code", fifth, "invalid_grant")
	sixth := begin()
	foreign := w.approve(t, sixth)
	w.server.mu.Lock()
	w.server.codes[foreign.Code] = "another challenge" // a code that was issued for somebody else's login
	w.server.mu.Unlock()
	refused("a code of another login", foreign, "invalid_grant")
	if _, err := w.BeginLogin(t.Context(), credentialapi.Login{Name: "NOBODYS_TOKEN", Way: credentialapi.WayBrowser, Port: 1}); err == nil {
		t.Error("a login of a credential that does not exist")
	}
}

// TestDevice: the code is shown, polls wait as long as the server wants, and the token is put in force.
// Promise: logins-belong-to-their-user
func TestDevice(t *testing.T) {
	w := newWorld(t, newLoginServer(t), t.TempDir())
	w.server.pending = 2
	s, err := w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayDevice})
	testkit.Must(t, err)
	if s.URL != "https://login.test/activate" || s.Code != "ABCD-EFGH" || s.Interval != 1 {
		t.Errorf("started %+v", s)
	}
	asked := w.server.count()
	if p, err := w.PollLogin(t.Context(), s.ID); err != nil || p.Done || w.server.count() != asked {
		t.Errorf("a poll at once: %+v, %v", p, err)
	}
	done := false
	for i := 0; i < 4 && !done; i++ {
		w.clock.move(2 * time.Second)
		p, err := w.PollLogin(t.Context(), s.ID)
		testkit.Must(t, err)
		done = p.Done
	}
	if !done || w.value(t) == "" {
		t.Error("not logged in")
	}
	if _, err := w.PollLogin(t.Context(), s.ID); err == nil {
		t.Error("a login that is done can be asked for again")
	}
}

// TestRenewal: early, once, with the newest refresh token; the old value is not used after its end, and never one whose
// renewal failed.
// Promise: never-stale-never-open
func TestRenewal(t *testing.T) {
	w := newWorld(t, newLoginServer(t), t.TempDir())
	w.login(t)
	if v := w.value(t); v != "minted-canary-9f8e7d6c5b4a3f2e-0001" {
		t.Fatal(v)
	}
	w.clock.move(50 * time.Minute)
	if v := w.value(t); v != "minted-canary-9f8e7d6c5b4a3f2e-0001" || w.server.count() != 1 {
		t.Errorf("renewed before its time: %q after %d requests", v, w.server.count())
	}
	w.clock.move(8 * time.Minute) // a tenth of its life is left, and a fifth of that for chance
	if v := w.value(t); v != "minted-canary-9f8e7d6c5b4a3f2e-0001" {
		t.Errorf("a request waited for an early renewal: %q", v)
	}
	testkit.WaitFor(t, func() bool { return w.value(t) == "minted-canary-9f8e7d6c5b4a3f2e-0002" })
	if f := w.server.last(); f.Get("refresh_token") != "refresh-canary-9f8e7d6c5b4a3f2e-0001" {
		t.Errorf("renewed with %v", f)
	}
	w.server.mu.Lock()
	w.server.rotates = false
	w.server.mu.Unlock()
	for range 3 { // an answer without a refresh token keeps the old one
		w.clock.move(2 * time.Hour)
		w.value(t)
		if f := w.server.last(); f.Get("refresh_token") != "refresh-canary-9f8e7d6c5b4a3f2e-0002" {
			t.Errorf("renewed with %v", f)
		}
	}
	w.server.mu.Lock()
	w.server.dead = "temporarily_unavailable"
	w.server.mu.Unlock()
	w.clock.move(59 * time.Minute)
	if v := w.value(t); v != "minted-canary-9f8e7d6c5b4a3f2e-0005" {
		t.Errorf("while the server is down, before the end: %q", v)
	}
	w.clock.move(time.Minute)
	var e *Error
	if v, err := w.ObtainValue(t.Context(), w.cred); v != "" || !errors.As(err, &e) || e.Code != policy.CodeTokenUnavailable {
		t.Errorf("after the end: %q, %v", v, err)
	}
	asked := w.server.count()
	for range 20 {
		_, _ = w.ObtainValue(t.Context(), w.cred)
	}
	if w.server.count() > asked+1 {
		t.Errorf("a server that is down was asked %d times at once", w.server.count()-asked)
	}
	w.server.mu.Lock()
	w.server.dead = ""
	w.server.mu.Unlock()
	w.clock.move(2 * time.Minute)
	w.value(t)
	w.clock.move(-3 * time.Hour) // the clock was wrong: what was obtained in the future counts as ended
	before := w.server.count()
	w.value(t)
	if w.server.count() != before+1 {
		t.Error("a token of the future was used")
	}
	if strings.Contains(w.logs.String(), "canary") {
		t.Errorf("log: %s", w.logs)
	}
}

// TestEnded: an ended login is said to be one, and the server is not asked again and again.
// Promise: never-stale-never-open
func TestEnded(t *testing.T) {
	w := newWorld(t, newLoginServer(t), t.TempDir())
	w.login(t)
	w.server.mu.Lock()
	w.server.dead = "invalid_grant"
	w.server.mu.Unlock()
	w.clock.move(2 * time.Hour)
	asked := w.server.count()
	for range 3 {
		var e *Error
		if _, err := w.ObtainValue(t.Context(), w.cred); !errors.As(err, &e) || e.Code != policy.CodeLoginNeeded || e.Detail != "invalid_grant" {
			t.Errorf("%v", err)
		}
		w.clock.move(time.Minute)
	}
	if w.server.count() != asked+1 {
		t.Errorf("asked %d times", w.server.count()-asked)
	}
	if s := w.ListCredentials()[0]; s.State != credentialapi.StateLogin || s.LastError != "invalid_grant" {
		t.Errorf("listed as %+v", s)
	}
}

// TestStored: what another process stored is used and known; what belongs to another configuration is not.
// Promise: never-stale-never-open
func TestStored(t *testing.T) {
	server, dir := newLoginServer(t), t.TempDir()
	w := newWorld(t, server, dir)
	w.login(t)
	w.Close()
	again := newWorld(t, server, dir)
	if v := again.value(t); v != "minted-canary-9f8e7d6c5b4a3f2e-0001" || server.count() != 1 {
		t.Errorf("after a restart: %q after %d requests", v, server.count())
	}
	if again.values.Len() != 2 {
		t.Errorf("%d values are known after a restart", again.values.Len())
	}
	again.configure(t, strings.Replace(loginConfig, "https://login.test/token", "https://elsewhere.test/token", 1))
	if _, err := again.ObtainValue(t.Context(), again.cred); err == nil || server.count() != 1 {
		t.Errorf("a refresh token was sent to another server: %v, %d requests", err, server.count())
	}
	for name, bad := range map[string]func(string){
		"a link":       func(p string) { testkit.Must(t, os.Rename(p, p+"2")); testkit.Must(t, os.Symlink(p+"2", p)) },
		"a folder":     func(p string) { testkit.Must(t, os.Remove(p)); testkit.Must(t, os.Mkdir(p, 0o700)) },
		"a pipe":       func(p string) { testkit.Must(t, os.Remove(p)); testkit.Must(t, syscall.Mkfifo(p, 0o600)) },
		"half of it":   func(p string) { testkit.Must(t, os.Truncate(p, 40)) },
		"another text": func(p string) { testkit.Must(t, os.WriteFile(p, bytes.Repeat([]byte("{"), 1<<20), 0o600)) },
	} {
		dir := t.TempDir()
		w := newWorld(t, newLoginServer(t), dir)
		w.login(t)
		w.Close()
		bad(filepath.Join(dir, loginName+".json"))
		next := newWorld(t, w.server, dir)
		if v, err := next.ObtainValue(t.Context(), next.cred); err == nil {
			t.Errorf("%s: used as %q", name, v)
		}
	}
}

// TestDiskFull: where nothing can be stored nothing is asked for, and a refresh token that was given is not lost.
// Promise: never-stale-never-open
func TestDiskFull(t *testing.T) {
	if os.Geteuid() == 0 {
		// Root writes into folders of mode 0500; a folder that is gone stops everybody.
		t.Log("as root: with a folder that is gone")
	}
	server, dir := newLoginServer(t), filepath.Join(t.TempDir(), "tokens")
	w := newWorld(t, server, dir)
	moved := dir + "-moved"
	testkit.Must(t, os.Rename(dir, moved))
	started, err := w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayBrowser, Port: 49152})
	testkit.Must(t, err)
	if err := w.FinishLogin(t.Context(), w.approve(t, started)); err == nil {
		t.Error("a login is finished that cannot be stored")
	}
	testkit.Must(t, os.Rename(moved, dir))
	w.login(t)
	w.clock.move(2 * time.Hour)
	testkit.Must(t, os.Rename(dir, moved))
	asked := server.count()
	if _, err := w.ObtainValue(t.Context(), w.cred); err == nil || server.count() != asked {
		t.Errorf("asked for what cannot be stored: %v", err)
	}
	testkit.Must(t, os.Rename(moved, dir))
	w.clock.move(time.Minute)
	old := atStep
	atStep = func(at string) { // the folder goes while the server is asked
		if at == "answered" {
			_ = os.Rename(dir, moved)
		}
	}
	defer func() { atStep = old }()
	if v, err := w.ObtainValue(t.Context(), w.cred); err == nil {
		t.Errorf("used unstored: %q", v)
	}
	testkit.Must(t, os.Rename(moved, dir))
	w.clock.move(time.Minute)
	atStep = old
	asked = server.count()
	if v := w.value(t); v != "minted-canary-9f8e7d6c5b4a3f2e-0002" || server.count() != asked {
		t.Errorf("what the server gave was lost: %q after %d requests", v, server.count()-asked)
	}
	data, err := os.ReadFile(filepath.Join(dir, loginName+".json"))
	if err != nil || !strings.Contains(string(data), "refresh-canary-9f8e7d6c5b4a3f2e-0002") {
		t.Errorf("stored: %s, %v", data, err)
	}
}

// steps are where a renewal can be interrupted.
var steps = []string{"ask", "answered", "write", "sync", "rename", "sync folder", "stored", "publish", "use"}

// TestKilled kills a process at each step of a rotation: the next one works, without a login, as long as the server takes
// a refresh token that it has answered once more (its "overlap") for the steps between its answer and the disk.
// Promise: never-stale-never-open
func TestKilled(t *testing.T) {
	for _, at := range steps {
		server, dir := newLoginServer(t), t.TempDir()
		w := newWorld(t, server, dir)
		w.login(t)
		w.Close()
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledChild$") //nolint:gosec // this test
		cmd.Env = append(os.Environ(), "MINT_KILL="+at, "MINT_DIR="+dir, "MINT_SERVER="+server.Listener.Addr().String(), "MINT_CA="+string(server.ca.PEM()),
			"TMPDIR="+t.TempDir()) // it removes nothing
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !exit.Sys().(syscall.WaitStatus).Signaled() {
			t.Fatalf("%s: the process was not killed: %v\n%s", at, err, out)
		}
		server.mu.Lock()
		onDisk := at == "sync folder" || at == "stored" || at == "publish" || at == "use"
		if onDisk || at == "ask" {
			server.grace = "" // nothing was lost: no overlap is needed
		}
		server.mu.Unlock()
		next := newWorld(t, server, dir)
		next.clock.move(4 * time.Hour)
		v, err := next.ObtainValue(t.Context(), next.cred)
		if err != nil {
			t.Errorf("killed at %q: the login is lost: %v", at, err)
			continue
		}
		if files, _ := filepath.Glob(dir + "/*"); len(files) != 1 {
			t.Errorf("killed at %q: left in the folder %q", at, files)
		}
		if data, _ := os.ReadFile(filepath.Join(dir, loginName+".json")); !strings.Contains(string(data), v) {
			t.Errorf("killed at %q: the value in use is not the stored one", at)
		}
	}
}

// TestKilledChild is the process that TestKilled kills.
func TestKilledChild(t *testing.T) {
	at := os.Getenv("MINT_KILL")
	if at == "" {
		return // not a test of its own
	}
	p, err := upstream.New(upstream.Config{
		CAs: []byte(os.Getenv("MINT_CA")),
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
		},
		Connect: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", os.Getenv("MINT_SERVER"))
		},
	})
	testkit.Must(t, err)
	w := &world{clock: newClock(), apis: t.TempDir()}
	w.values = renewedvalues.New(w.clock.now)
	w.Minter = New(Config{Transport: p, Values: w.values, Dir: os.Getenv("MINT_DIR"), UserAgent: "t", Now: w.clock.now, Log: slog.New(slog.DiscardHandler)})
	w.configure(t, loginConfig)
	atStep = func(s string) {
		if s == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	w.clock.move(2 * time.Hour)
	_, _ = w.ObtainValue(t.Context(), w.cred)
}

// TestOrder: a value is stored before it is known, and known before it is used.
// Promise: scrubbed-before-use
func TestOrder(t *testing.T) {
	w := newWorld(t, newLoginServer(t), t.TempDir())
	w.login(t)
	w.clock.move(2 * time.Hour)
	path := filepath.Join(w.dir, loginName+".json")
	old := atStep
	defer func() { atStep = old }()
	var seen []string
	atStep = func(at string) {
		data, _ := os.ReadFile(path)
		stored := strings.Contains(string(data), "minted-canary-9f8e7d6c5b4a3f2e-0002") && strings.Contains(string(data), "refresh-canary-9f8e7d6c5b4a3f2e-0002")
		known := w.values.LayerOver(nil).Contains("minted-canary-9f8e7d6c5b4a3f2e-0002") && w.values.LayerOver(nil).Contains("refresh-canary-9f8e7d6c5b4a3f2e-0002")
		seen = append(seen, fmt.Sprintf("%s %v %v", at, stored, known))
	}
	w.value(t)
	want := "[ask false false answered false false write false false sync false false rename false false sync folder true false stored true false publish true false use true true]"
	if fmt.Sprint(seen) != want {
		t.Errorf("got  %v\nwant %s", seen, want)
	}
}

// TestWeek renews fifty tokens hourly for a simulated week: what is held stays the same, in memory and on disk, and an
// open stream goes on, which shows each new token as its name.
// Promise: scrubbed-before-use
func TestWeek(t *testing.T) {
	if testing.Short() {
		t.Skip("a simulated week")
	}
	const tokens = 50
	hours := testkit.ChooseRepeats(2*24, 7*24)
	name := func(i int) string { return fmt.Sprintf("WEEK_TOKEN_%03d", i) }
	dir, err := os.MkdirTemp("/dev/shm", "codeforge-week-") // a disk would take most of the time
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server := newLoginServer(t)
	server.rotates, server.valid = false, "-"
	w := newWorld(t, server, dir)
	var list []string
	for i := range tokens {
		list = append(list, `"`+name(i)+`": {"oauth2": {"grant": "client_credentials", "token_url": "https://login.test/token", "client_id": "week", "client_secret": "inner-canary-123456"}}`)
	}
	w.configure(t, `{"description": "d", "domains": ["api.mail.test"], "allow_private": ["192.0.2.0/24"], "credentials": {`+strings.Join(list, ",")+`}}`)
	in, out := io.Pipe()
	stream := w.values.LayerOver(nil).NewReader(in, func(id int) (string, error) { name, _ := w.values.ReplacementFor(id); return name, nil })
	got := make(chan string)
	go func() {
		defer close(got)
		for buf := make([]byte, 1<<10); ; {
			n, err := stream.Read(buf)
			if err != nil {
				return
			}
			got <- string(buf[:n])
		}
	}()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var first uint64
	most := 0
	for hour := range hours {
		current := make([]string, tokens)
		var wg sync.WaitGroup
		for i, c := range w.catalog.API("mail").Credentials {
			wg.Go(func() {
				v, err := w.ObtainValue(t.Context(), c)
				if current[i] = v; err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		most = max(most, w.values.Len())
		_, err := fmt.Fprintf(out, "a %s\n", current[hour%tokens])
		testkit.Must(t, err)
		if line, want := <-got, "a "+w.catalog.API("mail").Credentials[hour%tokens].Name+"\n"; line != want {
			t.Fatalf("hour %d: the stream shows %q, want %q", hour, line, want)
		}
		server.mu.Lock()
		if server.forms = nil; server.n != (hour+1)*tokens {
			t.Errorf("hour %d: %d tokens were given", hour, server.n)
		}
		server.mu.Unlock()
		if hour == 24 {
			first = heap()
		}
		w.clock.move(time.Hour + time.Second)
	}
	_ = out.Close()
	if _, open := <-got; open {
		t.Error("the stream goes on")
	}
	files, _ := filepath.Glob(dir + "/*.json")
	if last := heap(); last > first+first/4 || most > 3*tokens+10 || len(files) != tokens {
		t.Errorf("%d bytes after a day, %d after a week; at most %d values, %d files", first, last, most, len(files))
	} else {
		t.Logf("%d bytes after a day, %d after a week; at most %d values", first, last, most)
	}
	w.clock.move(4 * time.Hour)
	w.values.Sweep()
	if w.values.Len() != tokens {
		t.Errorf("%d values are left when all but the current ones are over", w.values.Len())
	}
	w.configure(t, loginConfig)
	w.values.Sweep()
	if w.values.Len() != 0 {
		t.Errorf("%d values are left of credentials that no API has", w.values.Len())
	}
}

// TestSupply: a feeder's value is used as long as it lives and an hour longer, and one that cannot be scrubbed is refused.
func TestSupply(t *testing.T) {
	w := newWorld(t, newLoginServer(t), t.TempDir())
	w.configure(t, `{"description": "d", "domains": ["api.mail.test"], "credentials": {"`+loginName+`": {"command": ["op", "read", "x"], "ttl": "15m"}}}`)
	var e *Error
	if _, err := w.ObtainValue(t.Context(), w.cred); !errors.As(err, &e) || e.Code != policy.CodeSecretUnavailable {
		t.Errorf("before: %v", err)
	}
	for _, bad := range []string{"", "short", "two\nlines of it", strings.Repeat("x", renewedvalues.MaxValue+1)} {
		if w.SupplyValue(loginName, credentialapi.SuppliedValue{Value: bad}) == nil {
			t.Errorf("%.20q was taken", bad)
		}
	}
	testkit.Must(t, w.SupplyValue(loginName, credentialapi.SuppliedValue{Value: "supplied-canary-1"}))
	w.clock.move(74 * time.Minute)
	if v := w.value(t); v != "supplied-canary-1" || !w.values.LayerOver(nil).Contains(v) {
		t.Errorf("value %q", v)
	}
	w.clock.move(2 * time.Minute)
	if v, err := w.ObtainValue(t.Context(), w.cred); err == nil {
		t.Errorf("a stale value was used: %q", v)
	}
	if files, _ := filepath.Glob(w.dir + "/*"); len(files) != 0 {
		t.Errorf("stored: %q", files)
	}
	// A value with an end of its own is due before its end, so that no request waits for the feeder.
	end := w.clock.now().Add(time.Hour)
	testkit.Must(t, w.SupplyValue(loginName, credentialapi.SuppliedValue{Value: "supplied-canary-2", ExpiresAt: &end}))
	if due := w.ListCredentials()[0].DueAt; due == nil || due.After(end.Add(-renewBefore)) || !due.After(w.clock.now()) {
		t.Errorf("due at %v, ends at %v", due, end)
	}
	// A program may return its cached value until the end. That is no failure, and asking again would not help.
	w.clock.move(time.Hour - 20*time.Second)
	testkit.Must(t, w.SupplyValue(loginName, credentialapi.SuppliedValue{Value: "supplied-canary-2", ExpiresAt: &end}))
	if due := w.ListCredentials()[0].DueAt; due == nil || !due.Equal(end) {
		t.Errorf("with a repeated value, due at %v, ends at %v", due, end)
	}
}

// TestRemovedMeanwhile: a configuration that is away for a moment, as while an editor writes it, loses no login: what
// the server gives meanwhile is stored, and used when the configuration is back.
// Promise: never-stale-never-open
func TestRemovedMeanwhile(t *testing.T) {
	for name, back := range map[string]bool{"back before the answer": true, "back after it": false} {
		t.Run(name, func(t *testing.T) {
			server := newLoginServer(t)
			w := newWorld(t, server, t.TempDir())
			w.login(t)
			server.mu.Lock()
			server.grace = "" // no overlap: the refresh token that was sent is of no more use
			server.mu.Unlock()
			w.clock.move(2 * time.Hour)
			reached, answer := make(chan struct{}), make(chan struct{})
			old := atStep
			var once sync.Once
			atStep = func(at string) {
				if at == "answered" {
					once.Do(func() { close(reached); <-answer })
				}
			}
			defer func() { atStep = old }()
			done := make(chan struct{})
			go func() { defer close(done); _, _ = w.ObtainValue(t.Context(), w.cred) }()
			<-reached
			server.mu.Lock()
			server.grace = ""
			server.mu.Unlock()
			none, _ := catalog.Load(t.TempDir(), catalog.Options{})
			testkit.Must(t, w.Configure(none))
			if back {
				w.configure(t, loginConfig)
			}
			close(answer)
			<-done
			if !back {
				testkit.WaitFor(t, func() bool {
					data, _ := os.ReadFile(filepath.Join(w.dir, loginName+".json"))
					return strings.Contains(string(data), "refresh-canary-9f8e7d6c5b4a3f2e-0002")
				})
				w.configure(t, loginConfig)
			}
			if v := w.value(t); v != "minted-canary-9f8e7d6c5b4a3f2e-0002" {
				t.Errorf("used %q", v)
			}
			w.clock.move(2 * time.Hour)
			w.value(t)
			if w.values.LayerOver(nil).Contains("minted-canary-9f8e7d6c5b4a3f2e-0003") != true {
				t.Error("the next one is not known")
			}
		})
	}
}

// TestOneProxy: two processes on one folder would each use up the refresh token of the other.
// Promise: never-stale-never-open
func TestOneProxy(t *testing.T) {
	server, dir := newLoginServer(t), t.TempDir()
	w := newWorld(t, server, dir)
	w.login(t)
	first, err := openStore(dir, 0)
	if err == nil {
		t.Error("a second process may use the folder")
		first.close()
	}
	next := &world{server: server, clock: newClock(), dir: dir, apis: w.apis, logs: &testkit.Buffer{}}
	next.values = renewedvalues.New(next.clock.now)
	next.Minter = New(Config{Transport: server.transport(t), Values: next.values, Dir: dir, APIs: w.apis, Now: next.clock.now, Log: slog.New(slog.DiscardHandler)})
	next.patience = 0
	defer next.Close()
	c, _ := catalog.Load(w.apis, catalog.Options{})
	if err := next.Configure(c); !errors.Is(err, folderlock.ErrTaken) {
		t.Errorf("a second proxy may use the folder: %v", err)
	}
	next.cred = w.cred
	if v, err := next.ObtainValue(t.Context(), next.cred); err == nil {
		t.Errorf("used %q of another proxy's", v)
	}
	w.Close()
	next.clock.move(2 * time.Minute)
	if v := next.value(t); v != "minted-canary-9f8e7d6c5b4a3f2e-0001" || !next.values.LayerOver(nil).Contains("minted-canary-9f8e7d6c5b4a3f2e-0001") {
		t.Errorf("after the first has ended: %q", v)
	}
}

// TestNoRoom: on a disk without room for a token none is asked for.
// Promise: never-stale-never-open
func TestNoRoom(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=16k"); err != nil {
		testkit.SkipBecause(t, "only root can make a small disk")
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }()
	server := newLoginServer(t)
	w := newWorld(t, server, filepath.Join(dir, "tokens"))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "other"), make([]byte, 12<<10), 0o600))
	_ = os.WriteFile(filepath.Join(dir, "more"), make([]byte, 12<<10), 0o600)
	started, err := w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayBrowser, Port: 49152})
	testkit.Must(t, err)
	if err := w.FinishLogin(t.Context(), w.approve(t, started)); err == nil || server.count() != 0 {
		t.Errorf("asked for what cannot be stored: %v, %d requests", err, server.count())
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "tokens", "*")); len(files) > 0 {
		t.Errorf("left: %v", files)
	}
}

// TestLogoutEndsLogins: a login that began before a logout does not undo it.
// Promise: logins-belong-to-their-user
func TestLogoutEndsLogins(t *testing.T) {
	w := newWorld(t, newLoginServer(t), t.TempDir())
	started, err := w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayBrowser, Port: 49152})
	testkit.Must(t, err)
	testkit.Must(t, w.ForgetLogin(loginName))
	if err := w.FinishLogin(t.Context(), w.approve(t, started)); err == nil {
		t.Error("logged in by a login from before the logout")
	}
}

// TestPlainTexts: a server cannot make a text that responses are full of the credential: it would be replaced wherever
// it stands, in the responses of all APIs.
// Promise: scrubbed-before-use
func TestPlainTexts(t *testing.T) {
	for _, text := range []string{"https://", "password", "application/json", "text/html; charset=utf-8", loginName, "x " + loginName,
		"aaaaaaaaaaaaaaaaaaaaaaaa", "AWS4-HMAC-SHA256", "application/vnd.github.v3+json", "the quick brown fox jumps"} {
		w := newWorld(t, newLoginServer(t), t.TempDir())
		w.server.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(rw).Encode(map[string]any{"access_token": text, "refresh_token": "refresh-canary-9f8e7d6c5b4a3f2e-1", "expires_in": 3600})
		})
		started, err := w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayBrowser, Port: 49152})
		testkit.Must(t, err)
		if err := w.FinishLogin(t.Context(), w.approve(t, started)); err == nil || w.values.Len() != 0 {
			t.Errorf("%q is a credential: %v", text, err)
		}
	}
}

// TestTokensLookRandom: what looks random is a token, in each form that servers use, and what honest requests to other APIs
// are full of is none: it would make each of them an alarm.
// Promise: scrubbed-before-use
func TestTokensLookRandom(t *testing.T) {
	for _, text := range []string{
		"f47ac10b-58cc-4372-a567-0e02b2c3d479", "F47AC10B-58CC-4372-A567-0E02B2C3D479", "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", "9f8e7d6c5b4a3f2e1d0c9b8a7f6e5d4c",
		"ghs_16C7e42F292c6912E7710c838347Ae178B4a", "rfx2uswqe8l4g1mkagrvg5tv0ks3ab", "1000.8cb99d4f6a2e1b7c3d5e9f0a1b2c3d4e.b1c2", "mF_9.B5f-4.1JqMkP3xZt7Qw2",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiJ9.s5RxWQ3pZk", "ya29.a0AfB_byC3nPq-7tZkLmW9xYv", "2YotnFZFEjr1zCsicMWpAA", "xoxb-1234567890-1234567890-AbC1dEf2GhI3jKl4",
		"SlAV32hkKG9fZx7Qp3Lm", "minted-canary-9f8e7d6c5b4a3f2e-0001", "tGzv3JOkF0XG5Qx2TlKWIA==", "tGzv3JOkF0XG5Qx2TlKWIA%3D%3D", "A1b2/C3d4+E5f6/G7h8+I9j0K==",
		"abcdef12ghijkl34", "ABCDEF12GHIJKL34",
	} {
		if !isPlausible(text) {
			t.Errorf("%s is no token", text)
		}
	}
	for _, text := range []string{
		"AWS4-HMAC-SHA256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER", "application/vnd.github.v3+json",
		"application/x-amz-json-1.1", "DynamoDB_20120810.GetItem", "AWSSecurityTokenServiceV20110615.AssumeRole", "X-Amz-Content-Sha256", "TrentService.GenerateDataKey",
		"claude-3-5-sonnet-20241022", "2026-01-01T00:00:00.000Z", "urn:ietf:params:oauth:grant-type:jwt-bearer", "https://api.github.com/repos/a1/b2/issues",
		"00000000-0000-0000-0000-000000000000", "0000000000000001", "multipart/form-data;boundary=", "Mozilla/5.0(X11;Linux;x86_64)", "",
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "E3B0C44298FC1C149AFBF4C8996FB924", "da39a3ee5e6b4b0d3255bfef95601890afd80709",
		"%61%70%70%6c%69%63%61%74%69%6f%6e%2f%6a%73%6f%6e", "%2561%2570%2570%256c%2569%2563%2561%2574%2569%256f%256e%252f%256a%2573%256f%256e",
	} {
		if isPlausible(text) {
			t.Errorf("%s is a token", text)
		}
	}
	w := newWorld(t, newLoginServer(t), t.TempDir())
	w.server.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(rw).Encode(map[string]any{"access_token": "application/vnd.github.v3+json", "refresh_token": "refresh-canary-9f8e7d6c5b4a3f2e", "expires_in": 3600})
	})
	started, err := w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayBrowser, Port: 49152})
	testkit.Must(t, err)
	if err := w.FinishLogin(t.Context(), w.approve(t, started)); err == nil || !strings.Contains(err.Error(), "token_does_not_look_random") || w.values.Len() != 0 {
		t.Errorf("the operator is told: %v", err)
	}
}

// TestRefreshIsKept: an answer that gives no usable token, but another refresh token, ends no login.
func TestRefreshIsKept(t *testing.T) {
	for name, answer := range map[string]map[string]any{
		"an empty lifetime": {"access_token": "minted-canary-9f8e7d6c5b4a3f2e-0002", "expires_in": -1},
		"too long":          {"access_token": strings.Repeat("minted-canary-9f8e7d6c5b4a3f2e-0002", 600), "expires_in": 3600},
		"no token":          {"expires_in": 3600},
		"a secret":          {"access_token": "x-inner-canary-123456-9f8e7d6c5b4a3f2e", "expires_in": 3600},
	} {
		server := newLoginServer(t)
		w := newWorld(t, server, t.TempDir())
		w.login(t)
		w.clock.move(2 * time.Hour)
		proper := server.Config.Handler
		server.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			server.mu.Lock()
			server.valid, server.grace = "refresh-canary-9f8e7d6c5b4a3f2e-0777", ""
			server.mu.Unlock()
			answer["refresh_token"] = "refresh-canary-9f8e7d6c5b4a3f2e-0777"
			_ = json.NewEncoder(rw).Encode(answer)
		})
		if v, err := w.ObtainValue(t.Context(), w.cred); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %q, %v", name, v, err)
		}
		if !w.values.LayerOver(nil).Contains("refresh-canary-9f8e7d6c5b4a3f2e-0777") {
			t.Errorf("%s: the refresh token is not scrubbed", name)
		}
		server.Config.Handler = proper
		w.clock.move(2 * time.Minute)
		if v, err := w.ObtainValue(t.Context(), w.cred); err != nil || v == "" {
			t.Errorf("%s: the login is lost: %v", name, err)
		}
	}
}

// TestDeviceConfidential: a device endpoint that wants the client's secret, as RFC 8628 says, gets it when it asks.
func TestDeviceConfidential(t *testing.T) {
	w := newWorld(t, newLoginServer(t), t.TempDir())
	w.server.confidential = true
	s, err := w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayDevice})
	if err != nil || s.Code != "ABCD-EFGH" || w.server.count() != 2 {
		t.Errorf("%+v, %v after %d requests", s, err, w.server.count())
	}
}
