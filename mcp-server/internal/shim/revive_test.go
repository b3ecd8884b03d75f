package shim

import (
	"context"
	"os/exec"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestRevive: a container that the engine failed to start, since the one whose network it shares was not up, is started
// by the next wish for an exec; one that somebody stopped is not.
// Promise: docker-socket
func TestRevive(t *testing.T) {
	owner := startBox(t) + "-owner" // its own is removed when it stops
	guest := owner + "-guest"
	docker(t, "run", "-d", "--name", owner, "--network", "none", "debian:bookworm-slim", "sleep", "300")
	t.Cleanup(func() { docker(t, "rm", "-f", owner) })
	docker(t, "create", "--name", guest, "--network", "container:"+owner, "debian:bookworm-slim", "sleep", "300")
	t.Cleanup(func() { docker(t, "rm", "-f", guest) })
	spec := Spec{Container: guest, User: "12345:54321", Cmd: []string{"true"}}
	api := dial(t, serve(t, "unix://"+engineSocket, spec))
	check := func(when string, running, served bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 2*testkit.Patience)
		defer cancel()
		if _, err := api.ExecCreate(ctx, guest, options(spec)); (err == nil) != served {
			t.Errorf("%s: asked for an exec: %v", when, err)
		}
		if got := docker(t, "inspect", "-f", "{{.State.Running}}", guest) == "true"; got != running {
			t.Errorf("%s: running %v, want %v", when, got, running)
		}
	}

	check("never started", false, false)
	docker(t, "start", guest)
	check("running", true, true)
	docker(t, "stop", "-t", "0", guest)
	check("stopped by somebody", false, false)

	docker(t, "stop", "-t", "0", owner)
	if out, err := exec.Command("docker", "start", guest).CombinedOutput(); err == nil {
		t.Fatalf("started without a network: %s", out)
	}
	check("without a network", false, false)
	docker(t, "start", owner)
	check("with a network", true, false)
	check("revived", true, true)
}
