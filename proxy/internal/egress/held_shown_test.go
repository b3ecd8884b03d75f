package egress_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// TestApprovedKey: an approval for a request to which CodeForge adds a key is none for one whose key code has chosen.
// Promise: repeated-writes
func TestApprovedKey(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{
		"demo": demoAPI(`, "idempotency": "Idempotency-Key", "rules": [{"then": "approve"}]`),
	}})
	r.approvals.Wait = 1
	var keys []string
	r.upstreams.https(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		keys = append(keys, q.Header.Get("Idempotency-Key")+"|"+q.Header.Get("Accept-Encoding"))
	}))
	r.begin()
	var shown []string
	send := func(key string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+demoHost+"/refunds", strings.NewReader(`{"amount":5}`))
		check(t, err)
		req.Header.Set("Content-Type", "application/json")
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		resp, err := r.client(false).Do(req)
		check(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		for _, h := range r.approvals.ListHeld() {
			shown = append(shown, strings.Join(h.Headers, "\n"))
		}
	}
	send("")
	for _, held := range r.approvals.ListHeld() {
		_, err := r.approvals.DecideHeld(held.ID, approvalapi.Answer{Approve: true}, true)
		check(t, err)
	}
	send("(a key that CodeForge adds)")
	if len(keys) > 0 {
		t.Errorf("approved\n%s\nand the upstream got %q", shown[0], keys)
	}
}

// TestApprovalShowsBytes: a header that cannot be shown as it is is not approved.
// Promise: exact-approvals
func TestApprovalShowsBytes(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "rules": [{"then": "approve"}]`)}})
	r.approvals.Wait = 1
	r.upstreams.https(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r.begin()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+demoHost+"/refunds", strings.NewReader(`{"amount":5}`))
	check(t, err)
	req.Header.Set("X-To", "a\xb2\xff")
	resp, err := r.client(false).Do(req)
	check(t, err)
	defer resp.Body.Close()
	if code := refusal(t, resp).Code; code == "approval_timeout" {
		t.Errorf("it waits for a person who sees %q", r.approvals.ListHeld()[0].Headers)
	}
}
