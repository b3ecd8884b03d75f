package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/guard"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// quiet is a CodeForge in which nothing happens.
type quiet struct{}

func (quiet) FetchInspection(context.Context) (proxyapi.Inspection, error) {
	return proxyapi.Inspection{}, nil
}
func (quiet) CheckLedger(context.Context, []proxyapi.KnownHead) (proxyapi.LedgerCheck, error) {
	return proxyapi.LedgerCheck{}, proxyapi.ErrNotFound
}
func (quiet) ToolList(string) ([]operatorapi.Tool, error)                 { return nil, operatorapi.ErrNoServer }
func (quiet) ListStates() []mcpserver.Status                              { return nil }
func (quiet) ServerLog(string) ([]operatorapi.Line, error)                { return nil, operatorapi.ErrNoServer }
func (quiet) RestartServer(string) error                                  { return operatorapi.ErrNoServer }
func (quiet) ListHeld(context.Context) ([]approvalapi.HeldRequest, error) { return nil, nil }
func (quiet) DecideHeld(context.Context, string, approvalapi.Answer) (approvalapi.HeldRequest, error) {
	return approvalapi.HeldRequest{}, &rpc.Error{Status: proxyapi.StatusNotDecided, Text: "No request waits under this id."}
}
func (quiet) ListPlans(context.Context) ([]approvalapi.Plan, error) { return nil, nil }
func (quiet) GetPlan(context.Context, string) (approvalapi.Plan, error) {
	return approvalapi.Plan{}, &rpc.Error{Status: http.StatusNotFound, Text: "There is no plan with this id, or it has expired."}
}
func (quiet) DecidePlan(context.Context, string, approvalapi.Answer) (approvalapi.Plan, error) {
	return approvalapi.Plan{}, &rpc.Error{Status: proxyapi.StatusNotDecided, Text: "There is no plan with this id, or it has expired."}
}

// served is a console behind the guard of mcp-server, with this token.
func served(t testing.TB, token string, runs int) (*Console, *memory, http.Handler) {
	t.Helper()
	g := guard.New(guard.Config{Token: secret.New(token), Page: Path})
	m := newMemory(t, runs)
	c := New(Config{
		Token: g.IsToken, Proxy: quiet{}, Servers: quiet{}, Approvals: quiet{}, History: m,
		Catalog: func() proxyapi.Catalog { return proxyapi.Catalog{} }, Load: func() Load { return Load{} },
		Ready: func(context.Context) error { return nil }, StopRun: func(string) bool { return false },
		Log: slog.New(slog.DiscardHandler), Stop: make(chan struct{}),
	})
	return c, m, g.SplitRequests(c, nil)
}

// ask sends a request, with headers as "Name: value".
func ask(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost:8080"+path, strings.NewReader(body))
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// signedIn is the header of a session.
func signedIn(t testing.TB, h http.Handler, secret string) string {
	t.Helper()
	w := ask(h, http.MethodPost, API+"session", fmt.Sprintf(`{"secret": %q}`, secret), "Content-Type: application/json")
	var v struct{ Bearer string }
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || v.Bearer == "" {
		t.Fatalf("signing in: %d %s", w.Code, w.Body)
	}
	return "Authorization: Bearer " + v.Bearer
}

// TestHeaders: every answer has the policy, whatever it is; what the API answers is kept nowhere; nothing sets a cookie.
// Promise: console-shows-text
func TestHeaders(t *testing.T) {
	c, _, h := served(t, "", 1)
	me := signedIn(t, h, c.NewSignInCode())
	for _, path := range []string{Path, Path + "/", Path + "/app.js", Path + "/none", API + "runs", API + "none", API + "session", API + "../app.js"} {
		w := ask(h, http.MethodGet, path, "", me)
		for name, want := range map[string]string{
			"Content-Security-Policy":      "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"X-Content-Type-Options":       "nosniff",
			"Referrer-Policy":              "no-referrer",
			"Set-Cookie":                   "",
			"Access-Control-Allow-Origin":  "",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s: %q, want %q", path, name, got, want)
			}
		}
		if strings.HasPrefix(path, API) && w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s may be kept: %q", path, w.Header().Get("Cache-Control"))
		}
	}
}

// TestFileHeaders: a file of a run needs a session, and is never a page.
// Promise: files-are-data
func TestFileHeaders(t *testing.T) {
	c, _, h := served(t, "", 1)
	const path = API + "runs/r000000/files/a%20b.html"
	w := ask(h, http.MethodGet, path, "", signedIn(t, h, c.NewSignInCode()))
	for name, want := range map[string]string{
		"Content-Security-Policy": "sandbox; default-src 'none'", "Content-Disposition": `attachment; filename="a b.html"`,
		"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if w := ask(h, http.MethodGet, path, ""); w.Code != http.StatusUnauthorized {
		t.Errorf("without a session: %d", w.Code)
	}
}

// TestShell: the shell says the same to everybody, has no script or style within, and makes no markup of text.
// Promise: console-shows-text
func TestShell(t *testing.T) {
	_, _, h := served(t, "s3cret", 1)
	page := ask(h, http.MethodGet, Path, "").Body.String()
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		w := ask(h, http.MethodGet, m[1], "")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") == "" {
			t.Errorf("%s: %d", m[1], w.Code)
		}
		if again := ask(h, http.MethodGet, m[1], "", "If-None-Match: "+w.Header().Get("Etag")); again.Code != http.StatusNotModified {
			t.Errorf("%s is sent again: %d", m[1], again.Code)
		}
	}
	if regexp.MustCompile(`<script(?: [^>]*)?>[^<]|<style|style=| on\w+=`).MatchString(page) {
		t.Error("the page has a script, a style or a handler within")
	}
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySetInnerHTML|\beval\(|new Function|https?://[a-z]`)
	entries, err := fs.ReadDir(files, "web")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, _ := fs.ReadFile(files, "web/"+e.Name())
		if strings.HasSuffix(e.Name(), ".js") && e.Name() != "preact.js" {
			if at := forbidden.Find(text); at != nil {
				t.Errorf("%s has %s", e.Name(), at)
			}
		}
	}
}

// TestScripts: no script imports itself by way of others, so each can be read after those that it imports.
func TestScripts(t *testing.T) {
	state := map[string]int{} // 1: its imports are being followed; 2: done
	var follow func(name string)
	follow = func(name string) {
		switch state[name]++; state[name] {
		case 2:
			t.Errorf("%s imports itself", name)
			return
		case 1:
			text, err := fs.ReadFile(files, "web/"+name)
			testkit.Must(t, err)
			for _, m := range regexp.MustCompile(`(?m)^import .* from "\./([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
				follow(m[1])
			}
		}
		state[name] = 2
	}
	follow("app.js")
}

// TestBearer: every path of the API needs a session, whichever credential else is sent, also where /mcp needs none.
// Promise: console-sessions
func TestBearer(t *testing.T) {
	for _, token := range []string{"", "s3cret-token"} {
		c, _, h := served(t, token, 1)
		code := c.NewSignInCode()
		for _, path := range []string{"runs", "runs/r000000", "held", "ledger?time=24h", "apis", "servers", "skills", "alerts", "settings", "status", "sessions", "live", "kept", "none", ""} {
			for _, auth := range []string{"Accept: */*", "Authorization: Bearer", "Authorization: Bearer x", "Authorization: Bearer " + code, "Authorization: Bearer s3cret-token", "Authorization: Basic s3cret-token", "Cookie: bearer=" + code} {
				for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
					if w := ask(h, method, API+path, "{}", auth); w.Code != http.StatusUnauthorized {
						t.Errorf("%s %s with %q: %d", method, path, auth, w.Code)
					}
				}
			}
		}
	}
}

// TestForeign: web pages of others reach nothing, but a link of theirs may open the empty shell.
// Promise: console-sessions
func TestForeign(t *testing.T) {
	c, _, h := served(t, "", 1)
	me := signedIn(t, h, c.NewSignInCode())
	opens := []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}
	for _, x := range []struct {
		method, path string
		headers      []string
		want         int
	}{
		{"GET", Path, nil, 200},
		{"GET", Path, opens, 200},
		{"GET", Path, append([]string{"Sec-Fetch-User: ?1"}, opens...), 200},
		{"GET", API + "runs", []string{"Sec-Fetch-Site: same-origin"}, 200},
		{"GET", API + "runs", []string{"Sec-Fetch-Site: same-origin", "Origin: http://localhost:8080"}, 200},

		{"POST", Path, opens, 403},
		{"GET", Path + "?x", opens, 403},
		{"GET", Path + "/app.js", opens, 403},
		{"GET", API + "runs", opens, 403},
		{"GET", Path, append([]string{"Origin: https://evil.test"}, opens...), 403},
		{"GET", Path, []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}, 403},
		{"GET", Path, []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script"}, 403},
		{"GET", Path, []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"}, 403},
		{"GET", Path, append([]string{"Host: evil.test"}, opens...), 403},
		{"GET", API + "runs", []string{"Host: evil.test:8080"}, 403},
		{"GET", API + "runs", []string{"Host: 127.0.0.1.evil.test"}, 403},
		{"GET", API + "runs", []string{"Origin: https://evil.test"}, 403},
		{"GET", API + "runs", []string{"Origin: http://localhost:3000"}, 403},
		{"GET", API + "runs", []string{"Origin: null"}, 403},
		{"GET", API + "runs", []string{"Sec-Fetch-Site: same-site"}, 403},
		{"GET", API + "runs", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"POST", API + "session", []string{"Origin: https://evil.test", "Content-Type: application/json"}, 403},
		{"POST", API + "session", []string{"Content-Type: text/plain"}, 415},
		{"POST", API + "session", []string{"Content-Type: application/x-www-form-urlencoded"}, 415},
		{"OPTIONS", API + "runs", []string{"Origin: https://evil.test", "Access-Control-Request-Method: GET"}, 403},
	} {
		if w := ask(h, x.method, x.path, `{"secret": "x"}`, append([]string{me}, x.headers...)...); w.Code != x.want {
			t.Errorf("%s %s %q: %d, want %d", x.method, x.path, x.headers, w.Code, x.want)
		}
	}
}

// TestSessions: a code works once and for a minute, a session for twelve hours or until it is ended; both are bounded.
// Promise: console-sessions
func TestSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, h := served(t, "", 1)
		good := func(me string) bool { return ask(h, http.MethodGet, API+"sessions", "", me).Code == http.StatusOK }
		secret := func(s string) int {
			return ask(h, http.MethodPost, API+"session", fmt.Sprintf(`{"secret": %q}`, s), "Content-Type: application/json").Code
		}
		code := c.NewSignInCode()
		me := signedIn(t, h, code)
		if !good(me) || secret(code) != http.StatusUnauthorized {
			t.Error("a code works twice, or not at all")
		}
		late, later := c.NewSignInCode(), c.NewSignInCode()
		time.Sleep(codeTime - time.Second)
		other := signedIn(t, h, late)
		time.Sleep(2 * time.Second)
		if secret(later) != http.StatusUnauthorized {
			t.Error("a code works after a minute")
		}
		for _, s := range []string{"", " ", strings.ToLower(code), strings.Repeat("x", 20000)} {
			if got := secret(s); got != http.StatusUnauthorized && got != http.StatusBadRequest {
				t.Errorf("%.20q: %d", s, got)
			}
		}
		if w := ask(h, http.MethodDelete, API+"sessions/this", "", other); w.Code != http.StatusOK || good(other) || !good(me) {
			t.Error("signing out ended another session, or not its own")
		}
		time.Sleep(sessionTime - 3*time.Minute)
		if !good(me) {
			t.Error("the session ended early")
		}
		time.Sleep(3 * time.Minute)
		if good(me) {
			t.Error("the session did not end")
		}
		first := signedIn(t, h, c.NewSignInCode())
		for range maxSessions {
			signedIn(t, h, c.NewSignInCode())
		}
		if good(first) || len(c.sessions.listSessions("")) != maxSessions {
			t.Errorf("%d sessions are kept", len(c.sessions.listSessions("")))
		}
		for range maxCodes + 1 {
			code = c.NewSignInCode()
		}
		if len(c.sessions.codes) != maxCodes || secret(code) != http.StatusOK {
			t.Errorf("%d codes are kept", len(c.sessions.codes))
		}
	})
}

// TestSessionsSleep: codes and sessions end while the machine sleeps, whose monotonic clock stands still, and as they
// should when its clock is set back.
// Promise: console-sessions
func TestSessionsSleep(t *testing.T) {
	for name, clock := range map[string]struct{ after, set time.Duration }{
		"asleep": {0, sessionTime}, "set back": {sessionTime, -100 * time.Hour},
	} {
		began := time.Now()
		now := began
		s := sessionStore{now: func() time.Time { return now }}
		code := s.NewSignInCode()
		bearer, _ := s.openSession("")
		now = testkit.AfterSleep(began.Add(clock.after), clock.set)
		if _, found := s.findSession(bearer); found || s.useSignInCode(code) {
			t.Errorf("%s: a session or a code did not end", name)
		}
	}
}

// TestToken: MCP_AUTH_TOKEN signs in, and without one nothing does that is none.
// Promise: console-sessions
func TestToken(t *testing.T) {
	_, _, h := served(t, "s3cret-token", 1)
	signedIn(t, h, "s3cret-token")
	_, _, open := served(t, "", 1)
	for _, s := range []string{"", "s3cret-token"} {
		if w := ask(open, http.MethodPost, API+"session", fmt.Sprintf(`{"secret": %q}`, s), "Content-Type: application/json"); w.Code != http.StatusUnauthorized {
			t.Errorf("%q: %d", s, w.Code)
		}
	}
}

// TestLive: the stream tells what changes, goes on where it broke off without a loss, and ends with its session.
// Promise: console-sessions
func TestLive(t *testing.T) {
	c, m, h := served(t, "", 1)
	s := httptest.NewServer(h)
	defer s.Close()
	me := signedIn(t, h, c.NewSignInCode())
	open := func(query string) (next func() streamLine, end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+API+"live?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", strings.TrimPrefix(me, "Authorization: "))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		return func() (n streamLine) {
			for lines.Scan() {
				if len(lines.Bytes()) > 0 {
					if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
						t.Fatal(err)
					}
					return n
				}
			}
			return streamLine{After: "ended"}
		}, func() { cancel(); _ = resp.Body.Close() }
	}
	next, end := open("run=r1")
	if n := next(); n.Versions == nil {
		t.Errorf("it begins with %+v", n)
	}
	run := func(id, state string) operatorapi.HistoryEvent {
		return operatorapi.HistoryEvent{Kind: operatorapi.EventRun, RunID: id, Run: &operatorapi.Run{ID: id, State: state}}
	}
	m.Tell(run("r1", operatorapi.Running))
	n := next()
	for n.After == "" {
		n = next()
	}
	if len(n.Runs) != 1 || !n.Touched {
		t.Errorf("a run that began: %+v", n)
	}
	end()
	m.Tell(run("r2", operatorapi.Running))
	m.Tell(run("r2", operatorapi.OK))
	m.Tell(operatorapi.HistoryEvent{Kind: operatorapi.EventAlert})
	next, end = open("after=" + n.After + "&run=r1")
	var got streamLine
	for got.After != "4" {
		one := next()
		got.After, got.Alerts, got.Touched = one.After, got.Alerts || one.Alerts, got.Touched || one.Touched
		got.Runs = append(got.Runs, one.Runs...)
	}
	if len(got.Runs) != 1 || got.Runs[0].State != operatorapi.OK || !got.Alerts || got.Touched {
		t.Errorf("after the break: %+v", got)
	}
	ask(h, http.MethodDelete, API+"sessions/this", "", me)
	if one := next(); one.After != "ended" {
		t.Errorf("after its session the stream told %+v", one)
	}
	end()
}

// TestStopped: what is over is not stopped, and what waits no more is not decided, with a sentence each.
func TestStopped(t *testing.T) {
	c, _, h := served(t, "", 1)
	me := signedIn(t, h, c.NewSignInCode())
	for path, want := range map[string]string{"runs/r000000/stop": "This run has ended.", "held/abc": "No request waits"} {
		w := ask(h, http.MethodPost, API+path, `{"approve": true}`, me, "Content-Type: application/json")
		if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := ask(h, http.MethodGet, API+"runs/none", "", me); w.Code != http.StatusNotFound {
		t.Errorf("a run that is none: %d", w.Code)
	}
}

// TestDecides: keys and buttons decide about what has been on the screen for a second, and about nothing else: not about
// what takes its place, nor for a key that is still held down.
// Promise: console-decides-what-was-shown
func TestDecides(t *testing.T) {
	script, err := os.Open("testdata/decides.mjs")
	testkit.Must(t, err)
	defer script.Close()
	web := "file://" + filepath.Join(testkit.RootDir(t), "mcp-server", "internal", "console", "web")
	cmd := exec.CommandContext(t.Context(), testkit.DenoPath(t), "run", "--no-prompt", "--no-config", "--allow-read", "--ext=js", "-", web)
	cmd.Stdin = script
	cmd.Env = []string{"NO_COLOR=1", "HOME=" + t.TempDir(), "DENO_NO_UPDATE_CHECK=1"}
	out, err := cmd.CombinedOutput()
	want := `at once: nothing
a key that is still held down: nothing
A, and what then is in its place: +A
B after a second: +B
A is gone, and its address is still there: nothing
without an address, A is gone: nothing
a plan at once: nothing
a plan, with a key that is still held down: nothing
a plan after a second: +P
without an address, a run has taken the place of another: nothing
that run after a second: stop run2
`
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s, want\n%s", err, out, want)
	}
}

// TestConnectionStays: a page that has signed in keeps its connection when somebody without a session opens more of them
// than there may be.
// Promise: no-lock-out
func TestConnectionStays(t *testing.T) {
	c, _, h := served(t, "", 1)
	me := signedIn(t, h, c.NewSignInCode())
	tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ConnContext: guard.ConnContext}
	go func() { _ = server.Serve(guard.LimitConns(tcp, 2)) }()
	t.Cleanup(func() { _ = server.Close() })
	get := func(client *http.Client, name, value string) (status int, again bool) {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { again = i.Reused }})
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+tcp.Addr().String()+API+"runs", nil)
		testkit.Must(t, err)
		r.Header.Set(name, value)
		resp, err := client.Do(r)
		testkit.Must(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		testkit.Must(t, errors.Join(err, resp.Body.Close()))
		return resp.StatusCode, again
	}
	client := func() *http.Client {
		transport := new(http.Transport)
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: 10 * time.Second}
	}
	page := client()
	name, value, _ := strings.Cut(me, ": ")
	if status, _ := get(page, name, value); status != http.StatusOK {
		t.Fatal(status)
	}
	for range 3 {
		if status, _ := get(client(), "X-None", "x"); status != http.StatusUnauthorized {
			t.Fatal(status)
		}
	}
	if status, again := get(page, name, value); status != http.StatusOK || !again {
		t.Errorf("the page's next request: %d, on the same connection: %v", status, again)
	}
}
