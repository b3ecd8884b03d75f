package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// embeddedOnly skips a test of `codeforge up` in Docker mode.
func embeddedOnly(t *testing.T) {
	t.Helper()
	if world.CurrentMode() == world.Docker {
		t.Skip("about codeforge up: tested in embedded mode")
	}
}

// startBare starts `codeforge up` without an upstream, ready.
func startBare(t *testing.T, user world.User) *world.Process {
	t.Helper()
	dir, err := world.NewDir(user, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p, err := world.StartUp(user, dir, 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Ready(60 * time.Second); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestNothingStays stops or kills CodeForge in every way and checks that nothing is left: processes, mounts, sockets,
// network devices, cgroups, iptables rules.
// Promise: nothing-stays
func TestNothingStays(t *testing.T) {
	embeddedOnly(t)
	ways := []struct {
		name string
		end  func(t *testing.T, p *world.Process)
		code int // of codeforge up; -1: killed
		says string
	}{
		{"ctrl-c", func(_ *testing.T, p *world.Process) { _ = p.Cmd.Process.Signal(os.Interrupt) }, 0, ""},
		{"ctrl-c to the whole group", func(_ *testing.T, p *world.Process) { _ = syscall.Kill(-p.Cmd.Process.Pid, syscall.SIGINT) }, 0, ""},
		{"terminated", func(_ *testing.T, p *world.Process) { _ = p.Cmd.Process.Signal(syscall.SIGTERM) }, 0, ""},
		{"supervisor killed", func(_ *testing.T, p *world.Process) { _ = p.Cmd.Process.Kill() }, -1, ""},
		{"egress-proxy killed", kill("egress-proxy"), 1, "egress-proxy"},
		{"sandboxd killed", kill("sandboxd"), 1, "sandboxd"},
		{"mcp-server killed", kill("mcp-server"), 1, "mcp-server"},
		{"codeforge down", down, 0, ""},
	}
	for user, id := range users() {
		for _, way := range ways {
			t.Run(user+"/"+way.name, func(t *testing.T) {
				before := world.TakeSnapshot()
				p := startBare(t, id)
				way.end(t, p)
				code, err := p.Wait(60 * time.Second)
				if err != nil || code != way.code {
					t.Errorf("codeforge up ended with %d, %v; want %d\n%s", code, err, way.code, p.Output())
				}
				if way.says != "" && !strings.Contains(lastLine(p.Output()), way.says) {
					t.Errorf("the last line %q does not name %s", lastLine(p.Output()), way.says)
				}
				if left := before.Leftovers(); len(left) > 0 {
					t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
				}
				if way.code >= 0 {
					clean(t, p)
				}
			})
		}
	}
}

// clean checks that an orderly stop leaves no socket and no up.json, and that the directory can be used again.
func clean(t *testing.T, p *world.Process) {
	t.Helper()
	for _, pattern := range []string{"up.json*", "run/*", "tmp/*"} {
		if found, _ := filepath.Glob(filepath.Join(p.State, pattern)); len(found) > 0 {
			t.Errorf("left in the state directory: %v", found)
		}
	}
}

// TestStartsAgain checks that CodeForge starts on the state directory of a killed supervisor without manual cleanup.
func TestStartsAgain(t *testing.T) {
	embeddedOnly(t)
	p := startBare(t, world.Self)
	_ = p.Cmd.Process.Kill()
	if _, err := p.Wait(60 * time.Second); err != nil {
		t.Fatal(err)
	}
	again, err := world.StartUp(world.Self, p.Dir, 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Ready(60 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := again.Stop(); err != nil {
		t.Error(err)
	}
}

// kill returns a function that kills the daemon of that name with SIGKILL.
func kill(name string) func(*testing.T, *world.Process) {
	return func(t *testing.T, p *world.Process) {
		t.Helper()
		pids := world.Below(p.Cmd.Process.Pid, name)
		if len(pids) == 0 {
			t.Fatalf("no %s runs below codeforge up", name)
		}
		_ = syscall.Kill(pids[0], syscall.SIGKILL)
	}
}

// down stops CodeForge with the command line.
func down(t *testing.T, p *world.Process) {
	t.Helper()
	out, code, err := world.Tool(t.Context(), world.Command{Dir: p.Dir, User: ownerOf(t, p.State), Args: []string{"down", "--state", p.State}})
	if err != nil || code != 0 {
		t.Errorf("codeforge down: %d, %v\n%s", code, err, out)
	}
}

// ownerOf is the owner of a state directory.
func ownerOf(t *testing.T, state string) world.User {
	t.Helper()
	info, err := os.Stat(state)
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; strconv.Itoa(int(uid)) != strconv.Itoa(os.Geteuid()) {
		return world.Ordinary
	}
	return world.Self
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// TestStartsAgainByItself: what runs in the background is started again when a part of it is killed, at the same address,
// and says why. When the supervisor itself is killed, status says so.
func TestStartsAgainByItself(t *testing.T) {
	embeddedOnly(t)
	p, dir := startDetached(t)
	first := upJSON(t, p)
	_ = syscall.Kill(world.Below(first.PID, "sandboxd")[0], syscall.SIGKILL)
	second := awaitRestart(t, p, "sandboxd stopped")
	if second.PID != first.PID || second.Port != first.Port || !strings.Contains(second.Again.Reason, "sandboxd stopped (signal: killed)") {
		t.Errorf("started again: %+v; first %+v", second, first)
	}
	tool := func(args ...string) string {
		t.Helper()
		out, _, err := world.Tool(t.Context(), world.Command{Dir: dir, Args: append(args, "--state", p.State)})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if err := os.WriteFile(filepath.Join(dir, "x.ts"), []byte("console.log(6 * 7)"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := tool("run", filepath.Join(dir, "x.ts")); !strings.Contains(out, "42") {
		t.Errorf("a run after the restart: %s", out)
	}
	if out := tool("status"); !strings.Contains(out, "sandboxd stopped (signal: killed)") {
		t.Errorf("status after the restart: %s", out)
	}
	_ = syscall.Kill(first.PID, syscall.SIGKILL)
	for began := time.Now(); syscall.Kill(first.PID, 0) == nil; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 60*time.Second {
			t.Fatal("it does not end")
		}
	}
	if out := tool("status"); !strings.Contains(out, "was killed, or the machine was stopped") {
		t.Errorf("status after a kill: %s", out)
	}
}

// TestHangHeals: a part that no longer answers, and a socket that somebody removed, cost a minute, not the service.
func TestHangHeals(t *testing.T) {
	embeddedOnly(t)
	p, dir := startDetached(t)
	first := upJSON(t, p)
	_ = syscall.Kill(world.Below(first.PID, "sandboxd")[0], syscall.SIGSTOP)
	awaitRestart(t, p, "sandboxd does not answer")
	if err := os.Remove(filepath.Join(p.State, "run", "mcp.sock")); err != nil {
		t.Fatal(err)
	}
	awaitRestart(t, p, "mcp-server does not answer")
	out, _, err := world.Tool(t.Context(), world.Command{Dir: dir, Args: []string{"held", "--state", p.State}})
	if err != nil || !strings.Contains(out, "No request waits") {
		t.Errorf("held after the restart: %s, %v", out, err)
	}
}

// startDetached starts `codeforge up --detach` in a new folder, without an upstream, ready.
func startDetached(t *testing.T) (*world.Process, string) {
	t.Helper()
	dir, err := world.NewDir(world.Self, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p, err := world.StartUp(world.Self, dir, 3, "--detach")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _, _ = world.Tool(context.Background(), world.Command{Dir: dir, Args: []string{"down", "--state", p.State}})
	})
	if code, err := p.Wait(60 * time.Second); err != nil || code != 0 {
		t.Fatalf("codeforge up --detach: %d, %v\n%s", code, err, p.Output())
	}
	return p, dir
}

// awaitRestart waits until up.json says that everything was started again for this reason.
func awaitRestart(t *testing.T, p *world.Process, reason string) (u up) {
	t.Helper()
	for began := time.Now(); !strings.Contains(u.Again.Reason, reason); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("not started again because %s, but %q", reason, u.Again.Reason)
		}
		if data, err := os.ReadFile(filepath.Join(p.State, "up.json")); err == nil {
			_ = json.Unmarshal(data, &u)
		}
	}
	return u
}

// up is what this file reads of up.json.
type up struct {
	PID, Port int
	Again     struct{ Reason string }
}

func upJSON(t *testing.T, p *world.Process) (u up) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(p.State, "up.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &u); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestUpWhileItStops: up waits for one that stops, and then starts; it does not say that CodeForge runs already.
func TestUpWhileItStops(t *testing.T) {
	embeddedOnly(t)
	dir, err := world.NewDir(world.Self, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	start := func() *world.Process {
		t.Helper()
		p, err := world.StartUp(world.Self, dir, 3, "--detach")
		if err != nil {
			t.Fatal(err)
		}
		if code, err := p.Wait(60 * time.Second); err != nil || code != 0 {
			t.Fatalf("codeforge up --detach: %d, %v\n%s", code, err, p.Output())
		}
		return p
	}
	p := start()
	t.Cleanup(func() {
		_, _, _ = world.Tool(context.Background(), world.Command{Dir: dir, Args: []string{"down", "--state", p.State}})
	})
	code := filepath.Join(dir, "x.ts")
	if err := os.WriteFile(code, []byte("await new Promise((r) => setTimeout(r, 60000))"), 0o600); err != nil {
		t.Fatal(err)
	}
	run, err := world.Launch(world.Command{Dir: dir, Args: []string{"run", "--state", p.State, code}})
	if err != nil {
		t.Fatal(err)
	}
	first := upJSON(t, p)
	time.Sleep(2 * time.Second) // until it runs
	_ = syscall.Kill(first.PID, syscall.SIGTERM)
	time.Sleep(200 * time.Millisecond)
	if out := start().Output(); strings.Contains(out, "already running") {
		t.Errorf("up while another one stops: %s", out)
	}
	if second := upJSON(t, p); second.PID == first.PID {
		t.Error("what is up is what was stopped")
	}
	_, _ = run.Wait(60 * time.Second)
}
