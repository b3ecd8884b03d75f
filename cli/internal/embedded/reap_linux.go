package embedded

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// reapOrphans waits for the orphans that process 1 inherits. startDaemon waits for the daemons.
func (s *supervisor) reapOrphans(ctx context.Context) {
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, syscall.SIGCHLD)
	defer signal.Stop(sig)
	for {
		select {
		case <-ctx.Done():
			return
		case <-sig:
		}
		// A daemon between fork and its entry in s.daemons would look like an orphan, and Wait4 would steal its status.
		s.mu.Lock()
		for _, pid := range listChildren() {
			if !s.isOwnProcess(pid) {
				// WNOHANG: the child may still run.
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			}
		}
		s.mu.Unlock()
	}
}

func (s *supervisor) isOwnProcess(pid int) bool {
	return slices.ContainsFunc(s.daemons, func(d *childProcess) bool { return d.cmd.Process.Pid == pid })
}

// listChildren returns the processes whose parent is this one, including zombies.
func listChildren() []int {
	var pids []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, _ := os.ReadFile(path)
		// "pid (name) state ppid ...": the name may contain any character, and ends at the last parenthesis.
		_, rest, _ := strings.Cut(string(text[max(0, bytes.LastIndexByte(text, ')')):]), " ")
		f := strings.Fields(rest)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && len(f) > 1 && f[1] == strconv.Itoa(os.Getpid()) {
			pids = append(pids, pid)
		}
	}
	return pids
}
