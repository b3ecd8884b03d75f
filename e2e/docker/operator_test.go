package docker

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/compose"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestOperator uses the whole command line inside mcp-server's container, and from the host, where it finds the stack of
// the folder by itself and needs no token. Nothing it prints holds a credential.
// Promise: operators-socket
func TestOperator(t *testing.T) {
	program, err := world.Program("codeforge")
	if err != nil {
		t.Fatal(err)
	}
	inside := func(input string, args ...string) (string, error) {
		return stack.Exec(t.Context(), input, "mcp-server", append([]string{"codeforge"}, args...)...)
	}
	dir := filepath.Join(root, "docs") // below the folder of the stack
	host := func(input string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // built here
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
		cmd.Env = append(stack.Environ(), "COMPOSE_PROJECT_NAME="+compose.Project, "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	r := execute(t, bearer("operator"))
	if r.Failed {
		t.Fatal(r.Text, r.Notes)
	}
	run := r.Receipt.Run
	const code = 1
	for _, row := range []struct {
		name string
		at   func(string, ...string) (string, error)
		args []string
		exit int
		want []string
	}{
		{"inside", inside, []string{"status"}, 0, []string{"running in Docker", "docker exec -i codeforge-e2e-mcp-server-1 codeforge stdio", "<MCP_AUTH_TOKEN>", "httpbin.test"}},
		{"inside", inside, []string{"check"}, 0, []string{"1 inactive", "0 mistakes"}},
		{"inside", inside, []string{"api", "list"}, 0, []string{"active  httpbin", "HTTPBIN_QUERY in query:key", "off     off"}},
		{"inside", inside, []string{"api", "check", "httpbin"}, 0, []string{"0 mistakes"}},
		{"inside", inside, []string{"api", "test", "httpbin", "--path", "/bearer"}, 0, []string{"ok: ", "was swapped", "(200)"}},
		{"inside", inside, []string{"api", "test", "off"}, code, []string{"is not active"}},
		{"inside", inside, []string{"receipt", run}, 0, []string{"receipt of run " + run, "HTTPBIN_TOKEN in header:Authorization"}},
		{"inside", inside, []string{"runs", "--grep", "httpbin.test bear", "-n", "10"}, 0, []string{run + " ok", "1 request httpbin"}},
		{"inside", inside, []string{"runs", "show", run}, 0, []string{run + " ok", "code:", "output:", "200 HTTPBIN_TOKEN"}},
		{"inside", inside, []string{"logs", "--run", run}, 0, []string{run + " served  200 GET    https://httpbin.test/bearer"}},
		{"inside", inside, []string{"logs", "--run", "rnone"}, code, []string{`no run "rnone" is recorded`}},
		{"inside", inside, []string{"receipt", "rnone"}, code, []string{`no run "rnone" is recorded`}},
		{"inside", inside, []string{"skills", "list"}, 0, nil},
		{"host", host, []string{"status"}, 0, []string{"running in Docker", "codeforge stdio --url docker://codeforge-e2e-mcp-server-1", "httpbin.test"}},
		{"host", host, []string{"run", "-", "--receipt"}, 0, []string{"200 HTTPBIN_TOKEN", "HTTPBIN_TOKEN in header:Authorization"}},
		{"host", host, []string{"runs", "--api", "httpbin", "--status", "ok", "--json"}, 0, []string{`"run":"` + run + `"`, `"state":"ok"`}},
		{"host", host, []string{"receipt", run}, 0, []string{"receipt of run " + run}},
		{"host", host, []string{"logs", "-n", "1000", "--since", "1h", "--run", run[:8]}, 0, []string{"GET    https://httpbin.test/bearer"}},
		{"host", host, []string{"logs", "--run", "rnone"}, code, []string{`no run "rnone" is recorded`}},
		{"host", host, []string{"skills", "list"}, 0, nil},
		{"host", host, []string{"held"}, 0, []string{"No request waits."}},
		{"host", host, []string{"credentials"}, 0, nil},
		{"host", host, []string{"audit", "verify"}, 0, []string{"ok: ", "from elsewhere"}},
		{"host", host, []string{"audit", "show", "--run", run}, 0, []string{"https://httpbin.test/bearer"}},
		{"host", host, []string{"status", "--url", "docker://codeforge-nobody-1"}, code, []string{"codeforge-nobody-1"}},
	} {
		name := row.name + ": codeforge " + strings.Join(row.args, " ")
		out, err := row.at(bearer("operator"), row.args...)
		if got := exitCode(err); got != row.exit {
			t.Errorf("%s ended with %d, want %d: %v\n%s", name, got, row.exit, err, out)
		}
		for _, want := range row.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s does not say %q:\n%s", name, want, out)
			}
		}
		if where := leak([]byte(out)); where != "" || strings.Contains(out, token) {
			t.Errorf("%s shows a secret: %s", name, where)
		}
	}
}

// exitCode is that of a command, here or in a container.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		return -1
	}
	return 0
}

// TestHistory: what is kept of a run survives a new container of mcp-server, in a file of mcp-server's alone; with
// HISTORY=off nothing is shown, and nothing more is kept.
func TestHistory(t *testing.T) {
	codeforge := func(args ...string) (string, error) {
		return stack.Exec(t.Context(), "", "mcp-server", append([]string{"codeforge"}, args...)...)
	}
	up := func(history string) {
		t.Helper()
		args := []string{"up", "-d", "--no-build", "--no-deps", "--force-recreate", "--wait", "--wait-timeout", "120", "mcp-server"}
		if out, err := stack.ComposeWith(context.Background(), []string{"HISTORY=" + history}, args...); err != nil {
			t.Fatal(err, out)
		}
	}
	t.Cleanup(func() { up("full") })
	run := execute(t, bearer("history")).Receipt.Run
	up("off")
	heals(t, healTime)
	unkept := execute(t, bearer("history")).Receipt.Run
	if out, err := codeforge("receipt", run); err == nil || !strings.Contains(out, "HISTORY=off") {
		t.Errorf("off: %v\n%s", err, out)
	}
	up("full")
	heals(t, healTime)
	if out, err := codeforge("receipt", run); err != nil || !strings.Contains(out, "HTTPBIN_TOKEN in header:Authorization") {
		t.Errorf("after a restart: %v\n%s", err, out)
	}
	if out, err := codeforge("receipt", unkept); err == nil {
		t.Errorf("a run while it was off: %s", out)
	}
	list := docker(t, "run", "--rm", "--network", "none", "-v", "codeforge-e2e_journal:/v:ro", "debian:bookworm-slim", "stat", "-c", "%a %u", "/v/history", "/v/history/runs.db")
	if strings.TrimSpace(list) != "700 19998\n600 19998" {
		t.Errorf("modes and owners: %q", list)
	}
}

// TestOperatorSocket checks who reaches the operator's API: nobody over the port, not even with the token, and no code.
// Promise: operators-socket
func TestOperatorSocket(t *testing.T) {
	for _, path := range []string{"about", "catalog", "inspection", "exchanges", "runs", "run", "history", "events"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(stack.URL, "/mcp")+"/operator/v1/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: bearing(token)}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("over the port %s answers %d, want 404", path, resp.StatusCode)
		}
	}
	r := execute(t, `for (const p of ["/run/codeforge", "/run/codeforge/operator/operator.sock"]) {
  try { Deno.statSync(p); console.log("there") } catch (e) { console.log((e as Error).name) } }
try { await Deno.connect({transport: "unix", path: "/run/codeforge/operator/operator.sock"}); console.log("there") } catch (e) { console.log((e as Error).name) }`)
	if lines := strings.Fields(r.Text); len(lines) != 3 || strings.Contains(r.Text, "there") {
		t.Errorf("code saw %q", r.Text)
	}
	for _, service := range services {
		c := inspect(t, service)
		for path := range c.HostConfig.Tmpfs {
			if path == "/run/codeforge/operator" && service != "mcp-server" {
				t.Errorf("%s has %s", service, path)
			}
		}
		for _, m := range c.Mounts {
			if strings.HasPrefix(m.Destination, "/run/codeforge/operator") {
				t.Errorf("%s mounts %s, which others may share", service, m.Destination)
			}
		}
	}
	info, err := stack.Exec(t.Context(), "", "mcp-server", "codeforge", "status", "--json")
	var s struct{ Running bool }
	if err != nil || json.Unmarshal([]byte(info), &s) != nil || !s.Running {
		t.Errorf("%v\n%s", err, info)
	}
}

// TestConnectDesktop: the command that connect writes for Claude Desktop on the host needs only the variables that the
// entry has, and no folder. Its process works after mcp-server's container has started again.
func TestConnectDesktop(t *testing.T) {
	program, err := world.Program("codeforge")
	testkit.Must(t, err)
	file := filepath.Join(t.TempDir(), "claude_desktop_config.json")
	cmd := exec.CommandContext(t.Context(), program, "connect", "claude-desktop", "--write", "--file", file) //nolint:gosec // built here
	cmd.Dir, cmd.Env = root, append(stack.Environ(), "COMPOSE_PROJECT_NAME="+compose.Project, "HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("codeforge connect: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	session, err := world.OpenDesktop(ctx, file)
	testkit.Must(t, err)
	defer session.Close()
	testkit.Must(t, world.RunOnce(ctx, session))
	docker(t, "restart", "-t", "5", stack.Container("mcp-server"))
	heals(t, healTime)
	testkit.Must(t, world.RunOnce(ctx, session))
}
