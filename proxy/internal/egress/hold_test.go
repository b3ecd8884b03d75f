package egress_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// TestApproval: a request that a rule holds reaches the upstream after a person's yes, as it was shown and with its
// credential, and else not at all.
// Promise: exact-approvals
func TestApproval(t *testing.T) {
	rules := `, "rules": [{"methods": ["POST"], "then": "approve"}, {"then": "allow"}]`
	for name, c := range map[string]struct {
		body    string
		approve bool
		change  bool // the configuration changes while it waits
		code    string
	}{
		"approved":              {`{"amount":5}`, true, false, ""},
		"refused":               {`{"amount":5}`, false, false, "approval_denied"},
		"the catalog changes":   {`{"amount":5}`, true, true, "approval_stale"},
		"no text":               {"\xff\xfe", true, false, "approval_unreadable"},
		"larger than is shown":  {strings.Repeat("a", 257<<10), true, false, "approval_unreadable"},
		"with a credential":     {secretValue, true, false, "credential_in_request"},
		"a name, shown as such": {`{"token":"` + tokenName + `"}`, true, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(rules)}})
			var up seen
			r.upstreams.https(up.echo())
			r.begin()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+demoHost+"/refunds?a=1", strings.NewReader(c.body))
			check(t, err)
			req.Header.Set("Authorization", "Bearer "+tokenName)
			req.Header.Set("Content-Type", "text/plain")
			type answer struct {
				resp *http.Response
				err  error
			}
			answers := make(chan answer, 1)
			go func() { resp, err := r.client(false).Do(req); answers <- answer{resp, err} }()
			var got answer
			if c.code != "approval_unreadable" && c.code != "credential_in_request" {
				testkit.WaitFor(t, func() bool { return len(r.approvals.ListHeld()) == 1 })
				h := r.approvals.ListHeld()[0]
				shown := h.Method + " " + h.URL + " " + strings.Join(h.Headers, "|") + " " + h.Body
				if strings.Contains(shown, secretValue) || !strings.Contains(shown, "Bearer "+tokenName) || !strings.HasSuffix(h.URL, "/refunds?a=1") || h.API != "demo" || h.Rule != "approve POST" {
					t.Errorf("shown: %+v", h)
				}
				if up.count() != 0 {
					t.Error("it left before the answer")
				}
				if c.change {
					r.late = true
					r.writeAPI("demo", strings.Replace(demoAPI(rules), "demo", "other", 1))
					r.reloader.Load()
				}
				_, err := r.approvals.DecideHeld(h.ID, approvalapi.Answer{Approve: c.approve}, true)
				check(t, err)
			} else if got = <-answers; len(r.approvals.ListHeld()) != 0 {
				t.Errorf("a person was asked: %+v", r.approvals.ListHeld())
			} else {
				answers <- got
			}
			got = <-answers
			check(t, got.err)
			defer got.resp.Body.Close()
			if c.code == "" {
				text, _ := io.ReadAll(got.resp.Body)
				if got.resp.StatusCode != 200 || up.count() != 1 || up.bodies[0] != c.body || up.last(t).Header.Get("Authorization") != "Bearer "+secretValue {
					t.Errorf("got %d %s, sent %q", got.resp.StatusCode, text, up.bodies)
				}
				return
			}
			if r := refusal(t, got.resp); r.Code != c.code || up.count() != 0 {
				t.Errorf("got %+v, upstream reached %d times", r, up.count())
			}
		})
	}
}

// TestApprovalOfCopies: an approval of all requests of a rule covers no copy of an object, because the rule sees only one
// of its two paths.
// Promise: exact-approvals
func TestApprovalOfCopies(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "rules": [{"path": "/mine/*", "then": "approve"}]`)}})
	r.upstreams.https(new(seen).echo())
	r.begin()
	r.approvals.Wait = testkit.Patience
	done := make(chan int, 1)
	go func() {
		status, _, _ := r.ask(http.MethodPut, "/mine/a", "")
		done <- status
	}()
	testkit.WaitFor(t, func() bool { return len(r.approvals.ListHeld()) == 1 })
	_, err := r.approvals.DecideHeld(r.approvals.ListHeld()[0].ID, approvalapi.Answer{Approve: true, Scope: approvalapi.ScopeRule}, true)
	check(t, err)
	if status := <-done; status != http.StatusOK {
		t.Fatalf("%d", status)
	}
	for header, want := range map[string]int{"X-Source: /theirs/b": http.StatusOK, "X-Amz-Copy-Source: /theirs/b": http.StatusBadRequest} {
		if status, _, _ := r.ask(http.MethodPut, "/mine/a", "", header); status != want {
			t.Errorf("%s: %d, want %d", header, status, want)
		}
	}
}

// TestApprovalOfOneRule: who approves all that one rule asks about has not approved what another one asks about too, of the
// same API or of another one at the host.
// Promise: exact-approvals
func TestApprovalOfOneRule(t *testing.T) {
	one := demoAPI(`, "rules": [{"methods": ["POST"], "then": "approve"}, {"methods": ["DELETE"], "then": "approve"}]`)
	two := strings.NewReplacer(tokenName, "OTHER_API_TOKEN", secretValue, "another-value-of-ours").Replace(
		demoAPI(`, "rules": [{"path": "/other", "then": "approve"}, {"then": "allow"}]`))
	limited := strings.Replace(two, `"rules"`, `"limits": {"calls": "1/d", "over": "approve"}, "rules"`, 1)
	lax := demoAPI(`, "limits": {"calls": "1/h", "over": "approve"}`)
	for name, c := range map[string]struct {
		apis        map[string]string
		first, then string // its path, and a method in a header
		rule, both  string // what holds the first, and what holds the second
	}{
		"an override": {map[string]string{"demo": one}, "/ POST", "/ DELETE", "approve POST", "approve POST; approve DELETE"},
		"two APIs": {map[string]string{"demo": one, "other": two}, "/ POST", "/other POST", "approve POST",
			"approve POST; approve /other"},
		"two limits": {map[string]string{"demo": lax, "other": limited}, "/ POST", "", "approve beyond calls 1/h; approve beyond calls 1/d", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: c.apis})
			r.upstreams.https(new(seen).echo())
			r.begin()
			if c.then == "" {
				r.ask(http.MethodPost, "/", "")
			}
			r.approvals.Wait = testkit.Patience
			send := func(row string) <-chan int {
				path, method, _ := strings.Cut(row, " ")
				done := make(chan int, 1)
				go func() {
					status, _, _ := r.ask(http.MethodPost, path, "", "X-HTTP-Method-Override: "+method)
					done <- status
				}()
				return done
			}
			done := send(c.first)
			testkit.WaitFor(t, func() bool { return len(r.approvals.ListHeld()) == 1 })
			if got := r.approvals.ListHeld()[0].Rule; got != c.rule {
				t.Errorf("held by %q", got)
			}
			_, err := r.approvals.DecideHeld(r.approvals.ListHeld()[0].ID, approvalapi.Answer{Approve: true, Scope: approvalapi.ScopeRule}, true)
			check(t, err)
			if status := <-done; status != http.StatusOK {
				t.Fatalf("%d", status)
			}
			if status := <-send(c.first); status != http.StatusOK {
				t.Errorf("again: %d", status)
			}
			if c.then == "" {
				return
			}
			done = send(c.then)
			testkit.WaitFor(t, func() bool { return len(r.approvals.ListHeld())+len(done) > 0 })
			if len(r.approvals.ListHeld()) != 1 {
				t.Fatalf("%s was sent: %d", c.then, <-done)
			}
			if got := r.approvals.ListHeld()[0].Rule; got != c.both {
				t.Errorf("held by %q", got)
			}
			_, err = r.approvals.DecideHeld(r.approvals.ListHeld()[0].ID, approvalapi.Answer{}, true)
			check(t, err)
			if status := <-done; status != http.StatusForbidden {
				t.Errorf("refused: %d", status)
			}
		})
	}
}

// TestApprovalOvertaken: nobody is asked about a request whose catalog changed while its body came: it could not leave.
// Promise: exact-approvals
func TestApprovalOvertaken(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "rules": [{"then": "approve"}]`)}})
	r.approvals.Wait = time.Second
	r.begin()
	body, more := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+demoHost+"/", body)
	check(t, err)
	codes := make(chan string, 1)
	go func() {
		resp, err := r.client(false).Do(req)
		check(t, err)
		codes <- refusal(t, resp).Code
	}()
	_, err = io.WriteString(more, "x")
	check(t, err)
	eventually(t, func() bool { return r.handler.InFlight() == 1 })
	r.writeAPI("demo", demoAPI(`, "rules": [{"then": "approve"}], "reference": "https://example.com/"`))
	r.reloader.Load()
	check(t, more.Close())
	if code := <-codes; code != "approval_stale" || len(r.approvals.ListHeld()) != 0 {
		t.Errorf("%s; held: %+v", code, r.approvals.ListHeld())
	}
}

// TestApprovalLater: nobody answers, the code is told so, and after a late yes the same request passes once, for the same
// tenant.
// Promise: exact-approvals, tenant-state
func TestApprovalLater(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "rules": [{"then": "approve"}]`)}})
	r.approvals.Wait = 1
	var up seen
	r.upstreams.https(up.echo())
	r.beginOf("alice", 0, 1)
	r.beginOf("mallory", 1, 1)
	postIn := func(in slot.ID, body string) (string, int) {
		t.Helper()
		resp, err := r.clientIn(in, false).Post("https://"+demoHost+"/", "text/plain", strings.NewReader(body))
		check(t, err)
		if resp.StatusCode == 200 {
			return body, 200
		}
		return refusal(t, resp).Code, resp.StatusCode
	}
	post := func(body string) (string, int) { t.Helper(); return postIn(0, body) }
	if code, _ := post("x"); code != "approval_timeout" {
		t.Fatal(code)
	}
	held := r.approvals.ListHeld()[0]
	if held.Waiting {
		t.Errorf("%+v", held)
	}
	_, err := r.approvals.DecideHeld(held.ID, approvalapi.Answer{Approve: true}, true)
	check(t, err)
	if code, _ := postIn(1, "x"); code != "approval_timeout" {
		t.Errorf("another tenant with her approval: %s", code)
	}
	for i, want := range []struct {
		body, code string
	}{{"y", "approval_timeout"}, {"x", "x"}, {"x", "approval_timeout"}} {
		if code, _ := post(want.body); code != want.code {
			t.Errorf("%d: %s", i, code)
		}
	}
	if up.count() != 1 || up.bodies[0] != "x" {
		t.Errorf("sent %q", up.bodies)
	}
}

// TestApprovalOnce: what a person approved is sent once, also where a request would be repeated after a 401.
// Promise: exact-approvals
func TestApprovalOnce(t *testing.T) {
	for extra, calls := range map[string]int32{``: 2, `, "rules": [{"then": "approve"}]`: 1} {
		var asked atomic.Int32
		s := &tokenServer{api: func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
		}}
		r := newRig(t, setup{apis: map[string]string{"demo": mintedAPI(extra)}})
		r.upstreams.https(s)
		end := r.begin()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = sendMinted(t, r, http.MethodGet, "").Body.Close()
		}()
		if extra != "" {
			testkit.WaitFor(t, func() bool { return len(r.approvals.ListHeld()) == 1 })
			_, err := r.approvals.DecideHeld(r.approvals.ListHeld()[0].ID, approvalapi.Answer{Approve: true}, true)
			check(t, err)
		}
		<-done
		end()
		if asked.Load() != calls {
			t.Errorf("rules %q: sent %d times", extra, asked.Load())
		}
	}
}

// countSendings returns how many times a server gets a GET, which a rule holds on the path /ask. The server closes the
// connection without a response. The connection was used before, so net/http may send the request again.
func countSendings(t *testing.T, path string) int32 {
	t.Helper()
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "rules": [{"path": "/ask", "then": "approve"}, {"then": "allow"}]`)}})
	var asked atomic.Int32
	r.upstreams.https(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if req.URL.Path == path {
			asked.Add(1)
			panic(http.ErrAbortHandler) // closes the connection
		}
	}))
	r.begin()
	if status, _, text := r.ask(http.MethodGet, "/first", ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _ = r.ask(http.MethodGet, path, "")
	}()
	if path == "/ask" {
		testkit.WaitFor(t, func() bool { return len(r.approvals.ListHeld()) == 1 })
		_, err := r.approvals.DecideHeld(r.approvals.ListHeld()[0].ID, approvalapi.Answer{Approve: true}, true)
		check(t, err)
	}
	<-done
	return asked.Load()
}

// TestApprovalOnceOverIdle: a server gets an approved request once, even if the request only reads and its connection
// breaks. Without an approval, net/http retries the request.
// Promise: exact-approvals
func TestApprovalOnceOverIdle(t *testing.T) {
	for path, want := range map[string]int32{"/ask": 1, "/free": 2} {
		if n := countSendings(t, path); n != want {
			t.Errorf("%s: the server got it %d times, want %d", path, n, want)
		}
	}
}

// TestApprovalOverHTTP2: the first request to a server without HTTP/1 is an approved one, and the server gets it once.
// Promise: exact-approvals
func TestApprovalOverHTTP2(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "rules": [{"then": "approve"}]`)}})
		var up seen
		r.upstreams.http2(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.ProtoMajor != 2 {
				panic(http.ErrAbortHandler) // closes the connection
			}
			up.echo().ServeHTTP(w, q)
		}))
		r.begin()
		done := make(chan int, 1)
		go func() {
			status, _, _ := r.ask(method, "/ask", strings.Repeat("{}", len(method)-len("GET")))
			done <- status
		}()
		testkit.WaitFor(t, func() bool { return len(r.approvals.ListHeld()) == 1 })
		_, err := r.approvals.DecideHeld(r.approvals.ListHeld()[0].ID, approvalapi.Answer{Approve: true}, true)
		check(t, err)
		if status := <-done; status != http.StatusOK || up.count() != 1 {
			t.Errorf("%s: %d, and the server got it %d times", method, status, up.count())
		}
	}
}

// TestApprovalOfOnePath: an approval for a path covers further requests of the run with other headers, but not one with
// another path in a header. A rule without a path leaves such a header to the person.
// Promise: exact-approvals
func TestApprovalOfOnePath(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "rules": [{"then": "approve"}]`)}})
	var up seen
	r.upstreams.https(up.echo())
	r.begin()
	list := r.approvals.ListHeld
	ask := func(headers ...string) <-chan int {
		done := make(chan int, 1)
		go func() {
			status, _, _ := r.ask(http.MethodPost, "/notes", "{}", headers...)
			done <- status
		}()
		return done
	}
	first := ask()
	testkit.WaitFor(t, func() bool { return len(list()) == 1 })
	_, err := r.approvals.DecideHeld(list()[0].ID, approvalapi.Answer{Approve: true, Scope: approvalapi.ScopePath}, true)
	check(t, err)
	if a, b := <-first, <-ask("X-Note: 1"); a != http.StatusOK || b != http.StatusOK {
		t.Errorf("got %d and %d", a, b)
	}
	for i, header := range []string{"X-Original-URL: /refunds", "X-Rewrite-Url: /refunds", "X-Amz-Copy-Source: /other/key", "Destination: /x"} {
		other := ask(header)
		testkit.WaitFor(t, func() bool { return len(list()) == 1 })
		_, err := r.approvals.DecideHeld(list()[0].ID, approvalapi.Answer{}, true)
		check(t, err)
		if status := <-other; status != http.StatusForbidden || up.count() != 2 {
			t.Errorf("%d, %s: %d, and %d requests left", i, header, status, up.count())
		}
	}
}

// TestApprovalShows: a person sees every header by which a server could act, each value on its own line, and not those
// that every client sends alike.
// Promise: exact-approvals
func TestApprovalShows(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "rules": [{"then": "approve"}]`)}})
	r.approvals.Wait = 1
	var up seen
	r.upstreams.https(up.echo())
	r.begin()
	for head, want := range map[string]string{
		"Accept: */*\r\nAccept-Language: *\r\nSec-Fetch-Mode: cors\r\nUser-Agent: x\r\nAccept-Encoding: gzip": "",
		"Accept: application/vnd.demo.delete+json":                                                            "Accept: application/vnd.demo.delete+json",
		"Accept: */*\r\nAccept: a/b":                                                                          "Accept: a/b",
		"Accept-Language: " + tokenName:                                                                       "Accept-Language: " + tokenName,
		"Sec-Fetch-Mode: navigate":                                                                            "Sec-Fetch-Mode: navigate",
		"X: a, b":                                                                                             "X: a, b",
		"X: a\r\nX: b":                                                                                        "X: a|X: b",
		"X: b\r\nX: a":                                                                                        "X: b|X: a",
	} {
		in, _ := r.raw(demoHost, "GET / HTTP/1.1\r\nHost: "+demoHost+"\r\n"+head+"\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		check(t, err)
		if code := refusal(t, resp).Code; code != "approval_timeout" {
			t.Errorf("%s: %s", head, code)
		}
		list := r.approvals.ListHeld()
		if got := strings.Join(list[len(list)-1].Headers, "|"); got != want {
			t.Errorf("%s: shown %q", head, got)
		}
		_, err = r.approvals.DecideHeld(list[len(list)-1].ID, approvalapi.Answer{Approve: false}, true)
		check(t, err)
	}
}

// TestApprovalShowsKey: a person sees that a request gets an idempotency key, held and in a plan; a key of code's own is
// shown as it is.
func TestApprovalShowsKey(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "idempotency": "Idempotency-Key", "rules": [{"then": "approve"}]`)}})
	r.approvals.Wait = 1
	r.begin()
	const added = "Idempotency-Key (CodeForge adds it): a new key"
	for i, headers := range [][]string{nil, {"Idempotency-Key: mine"}} {
		r.ask(http.MethodPost, "/refunds", `{}`, headers...)
		list := r.approvals.ListHeld()
		shown := strings.Join(list[len(list)-1].Headers, "|")
		if strings.Contains(shown, added) != (i == 0) || strings.Contains(shown, "mine") != (i == 1) {
			t.Errorf("shown %s", shown)
		}
	}
	end := r.beginDry(2)
	r.ask(http.MethodPost, "/refunds", `{}`)
	p, err := r.approvals.GetPlan(end().Plan.ID)
	check(t, err)
	if shown := strings.Join(p.Steps[0].Headers, "|"); !strings.Contains(shown, added) {
		t.Errorf("in a plan: %s", shown)
	}
}
