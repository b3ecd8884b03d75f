package runs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
)

// idle measures the private memory of all processes that wait in a slot: the interpreter and its sandbox.
func idle(s *server, l language, warm int, col *bench.Collector) error {
	time.Sleep(4 * settle)
	var total, interpreters int64
	of := map[string]int64{}
	for pid, name := range descendants(s.process.PID()) {
		if name != l.program && name != "bwrap" {
			continue
		}
		private, err := privateMemory(pid)
		if err != nil {
			return fmt.Errorf("reading the memory of %s: %w", name, err)
		}
		total += private
		of[name] += private
		if name == l.program {
			interpreters++
		}
	}
	if interpreters != int64(warm) {
		return fmt.Errorf("%d interpreters wait where %d should", interpreters, warm)
	}
	col.Add(l.memory, float64(total)/float64(warm)/1e6, "%d of 8 slots warm: %s %.1f MB, bubblewrap of all slots %.1f MB",
		warm, l.program, float64(of[l.program])/1e6, float64(of["bwrap"])/1e6)
	return nil
}

// privateMemory is the memory that no other process shares, in bytes (proc(5), smaps_rollup).
func privateMemory(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	var sum int64
	found := false
	for line := range bytes.Lines(data) {
		f := strings.Fields(string(line))
		if len(f) == 3 && strings.HasPrefix(f[0], "Private_") && f[0] != "Private_Hugetlb:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0, err
			}
			sum, found = sum+kb<<10, true
		}
	}
	if !found {
		return 0, errors.New("no Private_ lines")
	}
	return sum, nil
}

// descendants are the processes below root, with the names of their programs.
func descendants(root int) map[int]string {
	parents, names := map[int]int{}, map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		stat, err := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil {
			continue
		}
		open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		fields := strings.Fields(string(stat[end+1:]))
		pid, _ := strconv.Atoi(filepath.Base(d))
		if len(fields) > 1 {
			parents[pid], _ = strconv.Atoi(fields[1])
			names[pid] = string(stat[open+1 : end])
		}
	}
	out := map[int]string{}
	for pid := range parents {
		for p := parents[pid]; p != 0; p = parents[p] {
			if p == root {
				out[pid] = names[pid]
				break
			}
		}
	}
	return out
}
