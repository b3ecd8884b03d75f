package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestOutputBeforeTimeout: code prints until its timeout. The tool's answer, get_run of a background run and the
// history have its output. This includes half a line, text without a flush, and stderr.
func TestOutputBeforeTimeout(t *testing.T) {
	world.RunInOneMode(t, "the runners, sandboxd and mcp-server decide it")
	w := world.Start(t, world.Config{})
	const lines = 500
	want := ""
	for i := range lines {
		want += fmt.Sprintf("row %d\n", i)
	}
	want += "half a line"
	for _, row := range []struct{ language, name, print, end string }{
		{"typescript", "asleep", tsPrints, "await new Promise((r) => setTimeout(r, 60000));"},
		{"typescript", "busy", tsPrints, "for (;;);"},
		{"typescript", "in a request", tsPrints, `await fetch("https://httpbin.test/delay/10", { headers: { Authorization: "Bearer HTTPBIN_TOKEN" } });`},
		{"python", "asleep", pyPrints, "import time; time.sleep(60)"},
		{"python", "busy", pyPrints, "while True: pass"},
		{"python", "in a request", pyPrints, `import urllib.request; urllib.request.urlopen(urllib.request.Request("https://httpbin.test/delay/10", headers={"Authorization": "Bearer HTTPBIN_TOKEN"}))`},
	} {
		t.Run(row.language+" "+row.name, func(t *testing.T) {
			if row.name != "busy" {
				t.Parallel()
			}
			check := func(where, out, notes string) {
				t.Helper()
				all := out + notes // a failed run's stderr comes first
				if !strings.Contains(out, want) || !strings.Contains(all, "warned") || !strings.Contains(all, "The run was ended after 4s, its timeout.") {
					t.Errorf("%s: %d bytes ending in %q, notes %q", where, len(out), out[max(0, len(out)-30):], notes)
				}
			}
			code := row.print + "\n" + row.end
			res, err := w.Do(within(t, 60), w.Session(), world.Run{Code: code, Language: row.language, Timeout: 4})
			testkit.Must(t, err)
			check("the answer", res.Out, res.Notes)
			shown := ""
			for end := time.Now().Add(testkit.Patience); !strings.Contains(shown, "half a line") && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				shown = operate(t, w, "runs", "show", res.Receipt.Run) // a run is stored after its answer
			}
			for _, text := range []string{"row 0\n", fmt.Sprintf("row %d\n", lines-1), "half a line", "warned"} {
				if !strings.Contains(shown, text) {
					t.Errorf("the history lacks %q:\n%s", text, shown)
				}
			}
			call := func(tool string, args map[string]any) (out, notes string) {
				t.Helper()
				res, err := w.Session().CallTool(within(t, 60), &mcp.CallToolParams{Name: tool, Arguments: args})
				testkit.Must(t, err)
				for i, c := range res.Content {
					if text := c.(*mcp.TextContent).Text; i == 0 {
						out = text
					} else {
						notes += text
					}
				}
				return out, notes
			}
			out, notes := call("execute_code", map[string]any{"code": code, "language": row.language, "timeout": 4, "background": true})
			_, id, _ := strings.Cut(notes, "Run ")
			id, _, _ = strings.Cut(id, ":")
			for i := 0; i < 20 && !strings.Contains(notes, "has ended"); i++ {
				more, last := call("get_run", map[string]any{"id": id, "wait": 2})
				out, notes = out+more, notes+last
			}
			check("get_run", out, notes)
		})
	}
}

const (
	tsPrints = "console.error('warned');\nfor (let i = 0; i < 500; i++) console.log(`row ${i}`);\nDeno.stdout.writeSync(new TextEncoder().encode('half a line'));"
	pyPrints = "import sys\nprint('warned', file=sys.stderr)\nfor i in range(500): print('row', i)\nprint('half a line', end='')"
)

// TestHistory: a run is found by its words and shown with its code, output and receipt, while CodeForge runs, after it
// has stopped, and after it was killed; nothing that is kept holds a credential, also not compressed. With HISTORY=off
// nothing is shown.
// Promise: never-printed
func TestHistory(t *testing.T) {
	embeddedOnly(t)
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			w := world.Start(t, world.Config{User: user})
			tool := func(code int, want []string, args ...string) string {
				t.Helper()
				out, got, err := world.Tool(within(t, 40), world.Command{User: user, Dir: w.Dir, Args: args})
				if err != nil || got != code {
					t.Errorf("codeforge %s ended with %d, %v; want %d\n%s", strings.Join(args, " "), got, err, code, out)
				}
				for _, s := range want {
					if !strings.Contains(out, s) {
						t.Errorf("codeforge %s does not say %q:\n%s", strings.Join(args, " "), s, out)
					}
				}
				if where := w.Leak(out); where != "" {
					t.Errorf("codeforge %s shows a credential: %s", strings.Join(args, " "), where)
				}
				return out
			}
			const hostile = "console.log('\\x1b]0;title\\x07 zebrawort \\u202e');"
			res := w.MustExecute(t, "// About httpbin\n"+fmt.Sprintf(script, "history")+hostile)
			run := res.Receipt.Run
			kept := func() {
				t.Helper()
				tool(0, []string{run + " ok", "1 request httpbin", "About httpbin"}, "runs", "--grep", "zebra bearer", "--api", "httpbin", "--status", "ok", "--since", "1h")
				out := tool(0, []string{"// About httpbin", "200 HTTPBIN_TOKEN", "zebrawort", "served  200 GET    https://httpbin.test/bearer", "HTTPBIN_TOKEN in header:Authorization", "1 scrubbed"}, "runs", "show", run)
				if strings.ContainsAny(out, "\x1b\u202e") {
					t.Errorf("a terminal obeys it: %q", out)
				}
				tool(0, []string{"receipt of run " + run, "HTTPBIN_TOKEN in header:Authorization"}, "receipt", run[:8])
				tool(0, []string{run + " served", "https://httpbin.test/bearer"}, "logs", "--run", run)
				tool(0, []string{`"scrubbed":[{"name":"HTTPBIN_TOKEN","in":"body","count":1}]`, `"head_up":`, `"first_ms":`}, "logs", "-n", "1", "--json")
			}
			kept()
			tool(1, []string{`no run "rnone" is recorded`}, "receipt", "rnone")
			if err := w.Process.Stop(); err != nil {
				t.Fatal(err)
			}
			tool(1, nil, "runs")
			keptLeaks(t, w)
			up := func(history string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(w.Dir, ".env"), []byte("HISTORY="+history+"\n"), 0o644); err != nil { //nolint:gosec // no secret
					t.Fatal(err)
				}
				p, err := world.StartUp(user, w.Dir, 4)
				if err != nil {
					t.Fatal(err)
				}
				w.Process = p
				t.Cleanup(func() { _ = p.Stop() })
				if _, err := p.Ready(60 * time.Second); err != nil {
					t.Fatal(err)
				}
			}
			up("full")
			kept()
			if err := w.Process.Cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-w.Process.Done()
			up("full")
			kept()
			if err := w.Process.Stop(); err != nil {
				t.Fatal(err)
			}
			up("off")
			tool(1, []string{"HISTORY=off"}, "runs")
			tool(1, []string{"HISTORY=off"}, "receipt", run)
			if err := w.Process.Stop(); err != nil {
				t.Fatal(err)
			}
			up("receipts")
			tool(0, []string{`"removed": 1`}, "runs", "rm", run, "--yes", "--json")
			tool(1, []string{"no run"}, "receipt", run)
		})
	}
}
