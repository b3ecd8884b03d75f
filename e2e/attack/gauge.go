package attack

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// gauge measures from outside what runs hold, by other means than the limit does: the kernel's own shares of every
// interpreter and of all that descends from one, and what memory of the machine belongs to files without a disk, which
// no process need hold. Of the PID namespaces that have interpreters it takes the heaviest: a run does not leave its own,
// and other tests beside it have interpreters too.
type gauge struct {
	before int64 // Shmem at the start
	peak   int64
	seen   bool // an interpreter was seen: without one nothing was measured
	stop   chan struct{}
	done   chan struct{}
}

const gaugeEvery = 25 * time.Millisecond

func startGauge() *gauge {
	g := &gauge{before: shmem(), stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(g.done)
		for {
			g.look()
			select {
			case <-g.stop:
				return
			case <-time.After(gaugeEvery):
			}
		}
	}()
	return g
}

// Weight is what a gauge measured, in bytes.
type Weight struct {
	Before, Peak int64
	Measured     bool // there was something to measure
}

// end stops measuring.
func (g *gauge) end() Weight {
	close(g.stop)
	<-g.done
	return Weight{g.before, g.peak, g.seen}
}

func (g *gauge) look() {
	files := max(0, shmem()-g.before)
	held := map[string]int64{} // by PID namespace
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		exe, err := os.Readlink(d + "/exe")
		if err != nil || !interpreter(d, filepath.Base(exe)) {
			continue
		}
		g.seen = true
		rollup, _ := os.ReadFile(d + "/smaps_rollup")
		status, _ := os.ReadFile(d + "/status")
		namespace, _ := os.Readlink(d + "/ns/pid")
		held[namespace] += kilobytes(rollup, "Pss_Anon:", "SwapPss:", "Private_Hugetlb:") + kilobytes(status, "VmPTE:")
	}
	for _, weight := range held {
		g.peak = max(g.peak, files+weight)
	}
}

// interpreter tells the interpreters of runs from other programs of the machine.
func interpreter(process, program string) bool {
	if program == "deno" {
		return true
	}
	argv, _ := os.ReadFile(process + "/cmdline")
	return strings.HasPrefix(program, "python3") && bytes.HasSuffix(argv, []byte("/main.py\x00"))
}

// shmem is what files in memory take on this machine, those that nobody has mapped or can name included.
func shmem() int64 {
	text, _ := os.ReadFile("/proc/meminfo")
	return kilobytes(text, "Shmem:")
}

// kilobytes adds up lines like "VmPTE:  12 kB", in bytes.
func kilobytes(text []byte, names ...string) (total int64) {
	for line := range bytes.Lines(text) {
		for _, name := range names {
			if rest, ok := strings.CutPrefix(string(line), name); ok {
				n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
				total += n << 10
			}
		}
	}
	return total
}
