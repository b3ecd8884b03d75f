package docker

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/compose"
)

// TestNoSocket runs the stack without the Docker socket, and then switches back.
func TestNoSocket(t *testing.T) {
	down := func() {
		t.Helper()
		if out, err := stack.Compose(context.Background(), "down", "--timeout", "5", "--remove-orphans"); err != nil {
			t.Fatal(err, out)
		}
	}
	up := func() {
		t.Helper()
		if err := stack.Up(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	stack.WithoutSocket(true) // docker-shim still runs
	t.Cleanup(func() {
		down()
		// The other configuration does not have this volume.
		if out, err := exec.CommandContext(context.Background(), "docker", "volume", "rm", "codeforge-e2e_run-sandbox").CombinedOutput(); err != nil {
			t.Errorf("removing the volume: %v: %s", err, out)
		}
		stack.WithoutSocket(false)
		up()
	})
	up()
	works(t)
	for _, service := range []string{"sandbox-net", "sandbox", "proxy", "mcp-server"} {
		c := inspect(t, service)
		for _, m := range c.Mounts {
			if strings.Contains(m.Source, "docker.sock") {
				t.Errorf("%s has %s", service, m.Source)
			}
			if strings.HasSuffix(m.Name, "_run-sandbox") && service != "sandbox" && service != "mcp-server" {
				t.Errorf("%s has the sandbox's socket", service)
			}
			if strings.HasSuffix(m.Name, "_run-shim") {
				t.Errorf("%s has run-shim", service)
			}
		}
	}
	// The engine's list, because Compose may leave out a service that the configuration does not start.
	out, err := exec.CommandContext(t.Context(), "docker", "ps", "-aq", "--filter", "name="+compose.Project+"-docker-shim").Output()
	if err != nil || len(out) > 0 {
		t.Errorf("docker-shim exists: %s %v", out, err)
	}
	// Code cannot reach the socket although it is in the same container.
	if out := asSlot(t, 5, `try { await Deno.connect({transport: "unix", path: "/run/sandboxd/sandboxd.sock"}); console.log("connected"); } catch (e) { console.log((e as Error).name); }`); strings.Contains(out, "connected") {
		t.Error("a slot's user connected to sandboxd")
	}
	crash(t, "sandbox")
	heals(t, healTime)
	// When the sandbox and the owner of its network end at once, the engine may give up on the sandbox, and without
	// docker-shim nothing else can start it. Errors say so, and the documented command repairs it.
	crash(t, "sandbox")
	crash(t, "sandbox-net")
	if r := execute(t, `console.log("out")`); r.Failed && !strings.Contains(strings.ToLower(r.Text+r.Notes), "again") {
		t.Errorf("a run without a sandbox: %q %q", r.Text, r.Notes)
	}
	up()
	heals(t, healTime)
}
