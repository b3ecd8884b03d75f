package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
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
				out := tool(0, []string{"// About httpbin", "200 HTTPBIN_TOKEN", "zebrawort", "served  200 GET    https://httpbin.test/bearer", "HTTPBIN_TOKEN in header:Authorization", "1 sanitized"}, "runs", "show", run)
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
			kept()
			tool(1, []string{"is not running"}, "runs", "rm", run, "--yes")
			tool(1, []string{"cannot show new exchanges"}, "logs", "--follow")
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
			kept()
			up("off")
			tool(1, []string{"HISTORY=off"}, "runs")
			tool(1, []string{"HISTORY=off"}, "receipt", run)
			if err := w.Process.Stop(); err != nil {
				t.Fatal(err)
			}
			up("receipts")
			tool(0, []string{"Forgot 1 run."}, "runs", "rm", run, "--yes")
			tool(1, []string{"no run"}, "receipt", run)
		})
	}
}
