package jail

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// weight is the memory of each heavy process, in bytes.
const weight = 48 << 20

// take fills memory.
func take(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 4096 {
		b[i] = 1
	}
	kept = b
	return b
}

// kept keeps the memory of take from being collected.
var kept []byte

// tables reads one byte in every 2 MiB of unallocated memory, so that it holds little but page tables.
func tables() {
	const room = 64 << 30
	b, err := unix.Mmap(-1, 0, room, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		panic(err)
	}
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE)
	sum := byte(0)
	for i := 0; i < room; i += 2 << 20 {
		sum += b[i]
	}
	kept = b[:int(sum)+1]
}

// Memory counts all processes of the slot, including those without a main thread, and their page tables.
// Promise: memory-limits
func TestMemory(t *testing.T) {
	for _, kind := range []string{"embedded", "container"} {
		for what, want := range map[string]int64{"heavy": (children + 2) * weight, "tables": 120 << 20} {
			t.Run(kind+" "+what, func(t *testing.T) {
				p, _ := lockUp(t, prison(t, kind), what)
				defer func() {
					p.Kill()
					<-p.DoneSignal()
					_ = p.Remove()
				}()
				main := mainOf(t, p)
				var got int64
				for range 1000 { // the list of processes may be out of date at first
					if got = meterOf(p).totalMemory(main); got >= want {
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
				most := want + want/2 + 100<<20
				if testkit.Race {
					most *= 3
				}
				if got < want || got > most {
					t.Errorf("%d MiB, want some more than %d", got>>20, want>>20)
				}
				if alone := proc.MemoryOf(main); what == "heavy" && alone >= got/2 {
					t.Errorf("the main process has %d MiB of them: it is no test of a sum", alone>>20)
				}
			})
		}
	}
}

func meterOf(p Process) *memoryMeter {
	switch p := p.(type) {
	case *bwrapProcess:
		return &p.memory
	case *containerProcess:
		return &p.memory
	}
	return nil
}

// mainOf is the pid of the prisoner that the jail started. Check would refuse those with children.
func mainOf(t *testing.T, p Process) int {
	t.Helper()
	switch p := p.(type) {
	case *bwrapProcess:
		<-p.initKnown
		if all, err := proc.ListChildren(p.init); err == nil && len(all) > 0 {
			return all[0]
		}
	case *containerProcess:
		return p.root.Pid
	}
	t.Fatal("no process")
	return 0
}
