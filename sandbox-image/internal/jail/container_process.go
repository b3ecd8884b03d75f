package jail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// containerProcess is a program that runs as the slot's user in the container.
type containerProcess struct {
	jail      *Container
	slot      slot.ID
	group     int // its primary group
	root      *os.Process
	main      int
	isDeno    bool         // it is an interpreter of TypeScript, which gets its code only after CheckConfinement
	remove    func() error // deletes its private files
	writeMain func(code []byte) error

	done   chan struct{}
	ending atomic.Bool // the other processes are being killed, or have been
	status Status

	memory memoryMeter
}

// waitForEnd waits for the interpreter, then kills every other process of its user.
func (t *containerProcess) waitForEnd() {
	defer close(t.done)
	t.jail.forgetRoot(t.root.Pid)
	// Set before killSlotProcesses can kill a measuring program: runCountCommand must not take that for an attack.
	t.ending.Store(true)
	state, err := t.root.Wait()
	if err == nil {
		t.status.setExit(state)
	}
	t.status.Leftover = errors.Join(err, t.jail.killSlotProcesses(t.slot))
}

// killSlotProcesses kills the processes of the slot's user until none is left. It returns an error after killTimeout.
func (c *Container) killSlotProcesses(id slot.ID) error {
	var last error
	for deadline := time.Now().Add(killTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		alive, none, err := c.findAlive(id)
		if err != nil {
			return err
		}
		if none {
			return nil
		}
		// kill(-1) as the user kills all its processes at once; signals sent one by one lose against a fork bomb. Those
		// processes may kill or stop the reaper first, so the reaper's error alone is not fatal. killEach ends a small
		// number.
		killEach(alive, id.UID())
		_, last = runBesideSlot(id, reapTime, "reap")
	}
	return errors.Join(fmt.Errorf("processes of slot %d do not end", id), last)
}

// killEach kills the listed processes that belong to a user.
func killEach(pids []int, uid int) {
	for _, pid := range pids {
		// The pidfd comes first: a pid may be reused at any time, but a pidfd always means the same process.
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if s, err := proc.ReadStatus(pid); err == nil && slices.Contains(s.UID[:], uid) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // it may have ended
		}
		_ = unix.Close(fd)
	}
}

// findAlive reports whether the slot's user has no process, or lists those alive. While /proc is being read, a process
// can start another one in the part already read, and end. So a reading counts only if no process started during it.
// The zombies in such a reading are sandboxd's children, since all other possible parents have ended. findAlive
// reaps them.
func (c *Container) findAlive(id slot.ID) (alive []int, none bool, err error) {
	for range 3 {
		before, err := proc.LastPID()
		if err != nil {
			return nil, false, err
		}
		alive, dead, err := proc.ListOfUser(id.UID(), c.newOthersMatcher(id))
		if err != nil || len(alive) > 0 {
			return alive, false, err
		}
		after, err := proc.LastPID()
		if err != nil {
			return nil, false, err
		}
		if before == after {
			for _, pid := range dead {
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			}
			return nil, true, nil
		}
	}
	return nil, false, nil
}

func (t *containerProcess) OutFolder() string           { return sandboxapi.OutDir(t.slot) }
func (t *containerProcess) MainPID() int                { return t.main }
func (t *containerProcess) Memory() int64               { return t.memory.totalMemory(t.main) }
func (t *containerProcess) DoneSignal() <-chan struct{} { return t.done }
func (t *containerProcess) Status() Status              { return t.status }
func (t *containerProcess) Remove() error               { return t.remove() }

// RemovedBytes implements Process. Only the slot's user may read the descriptors of its processes.
func (t *containerProcess) RemovedBytes(device uint64) int64 {
	return t.runCountCommand("unnamed", strconv.FormatUint(device, 10))
}

// runCountCommand returns the number that a command prints beside the slot's processes. If those stop the command, the
// result exceeds any limit.
func (t *containerProcess) runCountCommand(command string, args ...string) int64 {
	out, err := runBesideSlot(t.slot, measureTime, command, args...)
	if err == nil {
		var n int64
		if n, err = strconv.ParseInt(out, 10, 64); err == nil {
			return n
		}
	}
	if t.ending.Load() { // killSlotProcesses, not code, may have killed the command
		return 0
	}
	return math.MaxInt64
}

// CountWritten implements Process.
func (t *containerProcess) CountWritten(dir string, since time.Time, enough int64) (c quota.FileCount) {
	dirs := []string{dir}
	switch dir { // no slot can list these two
	case sandboxapi.HomesDir:
		dirs = []string{sandboxapi.HomeDir(t.slot), sandboxapi.OutDir(t.slot)}
	case t.jail.cfg.Work:
		dirs = []string{filepath.Join(t.jail.slotDir(t.slot), "deno")}
	}
	for _, dir := range dirs {
		var one quota.FileCount
		out, err := runBesideSlot(t.slot, measureTime, "written", dir, fmt.Sprint(since.UnixNano()), fmt.Sprint(enough))
		if err != nil || json.Unmarshal([]byte(out), &one) != nil {
			return quota.FileCount{Hidden: !t.ending.Load()} // as in runCountCommand
		}
		c = quota.FileCount{Bytes: c.Bytes + one.Bytes, Files: c.Files + one.Files, Hidden: c.Hidden || one.Hidden}
	}
	return c
}

func (t *containerProcess) WriteMain(code []byte) error { return t.writeMain(code) }

func (t *containerProcess) WriteFile(name string, data []byte) error {
	if dir := filepath.Dir(name); dir != "." {
		err := makeGroupDir(filepath.Join(t.jail.slotDir(t.slot), dir), BasePrivateGroup+int(t.slot), 0o750)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return t.jail.writePrivate(t.slot, name, data)
}

func (t *containerProcess) LinkSkills(names []string) error {
	return linkSkills(filepath.Join(t.jail.slotDir(t.slot), SkillDir), SkillsDir, names)
}

// Kill implements Process. waitForEnd kills the user's other processes.
func (t *containerProcess) Kill() { _ = t.root.Kill() }

func (t *containerProcess) CheckConfinement() error {
	pid := t.root.Pid
	s, err := proc.ReadStatus(pid)
	if err != nil {
		return err
	}
	if err := checkStatus(s, t.slot.UID(), t.group); err != nil {
		return err
	}
	groups := s.Groups
	if t.jail.cfg.Shared { // container engines add the primary group to the supplementary groups
		groups = slices.DeleteFunc(slices.Clone(groups), func(g int) bool { return g == t.group })
	}
	if want := []int{BasePrivateGroup + int(t.slot)}; !slices.Equal(groups, want) {
		return fmt.Errorf("the interpreter is in the groups %v, want %v", s.Groups, want)
	}
	if s.Seccomp != 2 {
		return errors.New("no seccomp filter is loaded")
	}
	// Code has not been sent yet, so the user must have no other process, such as one left by the previous run.
	alive, _, err := proc.ListOfUser(t.slot.UID(), t.jail.newOthersMatcher(t.slot))
	if err != nil {
		return err
	}
	if !slices.Equal(alive, []int{pid}) {
		return fmt.Errorf("user %d has the processes %v, want only the interpreter %d", t.slot.UID(), alive, pid)
	}
	t.main = pid
	if t.isDeno {
		t.jail.cache.keepFrom(filepath.Join(t.jail.slotDir(t.slot), "deno"))
	}
	return nil
}

const (
	// measureTime and reapTime bound programs that run beside processes of the same user, which can stop them.
	measureTime = 15 * time.Second
	reapTime    = 3 * time.Second
)

// runBesideSlot is runAsSlot with a time limit, for use while processes of the slot run. If they stop or kill the
// program, runBesideSlot returns an error.
func runBesideSlot(id slot.ID, limit time.Duration, command string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return runAsSlot(ctx, id, command, args...)
}

// runAsSlot runs a command of sandboxd, such as "wipe", as the slot's user and returns its output, at most 4 KiB. It
// kills the command when ctx ends.
func runAsSlot(ctx context.Context, id slot.ID, command string, args ...string) (string, error) {
	plan := confine.ProcessSpec{
		NetNS: -1, UID: id.UID(), GID: slot.GroupID, Groups: []int{BasePrivateGroup + int(id)}, NoNewPrivs: true,
		Dir: "/", Argv: append([]string{"/proc/self/exe", command}, args...),
	}
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	p, err := plan.Start([]*os.File{nil, w, os.Stderr}, syscall.SysProcAttr{Setpgid: true})
	// Without this Close, ReadAll below would never see the end of the pipe.
	_ = w.Close()
	if err != nil {
		return "", fmt.Errorf("starting %s as slot %d: %w", command, id, err)
	}
	defer context.AfterFunc(ctx, func() { _ = p.Kill() })()
	out, _ := io.ReadAll(io.LimitReader(r, 4<<10))
	state, err := p.Wait()
	if err != nil {
		return "", err
	}
	if !state.Success() {
		return "", fmt.Errorf("%s as slot %d: %s", command, id, state)
	}
	return string(out), nil
}
