package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/compose"
	"github.com/codeforge-mcp/codeforge/e2e/registry"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/internal/testca"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// Process is a started `codeforge` command.
type Process struct {
	Cmd *exec.Cmd
	// Dir is its working directory, State its state directory.
	Dir, State string
	Port       int

	out  *testkit.Buffer
	keys io.Writer // of its terminal
	done chan struct{}
	err  error
}

// Output is what the process has printed so far.
func (p *Process) Output() string { return p.out.String() }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the process ends, at most d, and returns the exit code.
func (p *Process) Wait(d time.Duration) (int, error) {
	select {
	case <-p.done:
	case <-time.After(d):
		return -1, fmt.Errorf("still running after %s", d)
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, p.err
}

// Stop ends the process as Ctrl-C does, and waits.
func (p *Process) Stop() error {
	_ = p.Cmd.Process.Signal(os.Interrupt)
	code, err := p.Wait(30 * time.Second)
	if err != nil {
		_ = p.Cmd.Process.Kill()
		<-p.done
		return err
	}
	if code != 0 {
		return fmt.Errorf("codeforge ended with %d", code)
	}
	return nil
}

// Up is the content of up.json.
type Up struct {
	PID  int    `json:"pid"`
	URL  string `json:"url"`
	Port int    `json:"port"`
}

// Ready waits until the state directory says that CodeForge is up.
func (p *Process) Ready(d time.Duration) (Up, error) {
	end := time.Now().Add(d)
	for {
		var up Up
		data, err := os.ReadFile(filepath.Join(p.State, "up.json"))
		if err == nil && json.Unmarshal(data, &up) == nil && up.PID == p.Cmd.Process.Pid {
			return up, nil
		}
		select {
		case <-p.done:
			return up, fmt.Errorf("codeforge ended at its start: %w\n%s", p.err, p.Output())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			return up, fmt.Errorf("codeforge was not ready after %s\n%s", d, p.Output())
		}
	}
}

// Command is one way to start the command line in the tests' namespaces.
type Command struct {
	User User
	// Dir is the working directory.
	Dir string
	// Args follow "codeforge".
	Args []string
	// Env is added to a small environment of PATH, HOME and DENO_PATH; an empty value removes a variable.
	Env map[string]string
	// Bin is the folder of the binaries; empty means the ones built from the tree.
	Bin string
	// Terminal runs it on a terminal. Its output is what the terminal gets.
	Terminal bool
}

// Launch starts the command.
func Launch(c Command) (*Process, error) {
	if c.Bin == "" {
		c.Bin = filepath.Join(shared, "bin")
	}
	env := map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": c.Dir, "DENO_PATH": filepath.Join(shared, "deno"), "LANG": "C.UTF-8", stageVar: "exec",
	}
	for k, v := range c.Env {
		env[k] = v
	}
	args := append([]string{filepath.Join(c.Bin, "codeforge")}, c.Args...)
	p := &Process{Dir: c.Dir, out: &testkit.Buffer{}, done: make(chan struct{})}
	p.Cmd = exec.Command("/proc/self/exe", args...) //nolint:gosec,noctx // see execStage
	p.Cmd.Dir, p.Cmd.Stdout, p.Cmd.Stderr = c.Dir, p.out, p.out
	for k, v := range env {
		if v != "" {
			p.Cmd.Env = append(p.Cmd.Env, k+"="+v)
		}
	}
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.User == Ordinary && os.Geteuid() == 0 {
		p.Cmd.SysProcAttr.Credential = &syscall.Credential{Uid: ordinaryUID, Gid: ordinaryUID}
	}
	p.Cmd.WaitDelay = 5 * time.Second
	shown := func() {}
	if c.Terminal {
		var err error
		if shown, err = onTerminal(p); err != nil {
			return nil, err
		}
	}
	if err := p.Cmd.Start(); err != nil {
		shown()
		return nil, fmt.Errorf("starting codeforge: %w", err)
	}
	go func() { p.err = p.Cmd.Wait(); shown(); close(p.done) }()
	return p, nil
}

// Tool runs the command and returns its output and exit code.
func Tool(ctx context.Context, c Command) (string, int, error) {
	p, err := Launch(c)
	if err != nil {
		return "", -1, err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		_ = syscall.Kill(-p.Cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
		return p.Output(), -1, ctx.Err()
	}
	code, err := p.Wait(time.Second)
	return p.Output(), code, err
}

// NewDir makes a directory for a world of this user, with the APIs in apis/ and a .env, and returns its path.
func NewDir(user User, apis []API, env map[string]string) (string, error) {
	dir, err := newDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(dir, "apis")
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // see WriteAPIs
		return "", err
	}
	if err := WriteAPIs(folder, apis); err != nil {
		return "", err
	}
	if len(env) > 0 {
		if err := os.WriteFile(filepath.Join(dir, ".env"), []byte(envLines(env)), 0o600); err != nil {
			return "", err
		}
	}
	return dir, own(dir, user)
}

// StartUp starts `codeforge up` in a directory that NewDir made. It does not wait until CodeForge is ready.
func StartUp(user User, dir string, slots int, more ...string) (*Process, error) {
	port, err := compose.FreePort()
	if err != nil {
		return nil, err
	}
	state := filepath.Join(dir, ".codeforge")
	args := []string{"up", "--apis", filepath.Join(dir, "apis"), "--state", state, "--port", strconv.Itoa(port), "--slots", strconv.Itoa(slots)}
	p, err := Launch(Command{User: user, Dir: dir, Args: append(args, more...)})
	if err != nil {
		return nil, err
	}
	p.State, p.Port = state, port
	return p, nil
}

// requirements returns an error for the first requirement of embedded mode that this machine does not meet.
func requirements() error {
	if _, err := os.Stat(filepath.Join(shared, "deno")); err != nil {
		return &MissingError{"no Deno: make build fetches it to .tools/deno, or set DENO_PATH"}
	}
	if _, err := exec.LookPath("bwrap"); err != nil {
		return &MissingError{"no bubblewrap: install the package bubblewrap"}
	}
	return nil
}

// startEmbedded starts an upstream and `codeforge up` in the tests' namespaces.
func (w *World) startEmbedded(cfg Config) (err error) {
	if err := requirements(); err != nil {
		return err
	}
	at := upstream.Embedded
	packages := ""
	if cfg.Registry {
		root, err := Root()
		if err != nil {
			return err
		}
		packages = registry.Dir(root)
	}
	up, ca, err := startUpstream(at, known(w.Canaries), packages, cfg.Hosts)
	if err != nil {
		return err
	}
	w.Upstream = up
	defer func() {
		if err != nil {
			_ = up.Close()
		}
	}()
	apis := cfg.APIs
	if apis == nil {
		apis = Standard(w.Canaries, at.Private.String()+"/32", "ca.pem")
	}
	if cfg.Change != nil {
		apis = cfg.Change(apis)
	}
	if w.Dir, err = NewDir(cfg.User, nil, cfg.Env); err != nil {
		return err
	}
	caPath := filepath.Join(w.Dir, "ca.pem")
	if err := os.WriteFile(caPath, ca.PEM(), 0o644); err != nil { //nolint:gosec // public
		return err
	}
	for _, a := range apis {
		if a.Config["ca_file"] == "ca.pem" {
			a.Config["ca_file"] = caPath
		}
	}
	if err := WriteAPIs(filepath.Join(w.Dir, "apis"), apis); err != nil {
		return err
	}
	if cfg.TrustCA {
		env := map[string]string{"UPSTREAM_CA_FILE": caPath}
		for k, v := range cfg.Env {
			env[k] = v
		}
		if err := os.WriteFile(filepath.Join(w.Dir, ".env"), []byte(envLines(env)), 0o600); err != nil {
			return err
		}
	}
	if err := w.addFolders(Binary("codeforge"), cfg.Folders); err != nil {
		return err
	}
	if err := own(w.Dir, cfg.User); err != nil {
		return err
	}
	var more []string
	if cfg.Interpreter != "" {
		more = []string{"--deno", Binary(cfg.Interpreter)}
	}
	p, err := StartUp(cfg.User, w.Dir, cfg.Slots, more...)
	if err != nil {
		return err
	}
	w.logs = p.Output
	w.stop = func() error {
		return errors.Join(p.Stop(), up.Close(), os.RemoveAll(w.Dir))
	}
	ready, err := p.Ready(60 * time.Second)
	if err != nil {
		return errors.Join(err, w.Close())
	}
	w.URL = ready.URL + "/mcp"
	w.Process = p
	w.control = func() *proxyapi.Client { return proxyapi.NewClient(filepath.Join(p.State, "run", "control.sock")) }
	return nil
}

// addFolders makes folders below Dir, which everybody can use, and adds them with a codeforge.
func (w *World) addFolders(program string, folders []HostFolder) error {
	for _, f := range folders {
		path := filepath.Join(w.Dir, f.Name)
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o777)); err != nil { //nolint:gosec // code has other users
			return err
		}
		for name, text := range f.Files {
			if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o644); err != nil { //nolint:gosec // as above
				return err
			}
		}
		args := []string{"folder", "add", f.Name, path}
		if f.Write {
			args = append(args, "--write")
		}
		cmd := exec.Command(program, args...) //nolint:gosec,noctx // ends at once
		cmd.Dir, cmd.Env = w.Dir, []string{"HOME=/nonexistent", "CODEFORGE_HOME=" + w.Dir}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("codeforge folder add: %w: %s", err, out)
		}
	}
	return nil
}

// startUpstream starts the upstream in this process, with a registry of the packages in a folder, if there is one.
func startUpstream(addrs upstream.Addresses, known map[string]string, packages string, hosts map[string]http.Handler) (*upstream.Server, *testca.CA, error) {
	ca, err := testca.New("CodeForge e2e upstream")
	if err != nil {
		return nil, nil, err
	}
	private, public := addrs.Private.String(), addrs.Public.String()
	s, err := upstream.Start(upstream.Config{
		CA: ca, Addresses: addrs, Known: known, Registry: packages, Hosts: hosts, Listen: listenBeyond,
		// Loopback is a trap: no request of a sandbox may arrive there.
		TLS:  append([]string{private + ":443", public + ":443", "127.0.0.1:443", "[::1]:443"}, at(private, upstream.OtherTLS)...),
		HTTP: append([]string{private + ":80", public + ":80", "127.0.0.1:80", "[::1]:80"}, at(private, upstream.OtherHTTP)...),
		DNS:  []string{"127.0.0.1:53"},
	})
	return s, ca, err
}

// at puts an address in front of ports.
func at(address string, ports []string) []string {
	var out []string
	for _, port := range ports {
		out = append(out, address+port)
	}
	return out
}

// Binary is the path of one of CodeForge's programs, readable by every user.
func Binary(name string) string { return filepath.Join(shared, "bin", name) }

// Program is the path of one of CodeForge's programs in either mode, or an error.
func Program(name string) (string, error) {
	if CurrentMode() == Embedded {
		return Binary(name), nil
	}
	dir, err := built()
	return filepath.Join(dir, name), err
}

// built builds the binaries once per process.
var built = sync.OnceValues(func() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return build(root)
})
