// Package world makes a whole running CodeForge for a test: the daemons, APIs with canary credentials, and a hostile
// upstream, in embedded mode or in Docker.
//
// Embedded tests run in their own namespaces: Main starts the test binary again in a new network, mount and pid
// namespace (and, for an ordinary user, user namespace). There the upstream can listen on 443, names resolve as the
// test wants, and leftovers of a test can be found, because every process, mount and network device belongs to the
// test. The machine is not touched, and two test runs do not affect each other.
package world

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// Mode says where CodeForge runs.
type Mode string

// The modes.
const (
	Embedded Mode = "embedded"
	Docker   Mode = "docker"
	// Kubernetes needs the node that .ci/k8s/up starts.
	Kubernetes Mode = "kubernetes"
)

// The environment of the stages.
const (
	modeVar  = "CODEFORGE_E2E_MODE"
	stageVar = "CODEFORGE_E2E_STAGE"
	binVar   = "CODEFORGE_E2E_BIN"
	rootVar  = "CODEFORGE_E2E_ROOT"
)

// shared is a tmpfs of the tests' mount namespace, for files of tests and for binaries that every user can read.
const shared = "/mnt"

// Main runs a package's tests in the mode that CODEFORGE_E2E_MODE names (default: embedded) and returns the exit code.
// Call it from TestMain. Before the tests leave the machine's network, it calls each of before with the root of the
// source tree, to fetch what the tests need.
func Main(m *testing.M, before ...func(root string)) int {
	switch stage := os.Getenv(stageVar); stage {
	case "init":
		return initStage()
	case "exec":
		return execStage()
	case "tests":
		return m.Run()
	}
	root, err := Root()
	if err != nil {
		return fail(err)
	}
	for _, b := range before {
		b(root)
	}
	switch mode := Mode(os.Getenv(modeVar)); mode {
	case Embedded, "":
		return outside(root)
	case Docker:
		return m.Run()
	case Kubernetes:
		return insideCluster(root)
	default:
		fmt.Fprintf(os.Stderr, "%s=%q: want embedded, docker or kubernetes\n", modeVar, mode)
		return 1
	}
}

// CurrentMode is the mode of this test process.
func CurrentMode() Mode {
	switch mode := Mode(os.Getenv(modeVar)); mode {
	case Docker, Kubernetes:
		return mode
	}
	return Embedded
}

// RunInOneMode skips a test outside of embedded mode unless testkit.IsThorough. The reason says why modes cannot differ.
func RunInOneMode(t testing.TB, why string) {
	t.Helper()
	if CurrentMode() != Embedded && !testkit.IsThorough() {
		t.Skipf("runs in embedded mode only: %s", why)
	}
}

// outside builds the binaries and runs this test binary again in new namespaces.
func outside(root string) int {
	runtime.LockOSThread() // Pdeathsig follows the thread
	bin, err := build(root)
	if err != nil {
		return fail(err)
	}
	cmd := again("init", root, bin)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		cmd.SysProcAttr.AmbientCaps = ambient
	}
	if err := cmd.Start(); err != nil {
		return cannot(fmt.Errorf("making namespaces for the tests: %w", err))
	}
	return wait(cmd)
}

// ambient are the capabilities that an ordinary user's tests have inside their own user namespace.
var ambient = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_PTRACE, unix.CAP_KILL}

// again is this test binary with the same arguments in another stage.
func again(stage, root, bin string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:gosec,noctx // ourselves
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), stageVar+"="+stage, rootVar+"="+root, binVar+"="+bin)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, os.Stdout, os.Stderr
	return cmd
}

// wait forwards signals and returns the exit code.
func wait(cmd *exec.Cmd) int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	defer signal.Stop(signals)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case s := <-signals:
				_ = cmd.Process.Signal(s)
			case <-done:
				return
			}
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if code := exit.ExitCode(); code >= 0 {
			return code
		}
	}
	return fail(err)
}

// initStage is process 1 of the new pid namespace: it prepares the mounts and the network, runs the tests as a child,
// and reaps.
func initStage() int {
	if err := prepare(); err != nil {
		return cannot(err)
	}
	cmd := again("tests", os.Getenv(rootVar), os.Getenv(binVar))
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.AmbientCaps = ambient
	}
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return fail(err)
		}
		if pid == cmd.Process.Pid {
			if status.Signaled() {
				return 128 + int(status.Signal())
			}
			return status.ExitStatus()
		}
	}
}

// execStage drops the ambient capabilities and execs the command in the arguments after "--".
func execStage() int {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fail(err)
	}
	env := os.Environ()
	kept := env[:0]
	for _, e := range env {
		if !strings.HasPrefix(e, "CODEFORGE_E2E_") {
			kept = append(kept, e)
		}
	}
	return fail(syscall.Exec(os.Args[1], os.Args[1:], kept))
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "e2e:", err)
	return 1
}

// cannot reports that the machine forbids something: the tests are skipped, or fail if skips are failures.
func cannot(err error) int {
	if testkit.NoSkip() {
		return fail(err)
	}
	fmt.Println("e2e: skipped:", err)
	return 0
}
