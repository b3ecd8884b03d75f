package embedded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// innerConfig describes the second start of this program.
type innerConfig struct {
	// Args follow the program's name.
	Args []string
	Env  []string
	// Files are inherited from descriptor 3 on.
	Files          []*os.File
	Stdout, Stderr io.Writer
}

// innerProcess is this program in separate mount and process namespaces and, for an ordinary user, a user namespace.
//
// The supervisor is process 1 there. However it ends, even by SIGKILL, the kernel ends every daemon and sandbox with it
// and removes its mounts and network namespaces.
type innerProcess struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// startInner starts the inner process, which dies with this one. Its error names the restriction of the kernel or the
// machine, and a remedy.
func startInner(c innerConfig) (*innerProcess, error) {
	cmd := exec.Command("/proc/self/exe", c.Args...) //nolint:gosec,noctx // this program; the caller stops it
	cmd.Args[0] = "codeforge"
	cmd.Env, cmd.ExtraFiles = c.Env, c.Files
	cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
	cmd.SysProcAttr = cloneAttributes(isPrivileged())
	child := &innerProcess{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread that started the child ends, so this thread waits for the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			child.err = cmd.Wait()
			close(child.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, explainRefusal(err)
	}
	return child, nil
}

// cloneAttributes returns how the child is cloned. A separate session keeps Ctrl-C in the terminal from reaching the
// daemons before the supervisor. It also keeps code away from the terminal.
func cloneAttributes(privileged bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Setsid:     true,
		Pdeathsig:  syscall.SIGKILL,
	}
	if !privileged {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// Signal sends a signal to the child.
func (c *innerProcess) Signal(s os.Signal) { _ = c.cmd.Process.Signal(s) }

// Done is closed when the child has ended.
func (c *innerProcess) Done() <-chan struct{} { return c.done }

// Err returns how the child ended, nil for exit status 0. Call it only after Done.
func (c *innerProcess) Err() error { return c.err }

// isPrivileged reports whether this process may make namespaces and become the slots' users, and whether those users
// exist here. That is true for root, but not for the root of a user namespace with one user.
func isPrivileged() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if os.Geteuid() != 0 || unix.Capget(&header, &data[0]) != nil {
		return false
	}
	for _, c := range []uint{unix.CAP_SYS_ADMIN, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_CHOWN, unix.CAP_NET_ADMIN} {
		if data[c/32].Effective&(1<<(c%32)) == 0 {
			return false
		}
	}
	table, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && proc.HasIDRange(string(table), slot.BaseUID-1, slot.BaseUID+slot.Total-1)
}

// explainRefusal adds a remedy to the kernel's refusal of a namespace.
func explainRefusal(err error) error { return explainWith(err, isRealRoot(), readSysctl) }

// readSysctl returns a setting of the machine, or "" if it is missing.
func readSysctl(name string) string {
	text, _ := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	return strings.TrimSpace(string(text))
}

// isRealRoot reports whether this process is root, and not an ordinary user who is root in a user namespace.
func isRealRoot() bool {
	table, err := os.ReadFile("/proc/self/uid_map")
	return os.Geteuid() == 0 && err == nil && proc.HasIDRange(string(table), 0, 1<<16-1)
}

// explainWith is explainRefusal for given settings of the machine. sysctl returns "" for a missing setting.
func explainWith(err error, root bool, sysctl func(string) string) error {
	// clone(2): ENOSPC and EUSERS mean an exceeded limit, EINVAL a kernel without such namespaces.
	forbids := []error{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EINVAL, unix.EUSERS}
	if !slices.ContainsFunc(forbids, func(target error) bool { return errors.Is(err, target) }) {
		return err
	}
	if explained := explainSettings(err, root, sysctl); explained != nil {
		return explained
	}
	if root {
		return fmt.Errorf("this machine does not let root create namespaces, as in a container without CAP_SYS_ADMIN: "+
			"start the container with --privileged, or use Docker on the host (%w)", err)
	}
	return fmt.Errorf("this machine does not let an ordinary user create namespaces (in a container, its seccomp profile "+
		"may forbid it): start CodeForge as root, or use Docker (%w)", err)
}

// errForbidden is wrapped by the errors of explainSettings.
var errForbidden = errors.New("this kernel forbids what the sandbox needs")

// namespaceSettings are settings of the machine, each with a value that forbids namespaces and a value that allows
// them. ordinary means that the setting does not restrict root.
var namespaceSettings = []struct {
	name, forbids, allows string
	ordinary              bool
}{
	{"user.max_user_namespaces", "0", "15000", false},
	{"kernel.unprivileged_userns_clone", "0", "1", true},             // Debian's
	{"kernel.apparmor_restrict_unprivileged_userns", "1", "0", true}, // Ubuntu's
	{"user.max_mnt_namespaces", "0", "15000", false},
	{"user.max_pid_namespaces", "0", "15000", false},
	{"user.max_net_namespaces", "0", "15000", false},
}

// explainSettings adds the setting that forbids namespaces to err. Without such a setting it returns nil. A start as
// root does not help: bubblewrap then starts as the user of a slot.
func explainSettings(err error, root bool, sysctl func(string) string) error {
	for _, s := range namespaceSettings {
		if sysctl(s.name) == s.forbids && (!root || !s.ordinary) {
			return fmt.Errorf("%w: %s is %s. As root: sysctl -w %s=%s (and put the setting into a file in /etc/sysctl.d/ to "+
				"keep it); or use Docker (%w)", errForbidden, s.name, s.forbids, s.name, s.allows, err)
		}
	}
	return nil
}
