package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/pool"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const (
	// trialTime bounds a trial. trialPause is the pause before the next one.
	trialTime  = 20 * time.Second
	trialPause = time.Second
	// watchPause is the time between two checks that a closed address still is closed.
	watchPause = 30 * time.Second
)

// trialHost is the host of MCP servers' tools, which the proxy answers itself, independently of the APIs.
const trialHost = "mcp.codeforge.internal"

// trialCode does the first step of fetch(): it resolves a name by the system's configuration. No request leaves the
// sandbox: the slots' filter refuses the port, or the proxy closes connections from a slot without a run.
const trialCode = `try {
  (await Deno.connect({ hostname: "` + trialHost + `", port: Number(Deno.args[0]) })).close();
  console.log("resolved");
} catch (e) {
  let said = e instanceof Deno.errors.ConnectionRefused ? "resolved" : e.message;
  if (said !== "resolved") {
    await Deno.readTextFile("/etc/resolv.conf").catch((e) => said = "code cannot read resolv.conf: " + e.message);
  }
  console.log(said);
}`

// trialPool is a pool that is not ready before a trial has passed. Even if all other checks pass, code may reach no
// host, for example because the container's resolv.conf is unreadable.
type trialPool struct {
	*pool.Pool
	deno    string
	port    string // the port for the connection
	servers bool   // there are slots for MCP servers
	closed  string // an address that no sandbox may reach, or empty
	log     *slog.Logger

	problem atomic.Pointer[string]
}

func newTrialPool(p *pool.Pool, f serveFlags, log *slog.Logger) *trialPool {
	t := &trialPool{Pool: p, deno: f.deno, port: "1", servers: f.servers > 0, closed: f.closed, log: log}
	if f.isProxyShared() {
		t.port = "443"
	}
	t.setProblem("checking whether code can resolve names")
	return t
}

func (t *trialPool) setProblem(text string) { t.problem.Store(&text) }

func (t *trialPool) Health() sandboxapi.Health {
	h := t.Pool.Health()
	if p := t.problem.Load(); h.Ready && p != nil {
		h.Ready, h.Problem = false, *p
	}
	return h
}

// repeatTrial repeats the trial until it passes or ctx ends.
func (t *trialPool) repeatTrial(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		err := t.runTrial(ctx)
		if err == nil {
			t.problem.Store(nil)
			said = ""
			if t.closed == "" {
				return
			}
			t.waitForOpening(ctx)
			continue
		}
		// The same error every second would fill the log.
		if text := err.Error(); text != said && ctx.Err() == nil {
			t.setProblem(text)
			t.log.Warn("the sandbox is not ready, trying again", "error", text)
			said = text
		}
		timing.WaitFor(ctx, trialPause)
	}
}

// waitForOpening waits until the closed address is open, or ctx ends.
func (t *trialPool) waitForOpening(ctx context.Context) {
	for range timing.EachTick(ctx, watchPause) {
		if err := checkClosed(ctx, t.closed); err != nil {
			t.setProblem(err.Error())
			return
		}
	}
}

// runTrial runs trialCode as the user of a free slot, with that slot's network, but not as a run. It prefers a slot for
// MCP servers, in which no interpreter starts at the same time. Without such a slot it takes a slot for runs, after the
// slot's interpreter has started.
func (t *trialPool) runTrial(ctx context.Context) error {
	if t.closed != "" {
		if err := checkClosed(ctx, t.closed); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	lease, err := t.Acquire(ctx, sandboxapi.LeaseRequest{Server: t.servers, Folders: []string{sandboxapi.AllFolders}})
	if err != nil {
		return fmt.Errorf("checking whether code can resolve names: %w", err)
	}
	defer func() { _ = t.Release(lease.Generation) }()
	if !t.servers {
		// While an interpreter starts, Check requires that it is the only process of the slot's user.
		if err := t.AwaitUp(ctx, lease.Generation); err != nil {
			return fmt.Errorf("checking whether code can resolve names: %w", err)
		}
	}
	return runTrialAs(ctx, t.deno, t.port, &syscall.Credential{
		Uid: uint32(lease.Slot.UID()), Gid: slot.GroupID, NoSetGroups: os.Geteuid() != 0, // it has the groups that it needs
	})
}

// runTrialAs runs trialCode as a user.
func runTrialAs(ctx context.Context, deno, port string, user *syscall.Credential) error {
	//nolint:gosec // our Deno, and our code
	cmd := exec.CommandContext(ctx, deno, "eval", "--quiet", "--no-config", "--no-lock", trialCode, port)
	cmd.Env = []string{"NO_COLOR=1", "DENO_NO_UPDATE_CHECK=1", "HOME=/nonexistent", "DENO_DIR=/nonexistent/deno"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	out, err := cmd.CombinedOutput()
	said := strings.TrimSpace(string(out))
	if said == "resolved" {
		return nil
	}
	if err != nil {
		said = strings.TrimSpace(said + " " + err.Error())
	}
	return fmt.Errorf("code cannot resolve the name of a host (%.300s): check that sandbox-image/resolv.conf is as "+
		"in the repository, that everybody can read it (chmod 644), that it has line feeds without carriage returns, and "+
		"that the proxy runs", said)
}
