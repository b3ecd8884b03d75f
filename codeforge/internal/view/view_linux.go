// Package view is what the daemons see of the host's files: a small private tree of bind mounts.
//
// The state directory is its owner's alone, and may lie deep below directories that other users cannot enter. But
// mcp-server and the slots run as users of their own. The view gives them short paths to what they need, in a mount
// namespace where nobody else sees it. Its paths are short enough for unix sockets too.
package view

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// TmpSize is the size of the sandbox's /tmp.
const TmpSize = "256m"

// Config says what the view shows.
type Config struct {
	// State is the state directory.
	State string
	// Bin is the folder of the binaries, Deno the interpreter.
	Bin, Deno string
	// Keep lists further paths that the daemons must still find under their own names.
	Keep []string
}

// View is the tree.
type View struct{ base string }

// folders are the entries of the view that are folders of the state directory, by name here and there.
var folders = [...]struct{ here, there string }{
	{"run", "run"},
	{"ca", "ca-public"},
	{"skills", "skills"},
	{"runs", "runs"},
	{"sandboxd", "sandboxd"},
	{"tmp", "tmp"},
}

// Make mounts the view, the sandbox's /tmp and a /proc of this process namespace. The caller is process 1 of its own
// mount and process namespaces.
func Make(c Config) (View, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return View{}, fmt.Errorf("leaving the host's mounts alone: %w", err)
	}
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", "/proc", "proc", quiet, ""); err != nil {
		return View{}, fmt.Errorf("mounting /proc: %w", err)
	}
	tmp := filepath.Join(c.State, "tmp")
	if err := unix.Mount("codeforge-tmp", tmp, "tmpfs", quiet, "size="+TmpSize+",mode=1777"); err != nil {
		return View{}, fmt.Errorf("mounting the sandbox's /tmp: %w", err)
	}
	base, err := place(append([]string{c.State, c.Bin, c.Deno}, c.Keep...))
	if err != nil {
		return View{}, err
	}
	// What is mounted over must stay reachable while the view is filled: nothing of it is below base.
	if err := unix.Mount("codeforge", base, "tmpfs", quiet, "size=1m,mode=755"); err != nil {
		return View{}, fmt.Errorf("mounting the daemons' view: %w", err)
	}
	v := View{base}
	for _, f := range folders {
		if err := v.bind(filepath.Join(c.State, f.there), f.here, true); err != nil {
			return View{}, err
		}
		if err := inert(v.Path(f.here)); err != nil {
			return View{}, fmt.Errorf("making %s a folder without programs: %w", f.there, err)
		}
	}
	if err := v.codeDir(quiet); err != nil {
		return View{}, err
	}
	if err := v.bind(c.Bin, "bin", true); err != nil {
		return View{}, err
	}
	return v, v.bind(c.Deno, "deno", false)
}

// Where the view may be mounted: folders that nearly every system has and nearly nobody uses first. Those that are not
// empty are the last resort, since what is in them is hidden from the daemons.
var (
	unused    = []string{"/usr/local/games", "/usr/games", "/var/local", "/var/opt", "/media", "/srv", "/mnt", "/opt"}
	resort    = []string{"/dev/shm", "/media", "/srv", "/mnt", "/opt"}
	errNoRoom = errors.New("no directory to mount the daemons' view on: make /srv, and keep the state and apis directories out of it")
)

// place chooses the directory that the view is mounted over: one that everybody can enter and that is not above
// anything the daemons need.
func place(needed []string) (string, error) {
	for _, dir := range unused {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 && usable(dir, needed) {
			return dir, nil
		}
	}
	for _, dir := range resort {
		if usable(dir, needed) {
			return dir, nil
		}
	}
	return "", errNoRoom
}

func usable(dir string, needed []string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && info.Mode().Perm()&0o001 != 0 && !above(dir, needed)
}

func above(dir string, paths []string) bool {
	for _, p := range paths {
		if p == dir || strings.HasPrefix(p, dir+"/") {
			return true
		}
	}
	return false
}

// codeSize is the size of the folder with the code of the runs under way.
const codeSize = "128m"

// codeDir mounts the folder "code" for what a run is given: code never reaches a disk, and no disk is waited for.
func (v View) codeDir(flags uintptr) error {
	dir := v.Path("code")
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // sandboxes reach it under other users
		return fmt.Errorf("making the daemons' view: %w", err)
	}
	if err := unix.Mount("codeforge-code", dir, "tmpfs", flags, "size="+codeSize+",mode=755"); err != nil {
		return fmt.Errorf("mounting the folder for code: %w", err)
	}
	return nil
}

// bind shows source as the view's name.
func (v View) bind(source, name string, dir bool) error {
	target := v.Path(name)
	var err error
	if dir {
		err = os.Mkdir(target, 0o755) //nolint:gosec // a mount point that every user of the view may enter
	} else {
		err = os.WriteFile(target, nil, 0o444) //nolint:gosec // likewise
	}
	if err != nil {
		return fmt.Errorf("making the daemons' view: %w", err)
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("showing %s to the daemons: %w", source, err)
	}
	return nil
}

// inert keeps what code wrote from being run as a program, in the sandbox or here. Kernels before 5.12 know the older
// way only.
func inert(target string) error {
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
	err := unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, attr)
	if errors.Is(err, unix.ENOSYS) {
		const flags = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RELATIME
		return unix.Mount("", target, "", flags, "")
	}
	return err
}

// Path is a path in the view.
func (v View) Path(elem ...string) string {
	return filepath.Join(append([]string{v.base}, elem...)...)
}
