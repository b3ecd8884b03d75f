package egress_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/budget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/shareddb"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestLimits: what is beyond a limit of an API is refused with the time to wait, and not sent; what cannot be added up is
// refused; and what was refused, or reached no server, does not count.
// Promise: limits
func TestLimits(t *testing.T) {
	const js = "application/json"
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "limits": {"calls": "9/h", "writes": "6/h", "sum": {"path": "/refunds", "field": "amount", "max": "100.5/d"}}`)}})
	var up seen
	r.upstreams.https(up.echo())
	r.begin()
	for i, row := range []struct{ line, body, code string }{
		{"POST /refunds", `{"amount":60}`, ""},
		{"POST /refunds", `{"amount":60}`, "limit_reached"},
		{"POST /Refunds", `{"amount":60}`, "limit_reached"},
		{"POST /refunds.json", `{"amount":60}`, "limit_reached"},
		{"POST /refunds", `{"amount":-60}`, "rule_unreadable"},
		{"POST /refunds", `{"amount":1e9}`, "rule_unreadable"},
		{"POST /refunds", `{"amount":1,"amount":99}`, "rule_unreadable"},
		{"POST /refunds", `{"amount":0.0000001}`, "rule_unreadable"},
		{"POST /refunds", `{}`, "rule_unreadable"},
		{"POST /x/..%2frefunds", `{"amount":60}`, "ambiguous_request"},
		{"POST /refunds", `{"amount":1000}`, "limit_reached"},
		{"POST /refunds", `{"amount":40.5}`, ""},
		{"POST /refunds", `{"amount":0.5}`, "limit_reached"},
		{"POST /other", `{"amount":60}`, ""},
		{"PUT /other", `{}`, ""}, {"DELETE /other", ``, ""}, {"POST /other", `[]`, ""},
		{"POST /other", `{}`, "limit_reached"},
		{"GET /other", ``, ""}, {"GET /other", ``, ""}, {"HEAD /other", ``, ""},
		{"GET /other", ``, "limit_reached"},
	} {
		method, path, _ := strings.Cut(row.line, " ")
		before := up.count()
		in, _ := r.raw(demoHost, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", method, path, demoHost, js, len(row.body), row.body))
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		check(t, err)
		if row.code == "" {
			if resp.StatusCode != 200 || up.count() != before+1 {
				t.Errorf("%d, %s %s: %d", i, row.line, row.body, resp.StatusCode)
			}
			continue
		}
		got := refusal(t, resp)
		if after := resp.Header.Get("Retry-After"); got.Code != row.code || up.count() != before || row.code == "limit_reached" && (resp.StatusCode != 429 || (after == "") != strings.Contains(row.body, "1000")) {
			t.Errorf("%d, %s %s: %d %+v, Retry-After %q", i, row.line, row.body, resp.StatusCode, got, after)
		}
	}
}

// brokenCounter reserves once and fails afterwards. It counts what comes back.
type brokenCounter struct {
	budget.Counter
	asked, returned atomic.Int32
}

func (b *brokenCounter) Reserve(ctx context.Context, by shareddb.Run, needs []budget.Need, force bool) (back func(), wait time.Duration, ok bool, err error) {
	if b.asked.Add(1) > 1 {
		return nil, 0, false, errors.New("the database is away")
	}
	giveBack, wait, ok, err := b.Counter.Reserve(ctx, by, needs, force)
	return func() { b.returned.Add(1); giveBack() }, wait, ok, err
}

// TestLimitsReturnOnce: a request returns its units before it reserves them again after the approval. If that fails, it
// does not leave, and returns them no second time: they would be those of other requests.
// Promise: limits, several-proxies
func TestLimitsReturnOnce(t *testing.T) {
	counter := &brokenCounter{}
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(sharedAPI)}, limits: counter})
	var up seen
	r.upstreams.https(up.echo())
	r.begin()
	done := make(chan string, 1)
	go func() {
		status, _, text := r.ask(http.MethodPost, "/ask", "{}")
		done <- fmt.Sprint(status, " ", text)
	}()
	list := r.approvals.ListHeld
	testkit.WaitFor(t, func() bool { return len(list()) == 1 })
	_, err := r.approvals.DecideHeld(list()[0].ID, approvalapi.Answer{Approve: true}, true)
	check(t, err)
	if text := <-done; !strings.HasPrefix(text, "503 ") || !strings.Contains(text, "state_unavailable") || up.count() != 0 {
		t.Errorf("%s; %d requests left", text, up.count())
	}
	// The approval comes back after the units.
	testkit.WaitFor(t, func() bool { return len(list()) == 1 && list()[0].Approved })
	if n := counter.returned.Load(); n != 1 {
		t.Errorf("the units came back %d times", n)
	}
}

// TestLimitsOfAnother: a run that may not learn of other APIs is told nothing of one whose limits and rules hold at its host
// too: neither in answers nor in its receipt.
// Promise: tenant-state
func TestLimitsOfAnother(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{
		"mine": demoAPI(``),
		"acme-payroll": strings.Replace(demoAPI(`, "restricted_methods": ["DELETE"], "limits": {"writes": "1/h", "sum": {"path": "/pay", "field": "acme_bonus", "max": "100000/d"}},
			"rules": [{"path": "/acme_secret/**", "then": "refuse"}, {"path": "/acme_ask/**", "then": "approve", "by": "any"}, {"path": "/**", "then": "allow"}]`),
			`"`+tokenName+`": "`+secretValue+`"`, `"ACME_TOKEN": "sk_live_52other0123456789"`, 1),
	}})
	r.approvals.Wait = 50 * time.Millisecond
	var up seen
	r.upstreams.https(up.echo())
	_, err := r.book.BeginLease(0, proxyapi.Registration{Generation: 1, Run: "tenant-b", APIs: []string{"mine"}, Closed: true,
		Deadline: time.Now().Add(10 * testkit.Patience)})
	check(t, err)
	for _, row := range []struct{ line, body, code string }{
		{"DELETE /x", `{}`, "method_restricted"}, {"POST /acme_secret/x", `{}`, "rule_refused"},
		{"POST /pay", `{}`, "rule_unreadable"}, {"POST /acme_ask/x", `{}`, "approval_timeout"}, {"POST /x", `{}`, ""}, {"POST /x", `{}`, "limit_reached"},
	} {
		in, _ := r.raw(demoHost, fmt.Sprintf("%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			row.line, demoHost, len(row.body), row.body))
		resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodPost})
		check(t, err)
		text := body(t, resp)
		if strings.Contains(text, "acme") || !strings.Contains(text, row.code) || row.code == "" && resp.StatusCode != 200 {
			t.Errorf("%s %s: %d %s", row.line, row.body, resp.StatusCode, text)
		}
	}
	for _, h := range r.approvals.ListHeld() {
		if !h.Operator {
			t.Errorf("the tenant is asked: %+v", h)
		}
	}
	rec, err := r.book.EndLease(0, 1)
	check(t, err)
	for _, h := range rec.Hints {
		if strings.Contains(h.Text+h.Person, "acme") {
			t.Errorf("a hint of the receipt: %+v", h)
		}
	}
}

// TestLimitParallel: requests in parallel do not spend a limit twice, also where they announce their bodies first; one
// that reaches no server is given back.
// Promise: limits
func TestLimitParallel(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "limits": {"writes": "5/h"}`)}})
	var up seen
	r.begin()
	post := func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+demoHost+"/", strings.NewReader("x"))
		check(t, err)
		req.Header.Set("Expect", "100-continue")
		resp, err := r.client(false).Do(req)
		if err == nil {
			resp.Body.Close()
		}
	}
	for range 10 {
		post() // there is no server yet
	}
	r.upstreams.https(up.echo())
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(post)
	}
	wg.Wait()
	if up.count() != 5 {
		t.Errorf("%d of 5 were sent", up.count())
	}
}

// TestLimitApproved: beyond a limit a person may decide, where the API says so.
// Promise: limits
func TestLimitApproved(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "limits": {"writes": "1/h", "over": "approve"}`)}})
	var up seen
	r.upstreams.https(up.echo())
	r.begin()
	for i, approve := range []bool{true, true, false} {
		done := make(chan int, 1)
		go func() {
			resp, err := r.client(false).Post("https://"+demoHost+"/", "text/plain", strings.NewReader("x"))
			check(t, err)
			resp.Body.Close()
			done <- resp.StatusCode
		}()
		if i > 0 {
			testkit.WaitFor(t, func() bool { return len(r.approvals.ListHeld()) == 1 })
			h := r.approvals.ListHeld()[0]
			if h.Rule != "approve beyond writes 1/h" || h.Body != "x" {
				t.Errorf("%+v", h)
			}
			_, err := r.approvals.DecideHeld(h.ID, approvalapi.Answer{Approve: approve}, true)
			check(t, err)
		}
		if status := <-done; (status == 200) != approve {
			t.Errorf("%d: %d", i, status)
		}
	}
	if up.count() != 2 {
		t.Errorf("%d were sent", up.count())
	}
}

// TestLimitBeforeApproval: a person is asked about no request that a limit then refuses, and a denied one spends nothing.
// Promise: limits
func TestLimitBeforeApproval(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "limits": {"writes": "1/h"}, "rules": [{"path": "/**", "then": "approve"}]`)}})
	r.approvals.Wait = 5 * time.Second
	var up seen
	r.upstreams.https(up.echo())
	r.begin()
	for i, row := range []struct {
		asked, approve bool
		status         int
	}{{true, false, 403}, {true, true, 200}, {false, false, 429}} {
		done := make(chan int, 1)
		go func() {
			resp, err := r.client(false).Post("https://"+demoHost+"/", "text/plain", strings.NewReader(fmt.Sprint(i)))
			check(t, err)
			resp.Body.Close()
			done <- resp.StatusCode
		}()
		if row.asked {
			testkit.WaitFor(t, func() bool { return len(r.approvals.ListHeld()) == 1 })
			_, err := r.approvals.DecideHeld(r.approvals.ListHeld()[0].ID, approvalapi.Answer{Approve: row.approve}, true)
			check(t, err)
		}
		if status := <-done; status != row.status {
			t.Errorf("%d: %d", i, status)
		}
	}
	if up.count() != 1 {
		t.Errorf("%d were sent", up.count())
	}
}

// TestLimitCountsWhenSent: a request that waits for a person for longer than the period of its limit counts when it
// leaves, so requests that were asked about earlier do not leave in one burst.
// Promise: limits
func TestLimitCountsWhenSent(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "limits": {"writes": "1/m"}, "rules": [{"path": "/**", "then": "approve"}]`)}})
	r.approvals.Wait = 5 * time.Second
	var late atomic.Int64 // minutes
	r.budget.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load()) * time.Minute) }
	var up seen
	r.upstreams.https(up.echo())
	r.begin()
	done := make(chan int, 1)
	post := func() {
		resp, err := r.client(false).Post("https://"+demoHost+"/", "text/plain", strings.NewReader("x"))
		check(t, err)
		resp.Body.Close()
		done <- resp.StatusCode
	}
	go post()
	testkit.WaitFor(t, func() bool { return len(r.approvals.ListHeld()) == 1 })
	late.Store(5)
	_, err := r.approvals.DecideHeld(r.approvals.ListHeld()[0].ID, approvalapi.Answer{Approve: true}, true)
	check(t, err)
	if status := <-done; status != 200 {
		t.Fatalf("the approved request: %d", status)
	}
	if post(); <-done != 429 {
		t.Error("the request that left just now does not count")
	}
	// Two requests wait for longer than the period, and a person approves both at once. The second approval stays valid.
	for range 2 {
		late.Add(5)
		go post()
		held := int(late.Load()/5) - 1
		testkit.WaitFor(t, func() bool { return len(r.approvals.ListHeld()) == held })
	}
	for _, h := range r.approvals.ListHeld() {
		_, err := r.approvals.DecideHeld(h.ID, approvalapi.Answer{Approve: true}, true)
		check(t, err)
	}
	if one, two := <-done, <-done; one+two != 200+429 || up.count() != 2 || len(r.approvals.ListHeld()) != 1 {
		t.Errorf("approved at once: %d and %d, %d sent in all, %d approvals left", one, two, up.count(), len(r.approvals.ListHeld()))
	}
}

// TestLimitBrokenBody: a POST whose head reaches the server, with the credential in it, counts, and the receipt says that
// it left: here the body is an empty multipart one of unknown length, at which the proxy breaks off.
// Promise: limits
func TestLimitBrokenBody(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream h2=%v", h2), func(t *testing.T) {
			r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "limits": {"writes": "1/h"}`)}})
			var acted atomic.Int32
			serve := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.Method == http.MethodPost && req.Header.Get("Authorization") == "Bearer "+secretValue {
					acted.Add(1) // on the path, as a route without a body does
				}
			})
			if h2 {
				r.upstreams.http2(serve)
			} else {
				r.upstreams.https(serve)
			}
			end := r.begin()
			for range 5 {
				in, _ := r.raw(demoHost, "POST /things/5/cancel HTTP/1.1\r\nHost: "+demoHost+"\r\nAuthorization: Bearer "+tokenName+
					"\r\nContent-Type: multipart/form-data; boundary=x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
				resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodPost})
				check(t, err)
				body(t, resp)
				time.Sleep(50 * time.Millisecond) // for what arrives nevertheless
			}
			if acted.Load() > 1 {
				t.Errorf("writes 1/h: the server acted %d times", acted.Load())
			}
			if first := end().Exchanges[0]; acted.Load() > 0 && (len(first.Swapped) == 0 || first.HeadUp == 0) {
				t.Errorf("the receipt does not tell that the credential left: %+v", first)
			}
		})
	}
}

// TestLimitAnsweredFirst: a request counts, and is on record as sent, when its answer or the client's end comes before the
// proxy is back from sending its head.
// Promise: limits
func TestLimitAnsweredFirst(t *testing.T) {
	for _, name := range []string{"HTTP/2, the client is gone", "HTTP/1, in the middle of a long head"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "limits": {"calls": "1/h"}`)}})
			r.upstreams.late = 200 * time.Millisecond
			ctx, gone := context.WithCancel(t.Context())
			defer gone()
			long := 0
			if strings.HasPrefix(name, "HTTP/1") {
				long = 20 << 10
				r.upstreams.raw(func(c net.Conn) {
					_, _ = c.Read(make([]byte, 1<<10))
					_, _ = io.WriteString(c, "HTTP/1.1 431 Too Large\r\nContent-Length: 0\r\n\r\n")
					_, _ = io.Copy(io.Discard, c)
				})
			} else {
				r.upstreams.http2(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					gone()
				}))
			}
			end := r.begin()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+demoHost+"/", strings.NewReader("x"))
			check(t, err)
			req.Header.Set("Authorization", "Bearer "+tokenName)
			req.Header.Set("X-Long", strings.Repeat("a", long))
			if resp, err := r.client(false).Do(req); err == nil {
				resp.Body.Close()
			}
			eventually(t, func() bool { return r.handler.InFlight() == 0 })
			if status, _, text := r.ask(http.MethodGet, "/", ""); status != http.StatusTooManyRequests {
				t.Errorf("calls 1/h, the second one: %d %s", status, text)
			}
			if first := end().Exchanges[0]; len(first.Swapped) == 0 || first.HeadUp == 0 {
				t.Errorf("the receipt says that nothing left: %+v", first)
			}
		})
	}
}

// TestLimitRepeated: what was sent before a 401 is on record and counts, whatever becomes of the repetition.
// Promise: limits
func TestLimitRepeated(t *testing.T) {
	var r *rig
	s := &tokenServer{}
	var arrived atomic.Int32
	s.api = func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.Header.Get("Authorization"), "Bearer minted-canary") {
			arrived.Add(1)
		}
		r.upstreams.mu.Lock()
		r.upstreams.addrs[demoHost] = []netip.Addr{} // the name does not resolve any more, for the repetition
		r.upstreams.mu.Unlock()
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusUnauthorized)
	}
	r = newRig(t, setup{apis: map[string]string{"demo": mintedAPI(`, "limits": {"calls": "1/h"}`)}})
	r.upstreams.https(s)
	end := r.begin()
	for range 2 {
		body(t, sendMinted(t, r, http.MethodGet, ""))
		r.upstreams.mu.Lock()
		delete(r.upstreams.addrs, demoHost)
		r.upstreams.mu.Unlock()
	}
	if n := arrived.Load(); n != 1 {
		t.Errorf("calls 1/h, and the server was called %d times", n)
	}
	if first := end().Exchanges[0]; first.Code != "upstream_unresolved" || len(first.Swapped) == 0 {
		t.Errorf("the receipt says that nothing was sent: %+v", first)
	}
}
