package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/token"
	"go/types"
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

// The tests of a mutant's package and those of a dependant may take this long without a mutant, without compiling them.
const (
	testLimit = 150 * time.Second
	userLimit = 15 * time.Second
)

// lab is where mutants are tried.
type lab struct {
	root, dir string
	users     map[string][]string // packages with tests that import one, by its folder
	files     map[string][]string // the names of a package's files
	set       *token.FileSet
	importer  types.Importer
	sources   map[string]*source
	programs  map[string]*program // the tests of packages, with all switches
}

// program is the compiled tests of a package.
type program struct {
	pkg, path, overlay string
	switches           []int64       // where path has the number of the mutant that is on
	tried              time.Duration // how long its tests could take without a mutant
	limit              time.Duration // with a mutant; 0 if the tests fail or take too long without one
	skip               string        // matches the tests that fail without a mutant
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
	l := &lab{root: root, dir: dir, users: map[string][]string{}, files: map[string][]string{}, set: token.NewFileSet(),
		sources: map[string]*source{}, programs: map[string]*program{}}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(l.tmp(), 0o755)); err != nil { // some tests give up root
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) close() { _ = os.RemoveAll(l.dir) }

func (l *lab) tmp() string { return filepath.Join(l.dir, "t") }

// tryMutant runs the tests of a mutant's package, then those of some packages that import it. The latter count only if
// they end in time.
func (l *lab) tryMutant(ctx context.Context, m mutant, most int) (result, error) {
	users := slices.Clone(l.users[m.pkg])
	// Near packages use more of it, and have faster tests than those of other products.
	slices.SortStableFunc(users, func(a, b string) int { return sharedPath(b, m.pkg) - sharedPath(a, m.pkg) })
	for _, pkg := range append([]string{m.pkg}, users[:min(most, len(users))]...) {
		p, err := l.buildProgram(ctx, pkg)
		if err != nil {
			return result{}, err
		}
		limit := userLimit
		if pkg == m.pkg {
			limit = testLimit
		}
		if p.limit == 0 && p.tried < limit {
			l.measureTests(ctx, p, limit)
		}
		switch {
		case p.limit == 0 && pkg == m.pkg:
			return result{text: unsound}, nil
		case p.limit == 0:
			continue
		}
		changed := p
		if m.id != 0 {
			err = l.turnOn(p, m.pkg, switchName(m.id))
		} else if changed, err = l.buildAlone(ctx, p, m); changed == nil {
			return result{text: noBuild}, err
		}
		if err != nil {
			return result{}, err
		}
		text := l.runTests(ctx, changed, ".")
		if err := l.turnOn(p, m.pkg, switchOff); err != nil {
			return result{}, err
		}
		switch {
		case text == "" || isLate(text) && pkg != m.pkg:
			continue
		case isLate(text):
			return result{text: timedOut}, nil
		}
		r := result{text: killed}
		if pkg != m.pkg {
			r.text = byOthers
		}
		if f := failedTest.FindStringSubmatch(text); f != nil {
			if r.test = f[1]; l.runTests(ctx, p, "^"+r.test+"$") != "" {
				r.text = unsound
			}
		}
		return r, nil
	}
	return result{text: survived}, nil
}

// buildProgram compiles the tests of a package with all switches.
func (l *lab) buildProgram(ctx context.Context, pkg string) (*program, error) {
	if p := l.programs[pkg]; p != nil {
		return p, nil
	}
	p := &program{pkg: pkg, path: filepath.Join(l.dir, strings.ReplaceAll(pkg, "/", "-")+".test"), overlay: "switched"}
	l.programs[pkg] = p
	if text := l.compileTests(ctx, p); text != "" {
		return nil, fmt.Errorf("go test -c %s: %s", pkg, text)
	}
	data, err := os.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	for at := 0; ; at += len(switchOff) {
		i := bytes.Index(data[at:], []byte(switchOff))
		if i < 0 {
			break
		}
		at += i
		p.switches = append(p.switches, int64(at))
	}
	return p, nil
}

// measureTests measures how long tests take without a mutant. They may take most. It finds those that fail.
func (l *lab) measureTests(ctx context.Context, p *program, most time.Duration) {
	start := time.Now()
	p.tried, p.limit = most, most
	text := l.runTests(ctx, p, ".", "-test.failfast=false")
	took := time.Since(start)
	if p.limit = took + min(2*took, time.Minute) + 5*time.Second; text == "" {
		return
	}
	var failed []string
	for _, f := range failedTest.FindAllStringSubmatch(text, -1) {
		failed = append(failed, f[1])
	}
	p.skip = "^(" + strings.Join(failed, "|") + ")$"
	if isLate(text) || len(failed) == 0 || l.runTests(ctx, p, ".") != "" {
		p.limit, p.skip = 0, ""
	}
	if ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "%s: tests fail without a mutant: %s\n", p.pkg, strings.Join(failed, " "))
	}
}

// isLate reports whether the output of tests is that of a timeout.
func isLate(text string) bool {
	return strings.Contains(text, "panic: test timed out") || strings.HasPrefix(text, "signal: killed")
}

// buildAlone compiles the tests of a program with one mutant and no switches. The result is nil if that fails.
func (l *lab) buildAlone(ctx context.Context, p *program, m mutant) (*program, error) {
	s, err := l.loadSource(m.pkg)
	if err != nil {
		return nil, err
	}
	alone := *p
	alone.path, alone.overlay = filepath.Join(l.dir, "alone.test"), "alone"
	err = l.writeOverlay(alone.overlay, map[string]string{m.file: s.applyAlone(m)})
	if err != nil || l.compileTests(ctx, &alone) != "" {
		return nil, err
	}
	return &alone, nil
}

// turnOn turns a mutant on in a program, and in the programs that its tests build.
func (l *lab) turnOn(p *program, pkg, name string) error {
	s, err := l.loadSource(pkg)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(p.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for _, at := range p.switches {
		_, err2 := f.WriteAt([]byte(name), at)
		err = errors.Join(err, err2)
	}
	text := fmt.Sprintf(switchText, s.name, name)
	return errors.Join(err, f.Close(), os.WriteFile(filepath.Join(l.dir, p.overlay, pkg, switchFile), []byte(text), 0o644))
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

// compileTests compiles the tests of a package. The result is the compiler's output if it fails.
func (l *lab) compileTests(ctx context.Context, p *program) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	// Linking without symbols takes a quarter less time.
	return l.runCommand(l.newCommand(ctx, l.overlay(p.overlay), "go", "test", "-c", "-vet=off", "-ldflags=-s -w",
		"-o", p.path, "./"+p.pkg))
}

// runTests runs the tests of a program that match a pattern until one fails. The result is its output in that case, and
// empty if all tests pass.
func (l *lab) runTests(ctx context.Context, p *program, pattern string, flags ...string) string {
	ctx, cancel := context.WithTimeout(ctx, p.limit+10*time.Second)
	defer cancel()
	args := append([]string{"-test.paniconexit0", "-test.failfast", "-test.timeout=" + p.limit.String(), "-test.run=" + pattern},
		flags...)
	if p.skip != "" {
		args = append(args, "-test.skip="+p.skip)
	}
	cmd := l.newCommand(ctx, l.overlay(p.overlay), p.path, args...)
	cmd.Dir = filepath.Join(l.root, p.pkg)
	cmd.Env = append(cmd.Env, "PWD="+cmd.Dir)
	return l.runCommand(cmd)
}

// runCommand runs a command and ends all processes that it started. The result is its output if it fails.
func (l *lab) runCommand(cmd *exec.Cmd) string {
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

// newCommand makes a command that ends with all processes of its group. The overlay is in GOFLAGS, because some tests
// build programs themselves.
func (l *lab) newCommand(ctx context.Context, overlay, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = l.root
	cmd.Env = append(os.Environ(), "TMPDIR="+l.tmp())
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	}
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
