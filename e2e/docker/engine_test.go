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
)

// engineStartVar names the environment variable with the command that starts the engine again after TestEngineRestart
// has stopped it. Setting it allows the test to stop the engine and everything that runs on it. .ci/run sets it for the
// engine that .ci/engine-up started. On a laptop or a hosted runner it is not set, and the test is not run at all
// instead of being skipped, because there it could never pass.
const engineStartVar = "CODEFORGE_ENGINE_RESTART"

func engineStart() string { return os.Getenv(engineStartVar) }

// TestEngineRestart shuts the engine down under the running stack and starts it again, as a reboot would. Clients get
// clear errors, and everything recovers by itself.
func TestEngineRestart(t *testing.T) {
	if engineStart() == "" {
		t.Fatal(engineStartVar + " is not set: the engine is not ours to end")
	}
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
	endEngine(t)
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
}

// endEngine shuts the engine down and waits until it is gone.
func endEngine(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile("/var/run/docker.pid")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 1 {
		t.Fatalf("docker.pid holds %q", data)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH); time.Sleep(50 * time.Millisecond) {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(stat), ") Z ") {
			return // a zombie that its parent does not reap
		}
		if time.Since(began) > healTime {
			t.Fatal("the engine does not end")
		}
	}
}

// startEngine starts the engine if it does not answer, and waits until it does.
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
