package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"golang.org/x/sys/unix"
)

// testLimit is for the tests of one package, without compiling them.
const testLimit = 90 * time.Second

// lab is where mutants are tried.
type lab struct {
	root, dir string
	users     map[string][]string // packages with tests that import one, by its folder
	slow      map[string]bool     // packages whose tests take longer than testLimit here
}

// newLab makes a folder for what compilers and tests write. It adopts the processes that tests leave behind, and limits
// the memory and the files of a mutant that never stops to allocate or to write.
func newLab(root string) (*lab, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	for _, resource := range []int{unix.RLIMIT_DATA, unix.RLIMIT_FSIZE} {
		var limit unix.Rlimit
		err = errors.Join(err, unix.Getrlimit(resource, &limit))
		limit.Cur = min(limit.Max, 4<<30)
		err = errors.Join(err, unix.Setrlimit(resource, &limit))
	}
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "m") // short, because tests make sockets in it
	if err != nil {
		return nil, err
	}
	l := &lab{root: root, dir: dir, users: map[string][]string{}, slow: map[string]bool{}}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(l.tmp(), 0o755)); err != nil { // some tests give up root
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) close() { _ = os.RemoveAll(l.dir) }

func (l *lab) tmp() string { return filepath.Join(l.dir, "t") }

// tryMutant runs the tests of a mutant's package, then the tests of some packages that import it. The latter count only
// if they end in time.
func (l *lab) tryMutant(ctx context.Context, m mutant, most int) (result, error) {
	if l.slow[m.pkg] {
		return result{text: unsound}, nil
	}
	source, err := os.ReadFile(filepath.Join(l.root, m.file))
	if err != nil {
		return result{}, err
	}
	changed := string(source[:m.from]) + m.new + string(source[m.to:])
	to, overlay := filepath.Join(l.dir, "mutant.txt"), filepath.Join(l.dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(l.root, m.file): to}})
	if err := errors.Join(err, os.WriteFile(to, []byte(changed), 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		return result{}, err
	}
	users := slices.Clone(l.users[m.pkg])
	// Near packages use more of it, and have faster tests than those of other products.
	slices.SortStableFunc(users, func(a, b string) int { return sharedPath(b, m.pkg) - sharedPath(a, m.pkg) })
	for i, packages := range [][]string{{m.pkg}, users[:min(most, len(users))]} {
		if len(packages) == 0 {
			break
		}
		// In GOFLAGS, because some tests build programs themselves.
		text := l.runTests(ctx, packages, "-overlay="+overlay, "-failfast")
		if text == "" {
			continue
		}
		r := result{text: []string{killed, byOthers}[i]}
		if f := failedTest.FindStringSubmatch(text); f != nil {
			r.test = f[1]
		}
		switch {
		case strings.Contains(text, "[build failed]"):
			return result{text: noBuild}, nil
		case strings.Contains(text, "panic: test timed out"):
			if r = (result{text: timedOut}); i > 0 {
				return result{text: survived}, nil
			}
		}
		pattern := "."
		if r.test != "" {
			pattern = "^" + r.test + "$"
		}
		if l.runTests(ctx, packages, "", "-run", pattern) != "" {
			l.slow[m.pkg] = r.text == timedOut
			r.text = unsound
		}
		return r, nil
	}
	return result{text: survived}, nil
}

var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// sharedPath counts the folders at the beginning of both paths.
func sharedPath(a, b string) int {
	for ; a != "."; a = path.Dir(a) {
		if strings.HasPrefix(b+"/", a+"/") {
			return strings.Count(a, "/") + 1
		}
	}
	return 0
}

// runTests runs go test with a further flag in GOFLAGS. The result is its output if it fails, and empty if all tests
// pass.
func (l *lab) runTests(ctx context.Context, packages []string, flag string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	args = slices.Concat([]string{"test", "-vet=off", "-timeout", testLimit.String()}, args)
	for _, pkg := range packages {
		args = append(args, "./"+pkg)
	}
	cmd := l.newCommand(ctx, args...)
	cmd.Env = append(cmd.Env, "GOFLAGS="+os.Getenv("GOFLAGS")+" "+flag)
	name := filepath.Join(l.dir, "output.txt") // a process that stays would keep a pipe open
	file, err := os.Create(name)
	if err != nil {
		return err.Error()
	}
	cmd.Stdout, cmd.Stderr = file, file
	err = cmd.Run()
	killOrphans()
	_ = file.Close()
	_ = os.RemoveAll(l.tmp())
	_ = os.Mkdir(l.tmp(), 0o755)
	if err == nil {
		return ""
	}
	text, _ := os.ReadFile(name)
	return err.Error() + "\n" + string(text)
}

// newCommand makes a command of go that ends with all processes of its group.
func (l *lab) newCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = l.root
	cmd.Env = append(os.Environ(), "TMPDIR="+l.tmp())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// killOrphans kills the processes that tests have left behind. The kernel makes them children of this process, and then
// the children of each one that ends. It gives up after five seconds, because a process may hang in the kernel.
func killOrphans() {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		children, _ := proc.ListChildren(os.Getpid())
		for _, pid := range children {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		for pid := 1; pid > 0; {
			var err error
			// Wait for any child, because /proc may belong to another pid namespace and lack some children.
			if pid, err = syscall.Wait4(-1, nil, syscall.WNOHANG, nil); errors.Is(err, syscall.ECHILD) {
				return
			}
		}
	}
}
