package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog/slot"
)

// engineStartVar names the environment variable with the command that starts the engine again after TestEngineRestart
// has ended it. To set it says that the engine is the test's to end, with everything that runs on it: .ci/run does, for
// the engine that .ci/engine-up started. On a laptop or a hosted runner it is not set, and the test is no part of the
// run: a test that is skipped there would be one that never passes, since no machine would be without a reason.
const engineStartVar = "CODEFORGE_ENGINE_RESTART"

func engineStart() string { return os.Getenv(engineStartVar) }

// TestEngineRestart ends the engine under the running stack, once as a shutdown does and once as a crash, and starts it
// again. Clients are told; nothing gets out past a proxy that is down; everything comes back by itself.
func TestEngineRestart(t *testing.T) {
	if engineStart() == "" {
		t.Fatal(engineStartVar + " is not set: the engine is not ours to end")
	}
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(how.String(), func(t *testing.T) {
			works(t)
			running := make(chan result, 1)
			go func() {
				running <- execute(t, `console.log("started"); await new Promise((r) => setTimeout(r, 50_000)); console.log("end")`)
			}()
			time.Sleep(time.Second)
			pids := map[string]int{}
			for _, service := range services {
				pids[service] = inspect(t, service).State.Pid
			}
			t.Cleanup(func() { startEngine(t) }) // whatever happens
			endEngine(t, how)
			if how == syscall.SIGKILL {
				// The containers run on, and nobody starts again what ends.
				_ = syscall.Kill(pids["proxy"], syscall.SIGKILL)
				noWayOut(t, pids["sandbox"])
			}
			r := execute(t, `console.log("out")`)
			t.Logf("told while there is no engine: %q %q", r.Text, r.Notes)
			if !r.Failed {
				t.Errorf("a run without an engine: %q", r.Text)
			}
			if r := <-running; !r.Failed {
				t.Errorf("the run that was under way: %q %q", r.Text, r.Notes)
			} else {
				t.Logf("the run that was under way: %q %q", r.Text, r.Notes)
			}
			began := time.Now()
			startEngine(t)
			t.Logf("the engine answers after %.1f s", time.Since(began).Seconds())
			heals(t, healTime)
			for _, service := range services {
				if pid := inspect(t, service).State.Pid; pid <= 1 || pid == pids[service] {
					t.Errorf("%s has the process %d, before %d", service, pid, pids[service])
				}
			}
			works(t)
		})
	}
}

// endEngine ends the engine and waits until it is gone.
func endEngine(t *testing.T, how syscall.Signal) {
	t.Helper()
	data, err := os.ReadFile("/var/run/docker.pid")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 1 {
		t.Fatalf("docker.pid holds %q", data)
	}
	if err := syscall.Kill(pid, how); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH); time.Sleep(50 * time.Millisecond) {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(stat), ") Z ") {
			return // dead; its parent does not look
		}
		if time.Since(began) > healTime {
			t.Fatal("the engine does not end")
		}
	}
}

// startEngine starts the engine, if it does not answer, and waits until it does.
func startEngine(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), healTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", engineStart())
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", engineStart(), err, out)
	}
}

// noWayOut tries to get out of the network namespace of a process as a slot's user, without an engine and without a
// proxy.
func noWayOut(t *testing.T, pid int) {
	t.Helper()
	uid, gid := strconv.Itoa(slot.ID(6).UID()), strconv.Itoa(slot.GroupID)
	for _, to := range []string{"93.184.215.14/443", "93.184.215.14/80", "10.99.0.10/443", "10.77.0.2/443", "10.99.0.2/443"} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		out, err := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(pid), "-n", //nolint:gosec // fixed
			"setpriv", "--reuid", uid, "--regid", gid, "--clear-groups", "bash", "-c", "exec 3<>/dev/tcp/"+to).CombinedOutput()
		timeout := ctx.Err() != nil
		cancel()
		if err == nil {
			t.Errorf("connected to %s without a proxy", to)
		} else if s := string(out); !timeout && !strings.Contains(s, "/dev/tcp/") {
			t.Errorf("the attempt on %s was none: %v %s", to, err, s)
		}
	}
}
