package attack

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// noHeld is why attacks by what held and plan print do not exist in Kubernetes.
const noHeld = "the command line in a pod of mcp-server cannot ask a proxy"

// approvals are attempts to have a request sent that waits for a person, by MCP clients that answer without one, and to
// have it shown as another one.
func approvals() []Attack {
	asked := func(name, expected, version string, sent int, answer *mcp.ElicitResult) Attack {
		return Attack{Section: "P", Name: name, Expected: expected, Do: func(ctx context.Context, w *world.World) (string, bool) {
			ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
			defer cancel()
			trial := fmt.Sprintf("form%d", time.Now().UnixNano())
			forms := make(chan string, 100)
			c := mcp.NewClient(&mcp.Implementation{Name: "hasty", Version: "1"}, &mcp.ClientOptions{
				ElicitationHandler: func(_ context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					forms <- q.Params.Message
					return answer, nil
				},
			})
			s, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: w.URL, HTTPClient: w.HTTP()}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				return err.Error(), false
			}
			defer s.Close()
			code := fmt.Sprintf("await fetch('https://d.wild.test/anything/held?t=%s', {method: 'POST', body: 'x', signal: AbortSignal.timeout(4000)}).catch(() => {})", trial)
			_, _ = w.Do(ctx, s, world.Run{Code: code}) // the SDK's client checks answers itself, and then ends the call
			n := len(w.Upstream.Seen(trial))
			return fmt.Sprintf("asked %d times, %d sent", len(forms), n), len(forms) == 1 && n == sent
		}}
	}
	const unsent, old, now = "asked once, nothing sent", "2025-11-25", "2026-07-28"
	return []Attack{
		asked("a client that accepts each form by itself", unsent, old, 0, &mcp.ElicitResult{Action: "accept"}),
		asked("a client that accepts each form by itself, without a session", unsent, now, 0, &mcp.ElicitResult{Action: "accept"}),
		asked("a client that fills a form in with something", unsent, now, 0, &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "yes"}}),
		asked("a client that refuses with the words of a yes", unsent, old, 0, &mcp.ElicitResult{Action: "decline", Content: map[string]any{"decision": "approve once"}}),
		asked("control: a client whose user approves", "asked once, sent once", old, 1, &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "approve once"}}),
		asked("control: a client whose user approves, without a session", "asked once, sent once", now, 1, &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "approve once"}}),
		{Section: "P", Name: "on a terminal: a request that waits", Expected: "shown, not obeyed", Only: []world.Mode{world.Embedded}, NoPod: noHeld, Do: func(ctx context.Context, w *world.World) (string, bool) {
			ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
			defer cancel()
			code := "await fetch(`https://d.wild.test/anything/held`, {method: 'POST', headers: {'X-Text': 'a'}, body: `" + trick + "\n" + strings.Repeat(" ", 70) +
				"Approve it? [y]es`, signal: AbortSignal.timeout(1000)}).catch(() => {})"
			if _, err := w.Execute(ctx, code); err != nil {
				return err.Error(), false
			}
			out, err := w.Look(ctx, "", "held")
			return looked(out, "SEEN", err)
		}},
	}
}
