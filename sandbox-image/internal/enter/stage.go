package enter

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// StageDir is the folder in which sources are staged. Every machine has /tmp, and the mount hides its content only in
// the stage's mount namespace.
const StageDir = "/tmp"

// Bind is one staged source.
type Bind struct{ Name, Source string }

// StageBinds moves this process into a new mount namespace in which every source is mounted at StageDir/<name>. Through
// the namespace bubblewrap, by then without privileges, reaches files in directories that are closed to the slots. The
// namespace lives as long as one of its descriptors is open. Call Stage on a locked thread of a process that does
// nothing else.
func StageBinds(binds []Bind) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	// Without this, the mounts below would appear on the host (mount_namespaces(7), shared subtrees).
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	// All sources are opened before StageDir is covered, because some may lie below it.
	fds := make([]int, len(binds))
	for i, b := range binds {
		fd, err := unix.Open(b.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening %s: %w", b.Source, err)
		}
		fds[i] = fd
	}
	if err := unix.Mount("stage", StageDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=64k"); err != nil {
		return fmt.Errorf("mounting a tmpfs on %s: %w", StageDir, err)
	}
	for i, b := range binds {
		if err := bindMount(fds[i], filepath.Join(StageDir, b.Name)); err != nil {
			return fmt.Errorf("staging %s: %w", b.Source, err)
		}
		_ = unix.Close(fds[i])
	}
	return nil
}

// bindMount mounts an open file or directory on a new path.
func bindMount(fd int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
	} else if err := os.WriteFile(path, nil, 0o444); err != nil {
		return err
	}
	return unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), path, "", unix.MS_BIND|unix.MS_REC, "")
}

// NewStage starts "sandboxd stage", which makes a stage, and returns the descriptor of its mount namespace.
func NewStage(binds []Bind) (*os.File, error) {
	args := []string{"stage"}
	for _, b := range binds {
		args = append(args, b.Name+"="+b.Source)
	}
	cmd := exec.Command("/proc/self/exe", args...) //nolint:noctx // it ends when stdin does
	cmd.Args[0] = "sandboxd"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting sandboxd stage: %w", err)
	}
	// The thread's id, not the process's: only the locked thread is in the new namespace.
	var thread int
	_, err = fmt.Fscanln(out, &thread)
	var ns *os.File
	if err == nil {
		ns, err = os.Open(fmt.Sprintf("/proc/%d/task/%d/ns/mnt", cmd.Process.Pid, thread))
	}
	// The open descriptor keeps the namespace alive, so the process may end.
	_ = in.Close()
	if waited := cmd.Wait(); err == nil {
		err = waited
	}
	if err != nil {
		return nil, fmt.Errorf("making the stage: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return ns, nil
}

// ServeStage implements "sandboxd stage". It makes the stage, prints the id of the thread in it, and waits until its
// input is closed.
func ServeStage(args []string, in io.Reader, out io.Writer) error {
	runtime.LockOSThread()
	var binds []Bind
	for _, a := range args {
		name, source, ok := strings.Cut(a, "=")
		if !ok || name == "" || strings.ContainsAny(name, "/.") {
			return errors.New("stage: want NAME=PATH")
		}
		binds = append(binds, Bind{name, source})
	}
	if err := StageBinds(binds); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, unix.Gettid()); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, in)
	return err
}
