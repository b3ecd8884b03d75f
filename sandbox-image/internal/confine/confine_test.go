package confine

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// The test binary is both the program that enters and the one that is exec'ed, which prints its new identity.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "stage-report" {
		reportStage()
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "report" {
		report()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// report prints this process's identity and limits, and which calls fail.
func report() {
	s, err := proc.ReadStatus(os.Getpid())
	fmt.Println("status", s.UID[0], s.GID[0], s.Groups, s.Caps, s.Bounding, s.NoNewPrivs, s.Seccomp, err)
	fmt.Println("umask", fmt.Sprintf("%o", syscall.Umask(0)))
	for _, l := range []struct {
		name     string
		resource int
	}{{"processes", unix.RLIMIT_NPROC}, {"file size", unix.RLIMIT_FSIZE}, {"open files", unix.RLIMIT_NOFILE}, {"core", unix.RLIMIT_CORE}} {
		var r syscall.Rlimit
		_ = syscall.Getrlimit(l.resource, &r)
		fmt.Println(l.name, r.Max)
	}
	score, _ := os.ReadFile("/proc/self/oom_score_adj")
	fmt.Println("oom", strings.TrimSpace(string(score)))
	fmt.Println("env", os.Environ())
	dir, _ := os.Getwd()
	fmt.Println("dir", dir)
	for fd := 3; fd < 30; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil {
			target, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			fmt.Println("open", fd, target)
		}
	}
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"vsock", func() error { _, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0); return err }},
		{"packet", func() error { _, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); return err }},
		{"unix", func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err }},
		{"tcp", func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); return err }},
		{"newuser", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
		{"io_uring", func() error {
			_, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
			return e
		}},
		{"userfaultfd", func() error {
			_, _, e := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
			return e
		}},
		{"keyctl", func() error {
			_, _, e := unix.Syscall(unix.SYS_KEYCTL, 0, 0, 0)
			return e
		}},
		{"ptrace", func() error { return unix.PtraceAttach(os.Getppid()) }},
		{"bpf", func() error {
			_, _, e := unix.Syscall(unix.SYS_BPF, 0, 0, 0)
			return e
		}},
		{"mount", func() error { return unix.Mount("x", "/tmp", "tmpfs", 0, "") }},
		{"setuid", func() error { return syscall.Setuid(0) }},
	} {
		fmt.Println("try", c.name, c.do())
	}
}

func TestBecome(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "needs root")
	}
	dir, err := os.MkdirTemp("", "enter-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := dir + "/program"
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	leak, err := os.Open("/etc/hostname")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	plan := ProcessSpec{
		NetNS: -1, UID: 20098, GID: 20000, Groups: []int{21098}, Filter: true, NoNewPrivs: true, Processes: 100,
		FileSize: 1 << 20, OpenFiles: 64, Dir: "/", Argv: []string{program, "report"}, Env: []string{"ONLY=this"},
	}
	cmd := exec.Command(program, plan.CommandLine()...)
	cmd.Args[0] = "sandboxd"
	cmd.ExtraFiles = []*os.File{leak}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, want := range []string{
		"status 20098 20000 [21098] 0 0 true 2 <nil>", "umask 7", "processes 100", "file size 1048576", "open files 64",
		"core 0", "oom 1000", "env [ONLY=this]", "dir /",
		"try vsock address family not supported by protocol", "try packet address family not supported by protocol",
		"try unix address family not supported by protocol", "try tcp <nil>", "try newuser operation not permitted",
		"try io_uring function not implemented", "try userfaultfd operation not permitted",
		"try keyctl operation not permitted", "try ptrace operation not permitted", "try bpf operation not permitted",
		"try mount operation not permitted", "try setuid operation not permitted",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q", want)
		}
	}
	if strings.Contains(string(out), "hostname") || t.Failed() {
		t.Errorf("said:\n%s", out)
	}
}

// A namespace that cannot be entered ends the process: code never runs without it.
func TestFailedSetnsIsFatal(t *testing.T) {
	file, err := os.Open("/etc/hostname")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, plan := range []ProcessSpec{
		{NetNS: 3, Argv: []string{"/bin/echo", "ran"}},
		{NetNS: 9, Argv: []string{"/bin/echo", "ran"}},
		{NetNS: -1, MountNS: 3, Argv: []string{"/bin/echo", "ran"}},
	} {
		cmd := exec.Command("/proc/self/exe", plan.CommandLine()...)
		cmd.Args[0] = "sandboxd"
		cmd.ExtraFiles = []*os.File{file}
		if out, err := cmd.CombinedOutput(); err == nil || strings.Contains(string(out), "ran") || !strings.Contains(string(out), "namespace") {
			t.Errorf("%+v: %v %s", plan, err, out)
		}
	}
	runtime.KeepAlive(file)
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{
		{}, {"3"}, {"3", "--"}, {"2", "--", "x"}, {"x", "--", "x"}, {"3", "x"}, {"--uid", "x", "3", "--", "x"}, {"--what", "3", "--", "x"},
	} {
		if p, err := ParsePlan(args); err == nil {
			t.Errorf("%q: %+v", args, p)
		}
	}
	p, err := ParsePlan([]string{"7", "--", "bwrap", "--uid", "1"})
	if err != nil || p.NetNS != 7 || !slices.Equal(p.Argv, []string{"bwrap", "--uid", "1"}) {
		t.Errorf("%+v %v", p, err)
	}
}
