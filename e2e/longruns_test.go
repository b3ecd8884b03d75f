package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// longRun is the variable with the seconds of TestLongRuns' runs. From 60 on, CodeForge has its default settings, so at
// most 290: TIMEOUT_MAX is 300.
const longRun = "CODEFORGE_LONG_RUN"

// TestLongRuns: the official SDK, which gives up after 60 s, starts a run that takes longer than its call. A new client
// gets each line once, or cancels the run, over HTTP and stdio, by get_run and by a task. After a restart get_run has the
// reason.
// Promise: nothing-stays
func TestLongRuns(t *testing.T) {
	embeddedOnly(t)
	modules, node := testkit.InstallClients(t), testkit.NodeBinary(t)
	seconds, err := strconv.Atoi(cmp.Or(os.Getenv(longRun), "12"))
	testkit.Must(t, err)
	env := map[string]string{}
	if seconds < 60 {
		env["ANSWER_AFTER"] = "4"
	}
	dir, err := world.NewDir(world.Self, nil, env)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	start := func() *world.Process {
		p, err := world.StartUp(world.Self, dir, 16) // half of the slots are for runs that outlive their calls
		testkit.Must(t, err)
		_, err = p.Ready(time.Minute)
		testkit.Must(t, err)
		return p
	}
	p := start()
	transports := func() map[string][]string {
		return map[string][]string{
			"http":  {fmt.Sprintf("http://127.0.0.1:%d/mcp", p.Port)},
			"stdio": {world.Binary("codeforge"), "stdio", "--state", p.State},
		}
	}
	type seen struct {
		ID, Error string
		Texts     []string
		Slowest   int
	}
	drive := func(t *testing.T, args ...string) (s seen) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), node, append([]string{"testdata/longrun.cjs"}, args...)...) //nolint:gosec // installed above
		cmd.Env = append(os.Environ(), "NODE_PATH="+modules, "HOME="+t.TempDir())
		cmd.Stderr, cmd.WaitDelay = t.Output(), time.Second
		out, err := cmd.Output()
		testkit.Must(t, err)
		testkit.Must(t, json.Unmarshal(out, &s))
		if s.Error != "" {
			t.Fatalf("%v: %s\n%q", args, s.Error, s.Texts)
		}
		return s
	}
	t.Run("run", func(t *testing.T) {
		for name, transport := range transports() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := drive(t, append([]string{"run", strconv.Itoa(seconds)}, transport...)...)
				all := strings.Join(s.Texts, "\n")
				if len(s.Texts) < 2 || !strings.Contains(s.Texts[0], "Run "+s.ID+": still running") || s.Slowest > 58_000 {
					t.Errorf("%d ms at most, %q", s.Slowest, s.Texts)
				}
				for i := range seconds {
					if n := strings.Count(all+"\n", fmt.Sprintf("second %d\n", i)); n < 1 {
						t.Errorf("second %d is missing: %q", i, s.Texts)
					}
				}
				t.Logf("%d calls, the slowest took %d ms", len(s.Texts), s.Slowest)
			})
			t.Run(name+" task", func(t *testing.T) {
				t.Parallel()
				s := drive(t, append([]string{"task", strconv.Itoa(seconds)}, transport...)...)
				want := strings.Builder{}
				for i := range seconds {
					fmt.Fprintf(&want, "second %d\n", i)
				}
				if len(s.Texts) != 1 || s.Texts[0] != want.String() {
					t.Errorf("%q", s.Texts)
				}
			})
			t.Run(name+" cancelled task", func(t *testing.T) {
				t.Parallel()
				s := drive(t, append([]string{"canceltask"}, transport...)...)
				if last := s.Texts[len(s.Texts)-1]; !strings.Contains(last, "Cancelled: the run was stopped") {
					t.Errorf("%q", s.Texts)
				}
			})
			t.Run(name+" cancelled", func(t *testing.T) {
				t.Parallel()
				s := drive(t, append([]string{"cancel"}, transport...)...)
				if last := s.Texts[len(s.Texts)-1]; !strings.Contains(last, "began") || !strings.Contains(last, "Cancelled: the run was stopped") {
					t.Errorf("%q", s.Texts)
				}
			})
		}
	})
	left := drive(t, append([]string{"leave"}, transports()["http"]...)...)
	down(t, p)
	_, err = p.Wait(time.Minute)
	testkit.Must(t, err)
	p = start()
	defer down(t, p)
	for name, transport := range transports() {
		if s := drive(t, append([]string{"look", left.ID}, transport...)...); !strings.Contains(s.Texts[0], "restart of the server ended it") {
			t.Errorf("%s: %q", name, s.Texts)
		}
	}
}
