package docker

import (
	"strings"
	"testing"
)

// TestOOM uses more memory than a run may: the run ends, and the sandbox keeps running.
// Promise: memory-limits
func TestOOM(t *testing.T) {
	works(t)
	pid := inspect(t, "sandbox").State.Pid
	r := execute(t, `const keep: Uint8Array[] = []; for (;;) keep.push(new Uint8Array(16 << 20).fill(1));`)
	t.Logf("%q %q", r.Text, r.Notes)
	if !r.Failed || !strings.Contains(strings.ToLower(r.Text+r.Notes), "memory") {
		t.Errorf("the answer does not speak of memory: %q %q", r.Text, r.Notes)
	}
	works(t)
	if now := inspect(t, "sandbox").State.Pid; now != pid {
		t.Error("the sandbox was restarted")
	}
}

// TestContainerMemory uses more memory than the container has, in runs that each stay below their own limit. The kernel
// kills some of them; process 1 and the sandbox keep running.
func TestContainerMemory(t *testing.T) {
	works(t)
	pid := inspect(t, "sandbox").State.Pid
	const runs = 4 // of 600 MiB; see memoryTotal
	results := make(chan result, runs)
	for range runs {
		go func() {
			results <- execute(t, `const keep: Uint8Array[] = [];
for (let i = 0; i < 30; i++) { keep.push(new Uint8Array(20 << 20).fill(1)); await new Promise((r) => setTimeout(r, 10)); }
await new Promise((r) => setTimeout(r, 5000)); console.log("held", keep.length);`)
		}()
	}
	ended := 0
	for range runs {
		r := <-results
		t.Logf("%v %q %q", r.Failed, r.Text, r.Notes)
		if r.Failed {
			ended++
			if !strings.Contains(r.Text+r.Notes, "no memory left for all the runs") {
				t.Errorf("the answer does not speak of all runs' memory: %q %q", r.Text, r.Notes)
			}
		}
	}
	if ended == 0 {
		t.Error("every run got its memory")
	}
	heals(t, healTime)
	if now := inspect(t, "sandbox").State.Pid; now != pid {
		t.Error("the sandbox was restarted")
	}
}
