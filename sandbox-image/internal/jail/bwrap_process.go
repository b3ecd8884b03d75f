package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
)

// bwrapProcess is a program in a bubblewrap sandbox. There are three processes: the outer bwrap, the bwrap that is
// process 1 of the pid namespace, and the interpreter.
type bwrapProcess struct {
	jail *Embedded
	slot slot.ID
	dir  string // its private files; empty if it has none
	code string // the path of the code
	// isDeno means an interpreter of TypeScript, which gets its code only after CheckConfinement.
	isDeno bool
	// processes limits how many it may have, threads included; 0: no limit.
	processes uint64
	outer     *os.Process
	info      *os.File // bubblewrap's info pipe
	main      int
	// mounts keeps the sandbox's mount namespace open. CheckConfinement sets it. The kernel takes half a millisecond to
	// tear the namespace down, and the end of a run must not wait for that.
	mounts *os.File

	initKnown chan struct{} // closed when init is set, or bubblewrap ended without reporting it
	init      int           // pid of process 1 of the pid namespace, as seen from here; 0 if there is none
	initFD    int           // pidfd of init, valid when init is not 0

	done   chan struct{}
	status Status

	memory memoryMeter
}

// startWatching starts the goroutines that watch a launched sandbox.
func (b *bwrapProcess) startWatching() {
	go b.readInfo()
	go b.waitForEnd()
}

// readInfo reads the pid of process 1 from bubblewrap's info pipe.
func (b *bwrapProcess) readInfo() {
	defer close(b.initKnown)
	defer b.info.Close()
	var info struct {
		Child int `json:"child-pid"`
	}
	if json.NewDecoder(b.info).Decode(&info) != nil || info.Child == 0 {
		return
	}
	// The kernel cannot have reused the pid, because the process has not been waited for. Its parent bwrap waits only when
	// it ends itself. From then on sandboxd is the parent (PR_SET_CHILD_SUBREAPER).
	fd, err := unix.PidfdOpen(info.Child, 0)
	if err != nil {
		return
	}
	b.init, b.initFD = info.Child, fd
}

// killTimeout bounds how long the kernel may take to kill the processes of a slot.
const killTimeout = 10 * time.Second

// waitForEnd waits for bubblewrap, then kills the pid namespace.
func (b *bwrapProcess) waitForEnd() {
	defer close(b.done)
	state, err := b.outer.Wait()
	<-b.initKnown // soon: bwrap has ended, which closed its end of the info pipe
	// bubblewrap can end before the namespace does. Killing process 1 makes the kernel kill all other processes in it.
	//defence:kill
	if b.init != 0 {
		_ = unix.PidfdSendSignal(b.initFD, unix.SIGKILL, nil, 0)
		b.status.Leftover = awaitExit(b.initFD, killTimeout)
		_ = unix.Close(b.initFD)
	}
	if err != nil {
		b.status.Leftover = errors.Join(b.status.Leftover, err)
		return
	}
	b.status.setExit(state)
	if b.status.Signal == 0 {
		b.status.Signal = signalOf(b.status.Code)
	}
	// If bubblewrap ended before it waited for process 1, we are its parent now.
	var usage syscall.Rusage
	// Wait4 only if process 1 ended within killTimeout: otherwise it would block here for ever.
	//defence:kill
	if b.init != 0 && b.status.Leftover == nil {
		if pid, _ := syscall.Wait4(b.init, nil, 0, &usage); pid == b.init {
			b.status.addUsage(&usage)
		}
	}
}

// crashes are the signals with which the kernel ends a program, most of them after a mistake of the program.
var crashes = []syscall.Signal{
	syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGKILL, syscall.SIGSEGV,
	syscall.SIGSYS,
}

// signalOf returns the signal for which bubblewrap exits with a code, or 0. bubblewrap adds 128 to a signal, but code
// may exit with such a number, too: 130 and 143 are usual. So only the signals in crashes count.
func signalOf(code int) int {
	if slices.Contains(crashes, syscall.Signal(code-128)) {
		return code - 128
	}
	return 0
}

// setExit sets how a process ended, and counts its CPU time and memory.
func (s *Status) setExit(state *os.ProcessState) {
	ws := state.Sys().(syscall.WaitStatus)
	s.Code = ws.ExitStatus()
	if ws.Signaled() {
		s.Signal = int(ws.Signal())
		s.Code = 128 + s.Signal
	}
	s.addUsage(state.SysUsage().(*syscall.Rusage))
}

// addUsage counts the CPU time and memory of a process and of the children it has waited for.
func (s *Status) addUsage(u *syscall.Rusage) {
	s.CPU += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	s.MaxRSS = max(s.MaxRSS, u.Maxrss<<10)
}

// awaitExit waits until the process behind a pidfd has ended, at most for limit. Process 1 of a pid namespace ends only
// after all other processes of the namespace.
func awaitExit(fd int, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		left := time.Until(deadline)
		if left <= 0 {
			return errors.New("the sandbox's process 1 does not end")
		}
		// Milliseconds rounds down: without 1 more, the last millisecond would be a busy loop.
		n, err := unix.Poll(fds, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for the sandbox to end: %w", err)
		}
		if n == 1 {
			return nil
		}
	}
}

func (b *bwrapProcess) MainPID() int  { return b.main }
func (b *bwrapProcess) Memory() int64 { return b.memory.totalMemory(b.main) }
func (b *bwrapProcess) RemovedBytes(dev uint64) int64 {
	return proc.RemovedBytes(b.listProcesses(), dev)
}
func (b *bwrapProcess) HomeBytes() int64 { return 0 }

// CountWritten implements Process. sandboxd has read every file itself, except those that are too deep: they are
// hidden.
func (b *bwrapProcess) CountWritten(string, time.Time, int64) quota.FileCount {
	return quota.FileCount{Hidden: true}
}

func (b *bwrapProcess) DoneSignal() <-chan struct{} { return b.done }
func (b *bwrapProcess) Status() Status              { return b.status }

func (b *bwrapProcess) Remove() error {
	if b.mounts != nil {
		// Closing the last descriptor tears the namespace down, which takes time.
		go b.mounts.Close()
	}
	if b.dir == "" {
		return nil
	}
	return b.jail.removeFolders(b.dir)
}

func (b *bwrapProcess) OutFolder() string { return b.jail.outFolder(b.dir) }

func (b *bwrapProcess) WriteMain(code []byte) error {
	return os.WriteFile(b.code, code, 0o644)
}

func (b *bwrapProcess) WriteFile(name string, data []byte) error {
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

func (b *bwrapProcess) LinkSkills(names []string) error {
	return linkSkills(filepath.Join(b.dir, SkillDir), b.jail.cfg.Skills, names)
}

// infoTimeout bounds the wait for bubblewrap's report of process 1.
const infoTimeout = 5 * time.Second

// Kill implements Process: it kills bubblewrap. Process 1 dies with it (--die-with-parent), and waitForEnd makes sure.
// Kill first waits for the pid of process 1, so that waitForEnd can find a process 1 that survives.
func (b *bwrapProcess) Kill() {
	select {
	case <-b.initKnown:
	case <-time.After(infoTimeout):
	}
	select {
	case <-b.done:
		return
	default:
	}
	_ = b.outer.Kill()
}

func (b *bwrapProcess) CheckConfinement() error {
	<-b.initKnown
	if b.init == 0 {
		return errors.New("bubblewrap did not start")
	}
	children, err := proc.ListChildren(b.init)
	if err != nil {
		return fmt.Errorf("looking for the interpreter: %w", err)
	}
	// Code has not been sent yet, so a second process means that sandboxd did not start it.
	if len(children) != 1 {
		return fmt.Errorf("the sandbox has %d processes, want 1", len(children))
	}
	pid := children[0]
	if err := b.checkNamespaces(pid); err != nil {
		return err
	}
	s, err := proc.ReadStatus(pid)
	if err != nil {
		return err
	}
	uid, gid := os.Geteuid(), os.Getegid()
	if b.jail.ownUIDs {
		uid, gid = b.slot.UID(), slot.GroupID
	}
	//defence:uid
	//defence:capabilities
	if err := checkStatus(s, uid, gid); err != nil {
		return err
	}
	// A capability left in the bounding set could come back by executing a file with capabilities.
	//defence:capabilities
	if s.Bounding != 0 {
		return fmt.Errorf("capabilities can come back (bounding set %x)", s.Bounding)
	}
	// 2 is SECCOMP_MODE_FILTER.
	if s.Seccomp != 2 {
		return errors.New("no seccomp filter is loaded")
	}
	if n := b.processes; n != 0 && !b.jail.ownUIDs {
		// The slots of an ordinary user share one uid, and thus one count of processes outside the sandbox. In the sandbox's
		// user namespace the kernel counts its processes alone, so the limit is set on a process inside.
		if err := unix.Prlimit(pid, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: n, Max: n}, nil); err != nil {
			return fmt.Errorf("limiting processes: %w", err)
		}
	}
	mounts, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return fmt.Errorf("holding the sandbox's mounts: %w", err)
	}
	b.main, b.mounts = pid, mounts
	if b.isDeno {
		b.jail.cache.keepFrom(fmt.Sprintf("/proc/%d/root%s", pid, denoDir))
	}
	return nil
}

// listProcesses lists the sandbox's processes except process 1. All descend from process 1.
func (b *bwrapProcess) listProcesses() (all []int) {
	for queue := []int{b.init}; len(queue) > 0; queue = queue[1:] {
		children, err := proc.ListChildren(queue[0])
		if err != nil {
			continue // it has ended, and process 1 has adopted its children
		}
		queue, all = append(queue, children...), append(all, children...)
	}
	return all
}

// checkNamespaces verifies that the network namespace is the slot's, and that sandboxd shares no other namespace.
func (b *bwrapProcess) checkNamespaces(pid int) error {
	ns, err := proc.NamespaceOf(pid, "net")
	if err != nil {
		return err
	}
	//defence:netns
	if ns != b.jail.netns[b.slot] {
		return fmt.Errorf("the network namespace is %d, want slot %d's %d", ns, b.slot, b.jail.netns[b.slot])
	}
	for kind, ours := range b.jail.ours {
		inside, err := proc.NamespaceOf(pid, kind)
		if err != nil {
			return err
		}
		if inside == ours {
			return fmt.Errorf("the %s namespace is sandboxd's own", kind)
		}
	}
	return nil
}
