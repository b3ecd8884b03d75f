package servers

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestHeldCall: a call of a tool of Notion's own server that a rule holds gets to the server if the operator approves it
// at the command line, or the user in the client, as it was shown and once; refused, it does not.
// Promise: exact-approvals
func TestHeldCall(t *testing.T) {
	world.RunInOneMode(t, "mcp-server and the proxy decide it")
	notion := mustRead(t, "notion").api
	notion.Config["rules"] = []any{
		map[string]any{"tools": []string{"API-post-search"}, "then": "approve", "by": "any"},
		map[string]any{"tools": []string{"API-get-*"}, "then": "allow"},
	}
	w := world.Start(t, world.Config{Registry: true, APIs: []world.API{notion}})
	w.MustExecute(t, `await mcp.notion["API-get-self"]({});`) // installed, before anybody waits
	operate := func(args ...string) string {
		out, err := w.Operate(t.Context(), t.TempDir(), args...)
		if err != nil {
			t.Errorf("codeforge %v: %v\n%s", args, err, out)
		}
		return out
	}
	var asked atomic.Int32
	answers := func(decision string) *mcp.ClientOptions {
		return &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked.Add(1)
			if !strings.Contains(q.Params.Message, "CALL notion/API-post-search") || !strings.Contains(q.Params.Message, "sought") {
				t.Errorf("the user was shown %q", q.Params.Message)
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": decision}}, nil
		}}
	}
	for _, row := range []struct {
		name, era string
		client    *mcp.ClientOptions // nil: it cannot ask
		operator  string
		want      string
	}{
		{"approved at the command line", "2025-11-25", nil, "approve", "answered"},
		{"approved at the command line, without a session", "2026-07-28", nil, "approve", "answered"},
		{"refused at the command line", "2025-11-25", nil, "refuse", "approval_denied"},
		{"approved in the client", "2025-11-25", answers("approve once"), "", "answered"},
		{"approved in the client, without a session", "2026-07-28", answers("approve once"), "", "answered"},
		{"refused in the client", "2026-07-28", answers("refuse"), "", "approval_denied"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, err := w.ConnectAs(t.Context(), row.client, row.era)
			testkit.Must(t, err)
			defer s.Close()
			asked.Store(0)
			sought := fmt.Sprintf("sought%d", time.Now().UnixNano())
			done := make(chan world.Result, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				r, err := w.Do(ctx, s, world.Run{Timeout: 60, Code: fmt.Sprintf(
					`console.log(await mcp.notion["API-post-search"]({ query: %q, page_size: 7 }).then(() => "answered", (e) => e.code));`, sought)})
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
			if row.operator != "" {
				id := w.FirstHeld(t)
				if list := operate("held"); !strings.Contains(list, "CALL") || !strings.Contains(list, "notion") || !strings.Contains(list, sought) {
					t.Errorf("codeforge held shows\n%s", list)
				}
				if n := len(w.Upstream.Seen(sought)); n != 0 {
					t.Errorf("%d requests of the server before the answer", n)
				}
				operate(row.operator, id)
			}
			r := <-done
			if got := strings.TrimSpace(r.Out); got != row.want {
				t.Errorf("got %q %s, want %s", got, r.Notes, row.want)
			}
			if (row.client != nil) != (asked.Load() == 1) {
				t.Errorf("the user was asked %d times", asked.Load())
			}
			seen := w.Upstream.Seen(sought)
			if (row.want == "answered") != (len(seen) == 1) {
				t.Fatalf("the server sent %d requests", len(seen))
			}
			if len(seen) == 1 && (seen[0].Method != "POST" || !strings.Contains(seen[0].Target, "/search") || !strings.Contains(string(seen[0].Body), `"page_size":7`)) {
				t.Errorf("the server sent %s %s %s", seen[0].Method, seen[0].Target, seen[0].Body)
			}
		})
	}
}

// TestHeldRequest: a request of Notion's own server that a rule holds belongs to the run whose call has caused it. The
// run's user is asked, the time limits of the run and of the call stop meanwhile, and an approval for the run is for no
// other one.
// Promise: server-requests-belong-to-one-run
func TestHeldRequest(t *testing.T) {
	world.RunInOneMode(t, "mcp-server and the proxy decide it")
	notion := mustRead(t, "notion").api
	notion.Config["rules"] = []any{
		map[string]any{"methods": []string{"POST"}, "then": "approve", "by": "any"}, map[string]any{"then": "allow"},
	}
	notion.Config["mcp"].(map[string]any)["timeout"] = 8
	w := world.Start(t, world.Config{Registry: true, APIs: []world.API{notion}})
	w.MustExecute(t, `await mcp.notion["API-get-self"]({});`) // installed, before anybody waits
	var asked atomic.Int32
	s, err := w.ConnectAs(t.Context(), &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked.Add(1)
			if !strings.HasPrefix(q.Params.Message, "The MCP server notion, called by the model's code,") {
				t.Errorf("the user was shown %q", q.Params.Message)
			}
			time.Sleep(15 * time.Second) // longer than the run and the call may take
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "approve all that this rule asks about in this run"}}, nil
		},
	}, "2025-11-25")
	testkit.Must(t, err)
	defer s.Close()
	for run := range 2 {
		r, err := w.Do(t.Context(), s, world.Run{Timeout: 12, Code: `for (const query of ["a", "b"]) {
			console.log(await mcp.notion["API-post-search"]({ query }).then(() => "answered", (e) => e.code));
		}`})
		if err != nil || r.Out != "answered\nanswered\n" {
			t.Errorf("%v %q %s", err, r.Out, r.Notes)
		}
		if int(asked.Load()) != run+1 {
			t.Errorf("after run %d the user was asked %d times", run, asked.Load())
		}
	}
}
