package testkit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Postgres is a real Postgres for a test, on a loopback address. It stops with the test.
type Postgres struct {
	// Address is its host and port. Password is the password of its user codeforge.
	Address, Password string

	tb       testing.TB
	bin, dir string
	as       *syscall.SysProcAttr
	cmd      *exec.Cmd
	ended    chan struct{} // closed when cmd has ended
}

// NewPostgres starts a server. If Debian's package postgresql is not installed, it skips the test.
func NewPostgres(tb testing.TB) *Postgres {
	tb.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		SkipBecause(tb, "there is no Postgres: install Debian's package postgresql")
	}
	slices.Sort(found)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(tb, err)
	Must(tb, l.Close())
	dir, err := os.MkdirTemp("", "codeforge-postgres-")
	Must(tb, err)
	p := &Postgres{
		Address: l.Addr().String(), Password: "the-password-of-the-test", tb: tb,
		bin: filepath.Dir(found[len(found)-1]), dir: dir,
		as: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}
	tb.Cleanup(func() { p.Stop(); _ = os.RemoveAll(dir) })
	if os.Getuid() == 0 { // Postgres refuses to run as root
		nobody, err := user.Lookup("nobody")
		Must(tb, err)
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		Must(tb, os.Chown(dir, uid, gid))
		p.as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // ids are small
	}
	p.copyTemplate()
	p.Start()
	return p
}

// copyTemplate fills the data folder. One initdb takes as long as ten copies of its result, so the result is kept in
// .tools/postgres, which git ignores, under a name for the version, the user and the options.
func (p *Postgres) copyTemplate() {
	p.tb.Helper()
	data, word := filepath.Join(p.dir, "data"), filepath.Join(p.dir, "password")
	options := []string{"-U", "codeforge", "-A", "scram-sha-256", "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync",
		"--wal-segsize", "1"}
	key := sha256.Sum256(fmt.Append(nil, p.bin, os.Getuid(), p.Password, options))
	templates := filepath.Join(RootDir(p.tb), ".tools", "postgres")
	template := filepath.Join(templates, hex.EncodeToString(key[:8]))
	if copyTree(template, data) == nil {
		return
	}
	Must(p.tb, os.RemoveAll(data))
	Must(p.tb, os.WriteFile(word, []byte(p.Password+"\n"), 0o644)) //nolint:gosec // of the test
	initdb := p.newCommand("initdb", append(options, "-D", data, "--pwfile", word)...)
	if out, err := initdb.CombinedOutput(); err != nil {
		p.tb.Fatalf("initdb: %v\n%s", err, out)
	}
	Must(p.tb, os.MkdirAll(templates, 0o755)) //nolint:gosec // of the tree
	// Another process may do the same: the first rename wins, and the other one fails.
	fresh, err := os.MkdirTemp(templates, "fresh-")
	Must(p.tb, err)
	defer os.RemoveAll(fresh)
	Must(p.tb, copyTree(data, filepath.Join(fresh, "data")))
	_ = os.Rename(filepath.Join(fresh, "data"), template)
}

// copyTree copies a folder with owners and modes.
func copyTree(from, to string) error {
	return exec.Command("cp", "-a", from, to).Run() //nolint:gosec // paths of the test
}

func (p *Postgres) newCommand(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, name), args...) //nolint:gosec // programs of Debian
	cmd.Dir, cmd.SysProcAttr, cmd.Env, cmd.WaitDelay = p.dir, p.as, []string{"PGPASSWORD=" + p.Password}, 5*time.Second
	return cmd
}

// URL returns the address for clients.
func (p *Postgres) URL() string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("codeforge", p.Password), Host: p.Address, Path: "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Start restarts the server after Stop, at the same address and with the same data.
func (p *Postgres) Start() {
	p.tb.Helper()
	_, port, err := net.SplitHostPort(p.Address)
	Must(p.tb, err)
	p.cmd = p.newCommand("postgres", "-D", "data", "-h", "127.0.0.1", "-p", port, "-k", p.dir, "-F",
		"-c", "log_min_messages=panic")
	p.cmd.Stderr = os.Stderr
	started := make(chan error)
	p.ended = make(chan struct{})
	// The kernel sends Pdeathsig when the thread that started the server ends, so this thread waits for the server. Tests
	// that enter a network namespace end threads.
	go func(ended <-chan struct{}) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- p.cmd.Start()
		<-ended
	}(p.ended)
	if err := <-started; err != nil {
		close(p.ended)
		p.cmd = nil
		p.tb.Fatal(err)
	}
	WaitFor(p.tb, p.isReady)
}

// isReady reports whether the server accepts connections. It reads the server's status file, as pg_ctl does, because
// pg_isready makes the server fork for each look.
func (p *Postgres) isReady() bool {
	const statusLine = 7 // of eight, the first of which is the process
	text, _ := os.ReadFile(filepath.Join(p.dir, "data", "postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	return len(lines) > statusLine && lines[0] == strconv.Itoa(p.cmd.Process.Pid) &&
		strings.TrimSpace(lines[statusLine]) == "ready"
}

// Stop stops the server at once.
func (p *Postgres) Stop() {
	if p.cmd != nil {
		// A process that SIGSTOP has stopped would not end.
		p.SendSignal(syscall.SIGCONT)
		_ = p.cmd.Process.Signal(syscall.SIGINT) // SIGINT also ends its children
		_ = p.cmd.Wait()
		close(p.ended)
		p.cmd = nil
	}
}

// SendSignal sends a signal to the server and to its processes for connections, so that SIGSTOP makes all of them hang.
func (p *Postgres) SendSignal(signal syscall.Signal) {
	p.tb.Helper()
	pid := p.cmd.Process.Pid
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	Must(p.tb, err)
	for _, one := range append(strings.Fields(string(list)), strconv.Itoa(pid)) {
		id, err := strconv.Atoi(one)
		Must(p.tb, err)
		_ = syscall.Kill(id, signal) // it may have ended meanwhile
	}
}

// URLOf returns the server's URL with another user and password.
func (p *Postgres) URLOf(user, password string) string {
	return strings.Replace(p.URL(), url.UserPassword("codeforge", p.Password).String(),
		url.UserPassword(user, password).String(), 1)
}

// RunProgram runs one of Postgres' programs, such as psql or pg_dump, as the user codeforge, and returns its output.
func (p *Postgres) RunProgram(stdin []byte, name string, args ...string) []byte {
	p.tb.Helper()
	host, port, err := net.SplitHostPort(p.Address)
	Must(p.tb, err)
	cmd := p.newCommand(name, append([]string{"-h", host, "-p", port, "-U", "codeforge"}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.tb.Fatalf("%s: %v\n%s", name, err, out)
	}
	return out
}

// Query runs SQL in psql and returns the rows, with | between columns.
func (p *Postgres) Query(format string, args ...any) string {
	p.tb.Helper()
	out := p.RunProgram(nil, "psql", "-d", "postgres", "-qAt", "-c",
		"SET search_path = codeforge; "+fmt.Sprintf(format, args...))
	return string(bytes.TrimSpace(out))
}
