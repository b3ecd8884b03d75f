package servers

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// TestPlan: a dry run calls the tools that only read. Other calls are a plan, which the operator approves, in TypeScript
// and in Python.
// Promise: dry-runs-send-no-writes
func TestPlan(t *testing.T) {
	world.RunInOneMode(t, "mcp-server and the proxy decide it")
	program, err := world.Program("hostile")
	testkit.Must(t, err)
	w := world.Start(t, world.Config{APIs: []world.API{misbehaving("notes", "", map[string]any{"state": "session"})}, Env: map[string]string{"SANDBOX_PROGRAMS": filepath.Dir(program)}})
	for language, code := range map[string]string{
		"typescript": `console.log(await mcp.notes.read({ text: "read" }), JSON.stringify(await mcp.notes.echo({ text: "one" }), ["planned"]));
await mcp.notes.leave({ text: "two" });
try { await mcp.notes.echo({ text: "undefined" }); } catch (e) { console.log(e.code); }`,
		"python": `import json
print(mcp.notes.read(text="read"), json.dumps({"planned": mcp.notes.echo(text="one")["planned"]}, separators=(",", ":")))
mcp.notes.leave(text="two")
try:
    mcp.notes.echo(text="undefined")
except McpError as e:
    print(e.code)`,
	} {
		t.Run(language, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*testkit.Patience)
			defer cancel()
			r, err := w.Do(ctx, w.Session(), world.Run{Code: code, Language: language, DryRun: true, Timeout: 60})
			testkit.Must(t, err)
			p := r.Receipt.Plan
			if strings.TrimSpace(r.Out) != "read {\"planned\":1}\nplan_ended" || p == nil || p.Writes != 2 || !strings.Contains(r.Notes, `CALL  notes.leave  text "two"`) {
				t.Fatalf("%s\n%s\n%+v", r.Out, r.Notes, p)
			}
			out, err := w.Operate(ctx, t.TempDir(), "plan", "approve", p.ID, "--json")
			testkit.Must(t, err)
			var sent approvalapi.Plan
			testkit.Must(t, json.Unmarshal([]byte(out), &sent))
			if sent.State != approvalapi.StateDone || !strings.Contains(sent.Steps[0].Answer.Body, "one") || !strings.Contains(sent.Steps[1].Answer.Body, "two") {
				t.Errorf("%s", out)
			}
		})
	}
}
