package proc

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestLists: a process is in each list while it lives. A zombie counts as dead. A missing process is an error.
func TestLists(t *testing.T) {
	cmd := exec.Command("cat")
	input, err := cmd.StdinPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	pid, none := cmd.Process.Pid, func(int) bool { return false }
	if last, err := LastPID(); err != nil || last < pid {
		t.Errorf("the last is %d, %v, but %d started", last, err, pid)
	}
	children, err := ListChildren(os.Getpid())
	if err != nil || !slices.Contains(children, pid) {
		t.Errorf("children %v, %v, want %d", children, err, pid)
	}
	alive, dead, err := ListOfUser(os.Getuid(), none)
	if err != nil || !slices.Contains(alive, pid) || slices.Contains(dead, pid) || !IsRunning(pid) {
		t.Errorf("%v alive, %v dead, %v", alive, dead, err)
	}
	if alive, dead, err := ListOfUser(1<<30, none); err != nil || len(alive)+len(dead) > 0 {
		t.Errorf("of another user: %v, %v, %v", alive, dead, err)
	}
	if alive, _, _ := ListOfUser(os.Getuid(), func(p int) bool { return p == pid }); slices.Contains(alive, pid) {
		t.Error("a known process is listed")
	}
	testkit.Must(t, input.Close())
	testkit.WaitFor(t, func() bool {
		_, dead, err := ListOfUser(os.Getuid(), none)
		return err == nil && slices.Contains(dead, pid)
	})
	if IsRunning(pid) {
		t.Error("a zombie is running")
	}
	testkit.Must(t, cmd.Wait())
	if _, err := ListChildren(pid); err == nil || IsRunning(pid) || ProcessorTime(pid) != 0 {
		t.Errorf("%v, of a process that is gone", err)
	}
	if ProcessorTime(os.Getpid()) <= 0 {
		t.Error("this process has used no time")
	}
}
