package servers

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestRemembered: after a restart the tools of a server are known, and nothing is started to list them.
func TestRemembered(t *testing.T) {
	program, err := world.Program("hostile")
	testkit.Must(t, err)
	for name, user := range users() {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			w := world.Start(t, world.Config{
				User: user, APIs: []world.API{misbehaving("good", "", nil)}, Env: map[string]string{"SANDBOX_PROGRAMS": filepath.Dir(program)},
			})
			if res := w.MustExecute(t, `console.log(await mcp.good.echo({ text: "hi" }));`); res.Out != "hi\n" {
				t.Fatalf("out %q, notes %q", res.Out, res.Notes)
			}
			tool := restart(t, w)
			const listing = `console.log(Object.keys(mcp.good).length, (await mcp.good.$tools()).length);`
			if out := tool(listing, "run", "-"); !strings.Contains(out, "22 22\n") {
				t.Errorf("after a restart: %q", out)
			}
			if out := tool("", "status"); !strings.Contains(out, "good           stopped, 22 tools") {
				t.Errorf("codeforge status:\n%s", out)
			}
		})
	}
}

// restart ends CodeForge, or in Docker mode mcp-server, and starts it again. The result is the command line.
func restart(t *testing.T, w *world.World) func(stdin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*testkit.Patience)
	t.Cleanup(cancel)
	if w.Mode == world.Docker {
		out, err := exec.CommandContext(ctx, "docker", "restart", "-t", "5", w.Stack.Container("mcp-server")).CombinedOutput()
		if err != nil {
			t.Fatalf("docker restart: %v\n%s", err, out)
		}
		var said string
		tool := func(stdin string, args ...string) string {
			said, err = w.Stack.Exec(ctx, stdin, "mcp-server", append([]string{"codeforge"}, args...)...)
			return said
		}
		testkit.WaitFor(t, func() bool { return tool("", "status") != "" && err == nil })
		return tool
	}
	testkit.Must(t, w.Process.Stop())
	p, err := world.StartUp(w.User, w.Dir, 4)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, p.Stop()) })
	if _, err := p.Ready(time.Minute); err != nil {
		t.Fatal(err)
	}
	return func(stdin string, args ...string) string {
		if stdin != "" {
			path := filepath.Join(w.Dir, "code.ts")
			testkit.Must(t, os.WriteFile(path, []byte(stdin), 0o644)) //nolint:gosec // the ordinary user reads it
			args[len(args)-1] = path
		}
		out, _, err := world.Tool(ctx, world.Command{User: w.User, Dir: w.Dir, Args: append(args, "--state", p.State)})
		testkit.Must(t, err)
		return out
	}
}
