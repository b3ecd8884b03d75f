package confine

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

// buildDir is the folder on which a stage is built, before it becomes the root. Every machine has /tmp, and the mount
// hides its content only in the stage's mount namespace.
const buildDir = "/tmp"

// StageEntry is one file or folder of a stage.
type StageEntry struct {
	Kind Kind
	// Path is absolute, as the stage has it.
	Path string
	// Source is a path of the host, and the target of a Link.
	Source string
}

// Kind is the kind of an Entry.
type Kind string

// The kinds. The first five are bind mounts of Source with everything that is mounted below it.
const (
	ReadOnly Kind = "read-only" // without devices
	Data     Kind = "data"      // read-only, without devices and programs
	Writable Kind = "writable"  // without devices
	Device   Kind = "device"
	Plain    Kind = "plain" // with the flags that the host has
	Copy     Kind = "copy"  // a copy of the file Source
	Folder   Kind = "folder"
	Link     Kind = "link"
	Hidden   Kind = "hidden" // an empty folder over the folder that an earlier entry has at Path
)

// flags returns the flags that a bind mount gets.
func (k Kind) flags() uint64 {
	switch k {
	case ReadOnly:
		return unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	case Data:
		return ReadOnly.flags() | unix.MOUNT_ATTR_NOEXEC
	case Writable:
		return unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	case Device:
		return unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
	}
	return 0
}

// isMount reports whether entries of this kind are bind mounts.
func (k Kind) isMount() bool {
	return k == ReadOnly || k == Data || k == Writable || k == Device || k == Plain
}

// StageBinds moves this process into a new mount namespace that contains only the entries, below a read-only root.
// Through the namespace bubblewrap, by then without privileges, reaches files in directories that are closed to the
// slots. A sandbox copies all mounts of its namespace, so the mounts of the host would make each start slower. The
// namespace lives as long as one of its descriptors is open. Call StageBinds on a locked thread of a process that does
// nothing else.
func StageBinds(entries []StageEntry) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	syscall.Umask(0) // the slots' users enter the folders
	// Without this, the mounts below would appear on the host (mount_namespaces(7), shared subtrees).
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	// All sources are opened before buildDir is covered, because some may lie below it.
	fds := make([]int, len(entries))
	for i, e := range entries {
		if !e.Kind.isMount() && e.Kind != Copy {
			continue
		}
		fd, err := unix.Open(e.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening %s: %w", e.Source, err)
		}
		fds[i] = fd
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("stage", buildDir, "tmpfs", flags, "mode=0755,size=1m"); err != nil {
		return fmt.Errorf("mounting a tmpfs on %s: %w", buildDir, err)
	}
	for i, e := range entries {
		if err := e.build(fds[i]); err != nil {
			return fmt.Errorf("staging %s: %w", e.Path, err)
		}
		if fds[i] != 0 {
			_ = unix.Close(fds[i])
		}
	}
	if err := unix.Mount("", buildDir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|flags, ""); err != nil {
		return fmt.Errorf("making the stage read-only: %w", err)
	}
	return becomeRoot(buildDir)
}

// becomeRoot makes a mount the root, and detaches all others.
func becomeRoot(dir string) error {
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	// The second "." puts the old root over the new one, so that Unmount finds it there (pivot_root(2)).
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detaching the host's mounts: %w", err)
	}
	return unix.Chdir("/")
}

// build makes the entry below buildDir. fd is its open source, if it has one.
func (e StageEntry) build(fd int) error {
	at, source := filepath.Join(buildDir, e.Path), "/proc/self/fd/"+strconv.Itoa(fd)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	switch e.Kind {
	case Folder:
		return os.MkdirAll(at, 0o755)
	case Link:
		return os.Symlink(e.Source, at)
	case Copy:
		data, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		return os.WriteFile(at, data, 0o444) //nolint:gosec // at is below buildDir: ServeStage checks Path
	case Hidden:
		const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
		return unix.Mount("hidden", at, "tmpfs", flags, "mode=0555,size="+strconv.Itoa(os.Getpagesize()))
	}
	if !e.Kind.isMount() {
		return fmt.Errorf("unknown kind %q", e.Kind)
	}
	if err := makeMountPoint(fd, at); err != nil {
		return err
	}
	if err := unix.Mount(source, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	flags := e.Kind.flags()
	if flags == 0 {
		return nil
	}
	return unix.MountSetattr(unix.AT_FDCWD, at, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: flags})
}

// makeMountPoint makes a folder for an open folder, and a file for anything else.
func makeMountPoint(fd int, at string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return os.MkdirAll(at, 0o755)
	}
	return os.WriteFile(at, nil, 0o444)
}

// NewStage starts "sandboxd stage", which makes a stage, and returns the descriptor of its mount namespace.
func NewStage(entries []StageEntry) (*os.File, error) {
	args := []string{"stage"}
	for _, e := range entries {
		args = append(args, string(e.Kind), e.Path, e.Source)
	}
	cmd := exec.Command("/proc/self/exe", args...) //nolint:noctx // it ends when stdin does
	cmd.Args[0] = program
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
	var entries []StageEntry
	for ; len(args) >= 3; args = args[3:] {
		e := StageEntry{Kind(args[0]), args[1], args[2]}
		if !filepath.IsAbs(e.Path) || filepath.Clean(e.Path) != e.Path {
			return fmt.Errorf("stage: %q is not a path", e.Path)
		}
		entries = append(entries, e)
	}
	if len(args) != 0 {
		return errors.New("stage: want KIND PATH SOURCE for each entry")
	}
	if err := StageBinds(entries); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, unix.Gettid()); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, in)
	return err
}
