package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/privilege"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
)

const (
	superviseEnv  = "SANDBOX_RIG_MODE"
	slotsEnv      = "SANDBOX_RIG_SLOTS"
	serversEnv    = "SANDBOX_RIG_SERVERS"
	bridgeEnv     = "SANDBOX_RIG_BRIDGE"
	programsEnv   = "SANDBOX_RIG_PROGRAMS"
	typescriptEnv = "SANDBOX_RIG_TYPESCRIPT"
	foldersEnv    = "SANDBOX_RIG_FOLDERS"
	dirEnv        = "SANDBOX_RIG_DIR"
	denoEnv       = "SANDBOX_RIG_DENO"
	pythonEnv     = "SANDBOX_RIG_PYTHON" // the program, and the folder of its library
	noSysEnv      = "SANDBOX_RIG_NO_SYS"
	closedEnv     = "SANDBOX_RIG_CLOSED"
	// disarmEnv names the defences to switch off: see e2e/negative/armed.
	disarmEnv = "CODEFORGE_DISARM"
)

// RunTests is TestMain: the test binary also supervises sandboxd.
func RunTests(m *testing.M) {
	if mode := os.Getenv(superviseEnv); mode != "" {
		fmt.Fprintln(os.Stderr, "supervisor:", superviseDaemon(Mode(mode)))
		os.Exit(1)
	}
	code := m.Run()
	if build.path != "" {
		_ = os.RemoveAll(strings.TrimSuffix(build.path, "/sandboxd"))
	}
	os.Exit(code)
}

// superviseDaemon prepares the files that sandboxd inherits, and execs it.
func superviseDaemon(mode Mode) error {
	if mode == User && os.Geteuid() != 0 {
		return enterUserNamespace()
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if os.Getenv(noSysEnv) != "" {
		if err := unix.Mount("nothing", "/sys", "tmpfs", unix.MS_RDONLY, "size=4k"); err != nil {
			return fmt.Errorf("hiding /sys: %w", err)
		}
	}
	if err := mountFolders(filepath.Join(os.Getenv(dirEnv), "folders")); err != nil {
		return err
	}
	if mode == Container {
		if err := makeContainerRoot(os.Getenv(dirEnv), os.Getenv(denoEnv), os.Args[1]); err != nil {
			return err
		}
		return becomeContainer()
	}
	env := append(disarmedEnviron(), "PATH="+os.Getenv("PATH"))
	n, err := strconv.Atoi(os.Getenv(slotsEnv))
	if err != nil {
		return err
	}
	servers, err := strconv.Atoi(os.Getenv(serversEnv))
	if err != nil {
		return err
	}
	var names []string
	// High numbers first: the namespaces' own descriptors could lie at 3 and up.
	for i, id := range slot.IDs(n, servers) {
		fd, err := newNamespace()
		if err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		if err := unix.Dup3(fd, 100+i, 0); err != nil {
			return err
		}
		names = append(names, slot.FileName(id, slot.NetNS))
	}
	for i := range n + servers {
		if err := unix.Dup3(100+i, 3+i, 0); err != nil {
			return err
		}
		_ = unix.Close(100 + i)
	}
	if os.Getenv(closedEnv) != "" {
		for fd := range 3 {
			_ = unix.Close(fd)
		}
	}
	return syscall.Exec(os.Args[1], os.Args[1:], append(env, slot.ChildEnviron(names)...))
}

// mountFolders mounts the folders of the host below dir, as the supervisor of embedded mode and Docker do.
func mountFolders(dir string) error {
	var list []jail.Folder
	if err := json.Unmarshal([]byte(os.Getenv(foldersEnv)), &list); err != nil {
		return err
	}
	for _, f := range list {
		at := filepath.Join(dir, f.Name)
		if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := unix.Mount(f.Source, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mounting the folder %s: %w", f.Name, err)
		}
		attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}
		if !f.Write {
			attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
		}
		if err := unix.MountSetattr(unix.AT_FDCWD, at, unix.AT_RECURSIVE, attr); err != nil {
			return err
		}
	}
	return nil
}

// disarmedEnviron returns the variable that switches defences off in programs built by e2e/negative/armed.
func disarmedEnviron() []string {
	return []string{disarmEnv + "=" + os.Getenv(disarmEnv)}
}

// enterUserNamespace starts this program again as root of a user namespace, forwards signals to it and waits for it.
func enterUserNamespace() error {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		Pdeathsig:   syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: UserUID, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: UserUID, Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("making a user namespace: %w", err)
	}
	forwardSignals(cmd.Process)
	if err := cmd.Wait(); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}

// forwardSignals passes on the signals that end sandboxd.
func forwardSignals(p *os.Process) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for s := range c {
			_ = p.Signal(s)
		}
	}()
}

// newNamespace makes a network namespace in which every address is local.
func newNamespace() (int, error) {
	type made struct {
		fd  int
		err error
	}
	result := make(chan made)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ns, err := netns.New()
		if err == nil {
			err = makeAllLocal()
		}
		result <- made{int(ns), err}
	}()
	m := <-result
	return m.fd, m.err
}

func makeAllLocal() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	all := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	return netlink.RouteAdd(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Dst: all, Type: unix.RTN_LOCAL, Table: 255, Scope: netlink.SCOPE_HOST,
	})
}

// pythonFolders are folders of the machine that Python reads besides its library: the time zones, and the locale of LANG.
var pythonFolders = []string{"/usr/share/zoneinfo", "/usr/lib/locale/C.utf8"}

// Paths of programs in the container.
const (
	inDeno       = "/usr/local/bin/deno"
	inSandboxd   = "/usr/local/bin/sandboxd"
	inBridge     = "/usr/local/bin/mcp-bridge"
	inTypeScript = "/usr/local/lib/typescript"
)

// makeContainerRoot makes a root directory like the image's, and changes into it.
func makeContainerRoot(dir, deno, sandboxd string) error {
	root := filepath.Join(dir, "root")
	if err := unix.Mount("root", root, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mounting the root: %w", err)
	}
	type mount struct{ from, to string }
	mounts := []mount{
		{"/lib", "/lib"}, {"/lib64", "/lib64"}, {deno, inDeno}, {sandboxd, inSandboxd},
		{dir + "/run", "/run/sandboxd"}, {dir + "/runs", "/runs"}, {dir + "/skills", "/skills"}, {dir + "/tmp", "/tmp"},
		{dir + "/state", "/var/lib/sandboxd"}, {dir + "/ca.pem", "/etc/codeforge/ca.pem"}, {"/dev/null", "/dev/null"},
		{dir + "/packages", "/packages"}, {dir + "/home", "/home"}, {dir + "/folders", "/folders"},
	}
	if program, library, ok := strings.Cut(os.Getenv(pythonEnv), ":"); ok {
		mounts = append(mounts, mount{program, program}, mount{library, library})
		for _, dir := range pythonFolders {
			if _, err := os.Stat(dir); err == nil {
				mounts = append(mounts, mount{dir, dir})
			}
		}
	}
	if typescript := os.Getenv(typescriptEnv); typescript != "" {
		mounts = append(mounts, mount{typescript, inTypeScript})
	}
	if bridge := os.Getenv(bridgeEnv); bridge != "" {
		mounts = append(mounts, mount{bridge, inBridge})
	}
	if programs := os.Getenv(programsEnv); programs != "" {
		mounts = append(mounts, mount{programs, "/programs"})
	}
	for _, m := range mounts {
		info, err := os.Stat(m.from)
		if err != nil {
			return err
		}
		to := filepath.Join(root, m.to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if info.IsDir() {
			err = os.MkdirAll(to, 0o755)
		} else {
			err = os.WriteFile(to, nil, 0o644)
		}
		if err != nil {
			return err
		}
		if err := unix.Mount(m.from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.to, err)
		}
	}
	links := errors.Join(os.Symlink("/proc/self/fd/4", root+"/out"), os.Symlink("/proc/self/fd/5/files", root+"/files"))
	if links != nil {
		return links
	}
	for _, d := range []string{"/proc", "/code"} {
		if err := os.Mkdir(root+d, 0o711); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", root+"/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	// sandboxd is ready only if code can resolve a name.
	for name, text := range map[string]string{
		"hosts": "127.0.0.1 mcp.codeforge.internal\n", "nsswitch.conf": "hosts: files dns\n",
	} {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if lo, err := netlink.LinkByName("lo"); err != nil || netlink.LinkSetUp(lo) != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	if err := unix.Chroot(root); err != nil {
		return err
	}
	return os.Chdir("/")
}

// becomeContainer drops all capabilities except the container's, and execs sandboxd.
func becomeContainer() error {
	runtime.LockOSThread()
	keep := []int{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL}
	if err := errors.Join(privilege.DropBounding(keep...), privilege.DropThread(keep...)); err != nil {
		return err
	}
	return syscall.Exec(inSandboxd, os.Args[1:], disarmedEnviron())
}
