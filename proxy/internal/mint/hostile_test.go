package mint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

// authorize serves a resource and its authorization server, whose answers to a token request are answer's.
func authorize(server *loginServer, secret, issuer string, answer func() map[string]any) {
	host := strings.TrimPrefix(issuer, "https://")
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v any
		switch r.Host + r.URL.Path {
		case "mcp.mail.test/.well-known/oauth-protected-resource/mcp":
			v = map[string]any{"resource": "https://mcp.mail.test/mcp", "authorization_servers": []string{issuer}}
		case host + "/.well-known/oauth-authorization-server":
			v = map[string]any{"issuer": issuer, "authorization_endpoint": issuer + "/authorize", "token_endpoint": issuer + "/token",
				"registration_endpoint": issuer + "/register", "code_challenge_methods_supported": []string{"S256"}}
		case host + "/register":
			v = map[string]any{"client_id": "registered-1", "client_secret": secret}
		case host + "/token":
			_ = r.ParseForm()
			server.mu.Lock()
			server.forms = append(server.forms, r.PostForm)
			server.mu.Unlock()
			v = answer()
		default:
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(v)
	})
}

func proper() map[string]any {
	return map[string]any{"access_token": "minted-canary-9f8e7d6c5b4a3f2e-0001", "refresh_token": "refresh-canary-9f8e7d6c5b4a3f2e-0001", "expires_in": 3600}
}

// begin begins a login as the command does.
func (w *world) begin(t testing.TB) (credentialapi.StartedLogin, error) {
	t.Helper()
	return w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayBrowser, Port: 49152})
}

// TestPlainInner is TestPlainTexts for what is scrubbed beside the token: a refresh token and the secret of a registered
// client. A request with one is refused, and is an alarm.
// Promise: scrubbed-before-use
func TestPlainInner(t *testing.T) {
	for _, text := range []string{"https://", "password", "application/json", "x", "a b", loginName, "aaaaaaaaaaaaaaaaaaaaaaaa", "AWS4-HMAC-SHA256", "application/vnd.github.v3+json"} {
		for _, field := range []string{"refresh_token", "client_secret"} {
			server := newLoginServer(t)
			answer, secret := proper(), "inner-canary-registered-9f8e7d6c5b4a3f2e"
			if field == "client_secret" {
				secret = text
			} else {
				answer["refresh_token"] = text
			}
			authorize(server, secret, "https://login.test", func() map[string]any { return answer })
			w := newWorld(t, server, t.TempDir())
			w.configure(t, resourceConfig)
			s, err := w.begin(t)
			if err == nil {
				err = w.FinishLogin(t.Context(), w.approve(t, s))
			}
			if err == nil || w.values.Len() != 0 {
				t.Errorf("%s %q: %v, %d values", field, text, err, w.values.Len())
			}
		}
	}
}

// TestLogoutDuringExchange: a logout is not undone by a login whose code is being exchanged.
// Promise: logins-belong-to-their-user
func TestLogoutDuringExchange(t *testing.T) {
	server := newLoginServer(t)
	w := newWorld(t, server, t.TempDir())
	usual := server.Config.Handler
	server.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := w.ForgetLogin(loginName); err != nil {
			t.Error(err)
		}
		usual.ServeHTTP(rw, r)
	})
	s, err := w.begin(t)
	testkit.Must(t, err)
	if err := w.FinishLogin(t.Context(), w.approve(t, s)); err == nil {
		t.Error("logged in after a logout")
	}
	if stored, err := os.ReadDir(w.dir); err != nil || len(stored) != 0 {
		t.Errorf("stored: %v, %v", stored, err)
	}
	if _, err := w.ObtainValue(t.Context(), w.cred); err == nil {
		t.Error("there is a token after a logout")
	}
}

// TestClientOfResource: a client that is known at a resource's server needs no login, and no login before it does.
// Promise: never-stale-never-open
func TestClientOfResource(t *testing.T) {
	server := newLoginServer(t)
	authorize(server, "", "https://login.test", func() map[string]any {
		return map[string]any{"access_token": "minted-canary-9f8e7d6c5b4a3f2e-0001", "expires_in": 3600}
	})
	dir := t.TempDir()
	w := newWorld(t, server, dir)
	w.configure(t, strings.Replace(resourceConfig, `{"resource"`,
		`{"grant": "client_credentials", "client_id": "mail", "client_secret": "inner-canary-123456", "resource"`, 1))
	for range 2 {
		if got := w.value(t); got != "minted-canary-9f8e7d6c5b4a3f2e-0001" || server.last().Get("grant_type") != "client_credentials" ||
			server.last().Get("resource") != "https://mcp.mail.test/mcp" || server.last().Get("client_secret") != "inner-canary-123456" {
			t.Errorf("%q by %v", got, server.last())
		}
		w.clock.move(2 * time.Hour)
	}
}

// TestAnotherServer: the secret of a client that the configuration has is for the server that it was first used with. A
// resource that names another one does not get it; after a logout it may.
// Promise: never-stale-never-open
func TestAnotherServer(t *testing.T) {
	server := newLoginServer(t)
	authorize(server, "", "https://login.test", proper)
	w := newWorld(t, server, t.TempDir())
	w.configure(t, strings.Replace(resourceConfig, `{"resource"`, `{"client_id": "mail", "client_secret": "inner-canary-123456", "resource"`, 1))
	s, err := w.begin(t)
	testkit.Must(t, err)
	testkit.Must(t, w.FinishLogin(t.Context(), w.approve(t, s)))
	authorize(server, "", "https://evil.test", proper)
	if _, err := w.begin(t); err != errServer { //nolint:errorlint // not wrapped
		t.Errorf("a login at another server: %v", err)
	}
	testkit.Must(t, w.ForgetLogin(loginName))
	if _, err := w.begin(t); err != nil {
		t.Errorf("after a logout: %v", err)
	}
}

// TestStoredByAnother: what was stored under another configuration is not used, and is scrubbed for as long as it may be
// good.
// Promise: scrubbed-before-use
func TestStoredByAnother(t *testing.T) {
	server, dir := newLoginServer(t), t.TempDir()
	w := newWorld(t, server, dir)
	w.login(t)
	before := w.value(t)
	w.Close()
	again := newWorldAt(t, server, dir, strings.Replace(loginConfig, `"send"`, `"write"`, 1), newClock())
	if _, err := again.ObtainValue(t.Context(), again.cred); err == nil {
		t.Error("a token of another configuration is used")
	}
	if !again.values.LayerOver(nil).Contains(before) {
		t.Error("a token of another configuration is not scrubbed")
	}
}

// TestDeviceOutage: a login by device outlives polls that a server does not answer as it should.
// Promise: logins-belong-to-their-user
func TestDeviceOutage(t *testing.T) {
	server := newLoginServer(t)
	w := newWorld(t, server, t.TempDir())
	s, err := w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayDevice})
	testkit.Must(t, err)
	usual := server.Config.Handler
	for _, broken := range []http.HandlerFunc{
		func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) },
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		server.Config.Handler = broken
		w.clock.move(time.Minute)
		if p, err := w.PollLogin(t.Context(), s.ID); err != nil || p.Done {
			t.Errorf("%+v, %v", p, err)
		}
	}
	server.Config.Handler = usual
	w.clock.move(time.Minute)
	if p, err := w.PollLogin(t.Context(), s.ID); err != nil || !p.Done || w.value(t) == "" {
		t.Errorf("afterwards: %+v, %v", p, err)
	}
}

// TestDeviceAnswers: a login by device begins only with an answer that a terminal can show, and its error names the cause.
// Promise: logins-belong-to-their-user
func TestDeviceAnswers(t *testing.T) {
	server := newLoginServer(t)
	w := newWorld(t, server, t.TempDir())
	answer := func(status int, text string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(status)
			_, _ = io.WriteString(rw, text)
		}
	}
	code := func(device, user, uri string, rest string) http.HandlerFunc {
		return answer(200, fmt.Sprintf(`{"device_code": %q, "user_code": %q, "verification_uri": %q%s}`, device, user, uri, rest))
	}
	const page = "https://login.test/activate"
	for name, c := range map[string]struct {
		serve    http.HandlerFunc
		want     string // the code of the error; "" for a login
		interval int
	}{
		"no answer":       {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, detailUnreachable, 0},
		"no JSON":         {answer(200, "hello"), detailNotJSON, 0},
		"a known error":   {answer(400, `{"error": "access_denied"}`), "access_denied", 0},
		"another error":   {answer(400, `{"error": "inner-canary"}`), detailOther, 0},
		"a bad status":    {answer(502, `{}`), detailStatus, 0},
		"no page":         {code("d", "u", "", ""), detailNotJSON, 0},
		"a page's scheme": {code("d", "u", "http://login.test/activate", ""), detailNotJSON, 0},
		"a user in it":    {code("d", "u", "https://me@login.test/activate", ""), detailNotJSON, 0},
		"no host":         {code("d", "u", "https:///activate", ""), detailNotJSON, 0},
		"a space in it":   {code("d", "u", page+" x", ""), detailNotJSON, 0},
		"no code":         {code("d", "", page, ""), detailNotJSON, 0},
		"a long code":     {code("d", strings.Repeat("u", 65), page, ""), detailNotJSON, 0},
		"a wide code":     {code("d", "ü", page, ""), detailNotJSON, 0},
		"no device code":  {code("", "u", page, ""), detailNotJSON, 0},
		"usual":           {code("d", strings.Repeat("u", 64), page, ""), "", 5},
		"Google's field":  {code("d", "u", "", `, "verification_url": "`+page+`"`), "", 5},
		"one second":      {code("d", "u", page, `, "interval": 1`), "", 1},
		"a minute":        {code("d", "u", page, `, "interval": 60`), "", 60},
		"too often":       {code("d", "u", page, `, "interval": 0.5`), "", 5},
		"too seldom":      {code("d", "u", page, `, "interval": 61`), "", 5},
	} {
		server.Config.Handler = c.serve
		s, err := w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayDevice})
		got := ""
		if r := (*rpc.Error)(nil); errors.As(err, &r) {
			got = r.Code
		}
		if got != c.want || (err == nil) != (c.want == "") || s.Interval != c.interval || err == nil && s.URL != page {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// TestClockAhead: a token that is used is scrubbed, also when the clock was ahead for a while, so that it had seemed to
// be over.
// Promise: scrubbed-before-use
func TestClockAhead(t *testing.T) {
	for _, restart := range []bool{false, true} {
		server, dir := newLoginServer(t), t.TempDir()
		w := newWorld(t, server, dir)
		w.login(t)
		token := w.value(t)
		ahead := 3 * time.Hour
		if restart {
			w.Close()
			at := w.clock
			at.move(ahead)
			w = newWorldAt(t, server, dir, loginConfig, at)
		} else {
			w.clock.move(ahead)
		}
		w.values.Sweep()
		w.clock.move(-ahead)
		if got := w.value(t); got != token || !w.values.LayerOver(nil).Contains(token) {
			t.Errorf("after a restart %v: %q is used, and not scrubbed", restart, got)
		}
		testkit.Must(t, w.ForgetLogin(loginName))
		if !w.values.LayerOver(nil).Contains(token) {
			t.Errorf("after a restart %v: not scrubbed after a logout", restart)
		}
		w.clock.move(ahead)
		w.values.Sweep()
		if w.values.Len() != 0 {
			t.Errorf("after a restart %v: %d values are known when all are over", restart, w.values.Len())
		}
	}
}

// TestLogoutOfRemoved: a logout of a credential that no API has any more holds, though a renewal of it is finished after.
// Promise: logins-belong-to-their-user
func TestLogoutOfRemoved(t *testing.T) {
	server := newLoginServer(t)
	w := newWorld(t, server, t.TempDir())
	w.login(t)
	w.clock.move(2 * time.Hour)
	usual, none := server.Config.Handler, &catalog.Catalog{}
	server.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := errors.Join(w.Configure(none), w.ForgetLogin(loginName)); err != nil {
			t.Error(err)
		}
		usual.ServeHTTP(rw, r)
	})
	_, _ = w.ObtainValue(t.Context(), w.cred)
	w.Close()
	if stored, err := os.ReadDir(w.dir); err != nil || len(stored) != 0 {
		t.Errorf("stored: %v, %v", stored, err)
	}
}
