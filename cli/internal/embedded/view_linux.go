package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/cli/internal/hostfolder"
	"github.com/codeforge-mcp/codeforge/internal/convert"
)

// tmpSize is the size of the sandbox's /tmp.
const tmpSize = "256m"

// hostView is the daemons' view of the host's files: a small private tree of bind mounts.
//
// Only its owner can access the state directory, which may be below directories that other users cannot enter. But
// mcp-server and the slots run as other users. The view gives them paths to the files that they need, short enough for
// unix sockets, in a mount namespace that only the daemons see.
type hostView struct{ base string }

// viewFolders maps names in the view to folders of the state directory.
var viewFolders = [...]struct{ name, source string }{
	{"run", "run"},
	{"ca", "ca-public"},
	{"skills", "skills"},
	{"runs", "runs"},
	{"sandboxd", "sandboxd"},
	{"logins", "logins"},
	{"pins", "pins"},
	{"history", "history"},
	{"tenants", "tenants"},
	{"tmp", "tmp"},
}

// makeView mounts the view, the sandbox's /tmp and a /proc of this process namespace. The caller must be process 1 of
// separate mount and process namespaces.
func makeView(p supervisorSetup) (hostView, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return hostView{}, fmt.Errorf("making mounts private: %w", err)
	}
	const inert = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", "/proc", "proc", inert, ""); err != nil {
		return hostView{}, fmt.Errorf("mounting /proc: %w", err)
	}
	tmp := filepath.Join(p.State, "tmp")
	if err := unix.Mount("codeforge-tmp", tmp, "tmpfs", inert, "size="+tmpSize+",mode=1777"); err != nil {
		return hostView{}, fmt.Errorf("mounting the sandbox's /tmp: %w", err)
	}
	needed := append([]string{p.State, p.Bin, p.Deno, p.TypeScript, p.UV, p.Programs}, p.Keep...)
	base, err := findPlace(append(needed, convert.Each(p.Folders, func(f hostfolder.Folder) string { return f.Path })...))
	if err != nil {
		return hostView{}, err
	}
	// The sources must stay reachable while the view is filled, so none of them may be below base.
	if err := unix.Mount("codeforge", base, "tmpfs", inert, "size=1m,mode=755"); err != nil {
		return hostView{}, fmt.Errorf("mounting the daemons' view: %w", err)
	}
	v := hostView{base}
	for _, f := range viewFolders {
		if err := v.bindMount(filepath.Join(p.State, f.source), f.name, true); err != nil {
			return hostView{}, err
		}
		// A bind mount takes its flags only from a remount (mount(2)).
		if err := remountNoexec(v.Path(f.name)); err != nil {
			return hostView{}, fmt.Errorf("making %s noexec: %w", f.source, err)
		}
	}
	for _, m := range []struct{ name, size string }{{"code", codeSize}, {"out", outSize}} {
		if err := v.makeMemoryFolder(m.name, m.size, inert); err != nil {
			return hostView{}, err
		}
	}
	for _, f := range []struct{ source, name string }{
		{p.Bin, "bin"}, {p.Programs, "programs"}, {p.TypeScript, "typescript"},
		{filepath.Join(p.State, "packages"), "packages"}, // packages of PyPI have libraries in machine code
	} {
		if f.source == "" {
			continue
		}
		if err := v.bindMount(f.source, f.name, true); err != nil {
			return hostView{}, err
		}
	}
	for _, f := range p.Folders {
		if err := v.bindFolder(f); err != nil {
			return hostView{}, fmt.Errorf("the folder %s of the host: %w", f.Name, err)
		}
	}
	if p.UV != "" {
		if err := v.bindMount(p.UV, "uv", false); err != nil {
			return hostView{}, err
		}
	}
	return v, v.bindMount(p.Deno, "deno", false)
}

// foldersName is the folder of the view with the folders of the host.
const foldersName = "folders"

// bindFolder mounts a folder of the host in the view. The path may have changed since the check, so a link in it is an
// error.
func (v hostView) bindFolder(f hostfolder.Folder) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, f.Path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := os.MkdirAll(v.Path(foldersName), 0o755); err != nil { //nolint:gosec // as in bindMount
		return err
	}
	name := filepath.Join(foldersName, f.Name)
	if err := v.bindMount("/proc/self/fd/"+strconv.Itoa(fd), name, true); err != nil {
		return err
	}
	attr := &unix.MountAttr{Attr_set: inertMount}
	//defence:folder-readonly
	if !f.Write {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	// Kernels before 5.12 lack mount_setattr, and with them a way to protect everything that is mounted below.
	return unix.MountSetattr(unix.AT_FDCWD, v.Path(name), unix.AT_RECURSIVE, attr)
}

// Places for the view. The first are folders that most systems have and few use; they must be empty. The last resort
// may hold files, and the view hides those from the daemons.
var (
	unused     = []string{"/usr/local/games", "/usr/games", "/var/local", "/var/opt", "/media", "/srv", "/mnt", "/opt"}
	lastResort = []string{"/dev/shm", "/media", "/srv", "/mnt", "/opt"}
	errNoPlace = errors.New("no directory to mount the daemons' view on: create /srv, and keep the state and apis " +
		"directories out of it")
)

// findPlace chooses the directory to mount the view on. Every user must be able to enter it, and it must contain no
// path that the daemons need.
func findPlace(needed []string) (string, error) {
	for _, dir := range unused {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 && isUsable(dir, needed) {
			return dir, nil
		}
	}
	for _, dir := range lastResort {
		if isUsable(dir, needed) {
			return dir, nil
		}
	}
	return "", errNoPlace
}

func isUsable(dir string, needed []string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && info.Mode().Perm()&0o001 != 0 && !isAbove(dir, needed)
}

func isAbove(dir string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return p == dir || strings.HasPrefix(p, dir+"/") })
}

// Sizes of the folders for the code of current runs, and for the files that they write to /out.
const (
	codeSize = "128m"
	outSize  = "256m"
)

// makeMemoryFolder mounts a folder for current runs. The folder is in memory, so runs never wait for a disk.
func (v hostView) makeMemoryFolder(name, size string, flags uintptr) error {
	dir := v.Path(name)
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // sandboxes reach it under other users
		return fmt.Errorf("making the daemons' view: %w", err)
	}
	if err := unix.Mount("codeforge-"+name, dir, "tmpfs", flags, "size="+size+",mode=755"); err != nil {
		return fmt.Errorf("mounting the folder %s of runs: %w", name, err)
	}
	return nil
}

func (v hostView) bindMount(source, name string, dir bool) error {
	target := v.Path(name)
	var err error
	if dir {
		err = os.Mkdir(target, 0o755) //nolint:gosec // a mount point that every user of the view may enter
	} else {
		err = os.WriteFile(target, nil, 0o444) //nolint:gosec // as above
	}
	if err != nil {
		return fmt.Errorf("making the daemons' view: %w", err)
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting %s for the daemons: %w", source, err)
	}
	return nil
}

// inertMount are the attributes of mounts with files that code wrote, or that code sees.
const inertMount = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC

// remountNoexec makes files that code wrote non-executable, inside the sandbox and outside. Kernels before 5.12 lack
// mount_setattr.
func remountNoexec(target string) error {
	attr := &unix.MountAttr{Attr_set: inertMount}
	err := unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, attr)
	if errors.Is(err, unix.ENOSYS) {
		const flags = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RELATIME
		return unix.Mount("", target, "", flags, "")
	}
	return err
}

// Path returns a path in the view.
func (v hostView) Path(elem ...string) string {
	return filepath.Join(append([]string{v.base}, elem...)...)
}
