package egress_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
)

// newValue is a credential that an API gets while a request waits.
const newValue = "value-of-an-api-added-later"

// TestApprovalKept: a request goes on waiting if the configuration of another API changes. It leaves under the new
// configuration, whose credentials the proxy scrubs from the answer. A change of an API of its host ends it.
// Promise: exact-approvals
func TestApprovalKept(t *testing.T) {
	const rules = `, "rules": [{"methods": ["POST"], "then": "approve"}, {"then": "allow"}]`
	other := `{"description": "x", "domains": ["other.test"], "credentials": {"OTHER_TOKEN": "` + newValue + `"}}`
	for name, c := range map[string]struct {
		api, text string
		code      string // of the refusal, or empty
	}{
		"an API is added":              {"other", other, ""},
		"an API gets another key":      {"beside", strings.Replace(other, "other.test", "beside.test", 1), ""},
		"the API's description":        {"demo", strings.Replace(demoAPI(rules), "demo", "new", 1), "approval_stale"},
		"the API's key":                {"demo", strings.Replace(demoAPI(rules), secretValue, newValue, 1), "approval_stale"},
		"another API gets the host":    {"other", strings.Replace(other, "other.test", demoHost, 1), "approval_stale"},
		"another API refuses the host": {"other", `{"description": "x", "domains": ["` + demoHost + `"], "rules": [{"methods": ["POST"], "then": "refuse"}]}`, "approval_stale"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(rules), "beside": `{"description": "x", "domains": ["beside.test"],
				"credentials": {"BESIDE_TOKEN": "value-before-the-change"}}`}})
			var up seen
			r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				up.note(q)
				_, _ = io.WriteString(w, "the key is "+newValue)
			}))
			r.begin()
			ask := func() <-chan string {
				done := make(chan string, 1)
				go func() { _, _, text := r.ask(http.MethodPost, "/refunds", `{}`); done <- text }()
				return done
			}
			done := ask()
			testkit.WaitFor(t, func() bool { return len(r.approvals.ListHeld()) == 1 })
			h := r.approvals.ListHeld()[0]
			r.writeAPI(c.api, c.text)
			r.reloader.Load()
			_, err := r.approvals.DecideHeld(h.ID, approvalapi.Answer{Approve: true, Scope: approvalapi.ScopePath}, true)
			if text := <-done; c.code != "" {
				if !strings.Contains(text, c.code) || err == nil || up.count() != 0 {
					t.Errorf("answered %s, decided: %v", text, err)
				}
				return
			} else if err != nil || !strings.Contains(text, "the key is OTHER_TOKEN") || up.last(t).Header.Get("Authorization") != "Bearer "+secretValue {
				t.Fatalf("answered %s, decided: %v", text, err)
			}
			// The approval of the run also goes on, and ends with the API.
			r.writeAPI("third", `{"description": "x", "domains": ["third.test"]}`)
			r.reloader.Load()
			if text := <-ask(); up.count() != 2 {
				t.Errorf("after one more change: %s", text)
			}
			r.writeAPI("demo", strings.Replace(demoAPI(rules), "demo", "new", 1))
			r.reloader.Load()
			done = ask()
			testkit.WaitFor(t, func() bool { return len(r.approvals.ListHeld()) == 1 })
			_, err = r.approvals.DecideHeld(r.approvals.ListHeld()[0].ID, approvalapi.Answer{}, true)
			check(t, err)
			if text := <-done; up.count() != 2 {
				t.Errorf("under another rule: %s", text)
			}
		})
	}
}

// TestApprovalReturned: if no byte of an approved request left, its approval lets the same request pass once more, and
// only once. If a part left, the approval is used.
// Promise: exact-approvals
func TestApprovalReturned(t *testing.T) {
	for name, c := range map[string]struct {
		full     bool // the ledger
		down     bool // the upstream refuses connections
		breaks   bool // the upstream ends the connection after the request's head
		returned bool
	}{
		"the ledger is full":   {full: true, returned: true},
		"no connection":        {down: true, returned: true},
		"the connection broke": {breaks: true},
	} {
		t.Run(name, func(t *testing.T) {
			var full, breaks atomic.Bool
			full.Store(c.full)
			breaks.Store(c.breaks)
			r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "rules": [{"then": "approve"}]`)},
				sending: func(ledger.Sending) error {
					if full.Load() {
						return errors.New("no space left")
					}
					return nil
				}})
			var up seen
			r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if breaks.Load() {
					panic(http.ErrAbortHandler)
				}
				up.echo().ServeHTTP(w, q)
			}))
			at := r.upstreams.ports[443]
			if c.down {
				r.upstreams.lead(443, "127.0.0.1:1")
			}
			r.begin()
			ask := func() <-chan int {
				done := make(chan int, 1)
				go func() { status, _, _ := r.ask(http.MethodPost, "/refunds", `{}`); done <- status }()
				return done
			}
			done := ask()
			testkit.WaitFor(t, func() bool { return len(r.approvals.ListHeld()) == 1 })
			_, err := r.approvals.DecideHeld(r.approvals.ListHeld()[0].ID, approvalapi.Answer{Approve: true}, true)
			check(t, err)
			if status := <-done; status < 500 || up.count() != 0 {
				t.Fatalf("status %d, sent %d", status, up.count())
			}
			full.Store(false)
			breaks.Store(false)
			r.upstreams.lead(443, at)
			if list := r.approvals.ListHeld(); (len(list) == 1 && list[0].Approved && !list[0].Waiting) != c.returned {
				t.Errorf("held: %+v", list)
			}
			if c.returned {
				r.approvals.Wait = 1
				if status := <-ask(); status != http.StatusOK {
					t.Errorf("with the returned approval: %d", status)
				}
			}
			r.approvals.Wait = 1
			if status := <-ask(); status != http.StatusForbidden {
				t.Errorf("once more: %d", status)
			}
		})
	}
}
