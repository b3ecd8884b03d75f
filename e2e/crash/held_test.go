package crash

import (
	"os"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// TestHeldRestart: a proxy that is killed while a request waits sends nothing of it afterwards, and knows of no approval
// for it; what was spent of a limit before that is not forgotten.
// Promise: exact-approvals
func TestHeldRestart(t *testing.T) {
	s := start(t)
	spend := `const r = await fetch("https://d.wild.test/anything/limited?t=MARK", {method: "POST", body: '{"amount":60}',
  headers: {"Content-Type": "application/json"}}); console.log(r.status);`
	pay := func(mark string) string {
		return strings.TrimSpace(await(t, mark, s.call(t.Context(), strings.ReplaceAll(spend, "MARK", mark), "ruled")).Out)
	}
	if got := pay("before"); got != "200" {
		t.Fatalf("within the limit: %s", got)
	}
	caller := s.call(t.Context(), `await fetch("https://d.wild.test/anything/held/1?t=waits", {method: "POST", body: "x"}).catch(() => {});`, "ruled")
	var held []approvalapi.HeldRequest
	testkit.WaitFor(t, func() bool {
		held, _ = s.control.ListHeld(t.Context())
		_, err := os.Stat(s.at("tokens", "limits")) // within a second
		return len(held) == 1 && held[0].Waiting && err == nil
	})
	s.kill(proxy)
	s.start(proxy)
	if _, err := s.control.DecideHeld(t.Context(), held[0].ID, approvalapi.Answer{Approve: true}); err == nil {
		t.Error("the approval of a request that nobody knows was taken")
	}
	await(t, "who waited", caller)
	if n := len(s.upstream.Seen("waits")); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	if got := pay("after"); got != "429" {
		t.Errorf("beyond the limit, after the restart: %s", got)
	}
	if n := len(s.upstream.Seen("before")) + len(s.upstream.Seen("after")); n != 1 {
		t.Errorf("%d payments were sent", n)
	}
}
