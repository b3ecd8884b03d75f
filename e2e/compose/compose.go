// Package compose starts the Docker stack for tests, built from the working tree, with an upstream in place of the
// internet. It uses its own project name, image tags and volumes. The subnet is that of docker-compose.yml, which
// attacks name, so it refuses to start next to another stack that has it.
package compose

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/turn"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testca"
)

// Project is the tests' project name.
const Project = "codeforge-e2e"

// Sandbox is the name of the sandbox's container.
const Sandbox = Project + "-sandbox"

// ErrUnavailable means that the stack cannot run on this machine. A test that gets it is skipped.
var ErrUnavailable = errors.New("no Docker stack can run here")

// Config describes the stack that a test needs. The zero Config is that of docker-compose.yml.
type Config struct {
	// Root is the repository.
	Root string
	// APIs is the folder that becomes apis/. Required.
	APIs string
	// Env are settings, as in .env.
	Env map[string]string
	// Known are credentials a hostile upstream knows, by token name.
	Known map[string]string
	// TrustCA adds the upstream's authority to UPSTREAM_CA_FILE, for hosts in no API.
	TrustCA bool
	// NoSocket adds docker-compose.nosocket.yml.
	NoSocket bool
	// Registry is a folder of npm packages that the upstream serves; empty means none.
	Registry string
	// Hosts are handlers of this process for names of the upstream.
	Hosts map[string]http.Handler
	// Interpreter is the path of a program that replaces Deno in the sandbox.
	Interpreter string
	// Extra are more compose files, below Root.
	Extra []string
	// Build builds the images before the first Up. Without it they must exist.
	Build bool
}

// Stack is a running stack.
type Stack struct {
	// URL is the MCP endpoint, e.g. "http://127.0.0.1:8080/mcp".
	URL string
	// Upstream tells which requests arrived.
	Upstream upstream.Remote
	// CA is the path of the upstream's authority as the proxy sees it.
	CA string

	cfg     Config
	dir     string
	env     []string
	release func() // ends this stack's turn
	hosts   []*http.Server
}

// Available returns an ErrUnavailable that says why no stack can run here, or nil.
func Available(ctx context.Context) error {
	if out, err := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: no Docker engine answers: %s", ErrUnavailable, bytes.TrimSpace(out))
	}
	if out, err := exec.CommandContext(ctx, "docker", "compose", "version").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: no docker compose: %s", ErrUnavailable, bytes.TrimSpace(out))
	}
	ids, err := exec.CommandContext(ctx, "docker", "network", "ls", "-q", "--filter", "label=com.docker.compose.network=sandbox-net").Output()
	for id := range strings.FieldsSeq(string(ids)) {
		const of = `{{index .Labels "com.docker.compose.project"}} {{range .IPAM.Config}}{{.Subnet}}{{end}}`
		about, _ := exec.CommandContext(ctx, "docker", "network", "inspect", "-f", of, id).Output() //nolint:gosec // an id
		if project, subnet, _ := strings.Cut(strings.TrimSpace(string(about)), " "); subnet == slot.DefaultNetwork+".0/24" && project != Project {
			return fmt.Errorf("%w: the stack %q has the network %s: docker compose down", ErrUnavailable, project, subnet)
		}
	}
	return err
}

// New prepares a stack without starting anything.
func New(cfg Config) (*Stack, error) {
	dir, err := os.MkdirTemp("", "codeforge-compose-")
	if err != nil {
		return nil, err
	}
	s := &Stack{cfg: cfg, dir: dir, CA: "/e2e/ca.pem"}
	port, err := FreePort()
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	control, err := FreePort()
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	if err := errors.Join(s.writeCA(), s.serveHosts()); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	s.URL = fmt.Sprintf("http://127.0.0.1:%d/mcp", port)
	s.Upstream = upstream.Remote(fmt.Sprintf("http://127.0.0.1:%d", control))
	env := map[string]string{
		"COMPOSE_PROJECT_NAME": Project, "COMPOSE_FILE": s.files(), "COMPOSE_ENV_FILES": filepath.Join(dir, "none.env"),
		"CODEFORGE_TAG": "e2e", "CODEFORGE_APIS": cfg.APIs, "MCP_PORT": strconv.Itoa(port),
		"E2E_DIR": dir, "E2E_REGISTRY": cmp.Or(cfg.Registry, filepath.Join(dir, "ca")), "E2E_CONTROL_PORT": strconv.Itoa(control),
	}
	for k, v := range cfg.Env {
		env[k] = v
	}
	if cfg.Interpreter != "" {
		env["E2E_INTERPRETER"] = cfg.Interpreter
	}
	if cfg.TrustCA {
		env["UPSTREAM_CA_FILE"] = filepath.Join(dir, "ca", "ca.pem")
	}
	// The user's own .env and settings must have no effect.
	for _, name := range []string{"PATH", "HOME", "GOPROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "DOCKER_HOST", "DOCKER_BUILDKIT"} {
		if v, ok := os.LookupEnv(name); ok {
			s.env = append(s.env, name+"="+v)
		}
	}
	for k, v := range env {
		s.env = append(s.env, k+"="+v)
	}
	return s, os.WriteFile(filepath.Join(dir, "none.env"), nil, 0o600)
}

// files is COMPOSE_FILE.
func (s *Stack) files() string {
	files := []string{"docker-compose.yml"}
	if s.cfg.NoSocket {
		files = append(files, "docker-compose.nosocket.yml")
	}
	files = append(files, "e2e/docker-compose.e2e.yml")
	if s.cfg.Interpreter != "" {
		files = append(files, "e2e/docker-compose.intruder.yml")
	}
	files = append(files, s.cfg.Extra...)
	for i, f := range files {
		files[i] = filepath.Join(s.cfg.Root, f)
	}
	return strings.Join(files, ":")
}

// writeCA writes the files that the upstream's container reads.
func (s *Stack) writeCA() error {
	dir := filepath.Join(s.dir, "ca")
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // read in a container
		return err
	}
	ca, err := testca.New("CodeForge e2e upstream")
	if err != nil {
		return err
	}
	known, err := json.Marshal(s.cfg.Known)
	if err != nil {
		return err
	}
	return errors.Join(ca.Save(dir), os.WriteFile(filepath.Join(dir, "known.json"), known, 0o644), //nolint:gosec // canaries
		os.Chmod(s.dir, 0o755)) //nolint:gosec // see above
}

// Up starts the stack and waits until every service is healthy. Stacks of several test processes take turns, from Up
// to Down: they have one name.
func (s *Stack) Up(ctx context.Context) error {
	if err := s.Turn(ctx); err != nil {
		return err
	}
	args := []string{"up", "-d", "--wait", "--wait-timeout", "240"}
	if s.cfg.Build {
		args = append(args, "--build")
	}
	if out, err := s.Compose(ctx, args...); err != nil {
		logs, _ := s.Compose(ctx, "logs", "--tail", "40")
		return fmt.Errorf("%w\n%s\n%s", err, out, logs)
	}
	s.cfg.Build = false // built
	return nil
}

// Down stops the stack and removes its volumes and files.
func (s *Stack) Down() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	_, err := s.Compose(ctx, "down", "-v", "--timeout", "5", "--remove-orphans")
	if s.release != nil {
		s.release()
		s.release = nil
	}
	return errors.Join(err, s.remove())
}

// Turn waits until no other process has a stack, and removes what a killed process left behind. Up calls it.
func (s *Stack) Turn(ctx context.Context) error {
	if s.release != nil {
		return nil
	}
	release, err := Turn(ctx)
	if err != nil {
		return err
	}
	s.release = release
	_, err = s.Compose(ctx, "down", "-v", "--timeout", "1", "--remove-orphans")
	return err
}

// Turn is for a test that starts the stack itself, under the name Project. It waits until no other test process has a
// stack. release gives the turn back.
func Turn(ctx context.Context) (release func(), err error) { return turn.Take(ctx, "docker") }

// WithoutSocket adds or leaves out docker-compose.nosocket.yml from the next Up on.
func (s *Stack) WithoutSocket(on bool) {
	s.cfg.NoSocket = on
	s.setFiles()
}

// With replaces the extra compose files from the next Up on.
func (s *Stack) With(extra ...string) {
	s.cfg.Extra = extra
	s.setFiles()
}

// setFiles updates COMPOSE_FILE.
func (s *Stack) setFiles() {
	for i, kv := range s.env {
		if strings.HasPrefix(kv, "COMPOSE_FILE=") {
			s.env[i] = "COMPOSE_FILE=" + s.files()
		}
	}
}

// serveHosts serves each of Config.Hosts on a unix socket, to which the upstream in its container leads.
func (s *Stack) serveHosts() error {
	dir := filepath.Join(s.dir, "ca", upstream.HostsDir)
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // read in a container
		return err
	}
	for name, handler := range s.cfg.Hosts {
		l, err := net.Listen("unix", filepath.Join(dir, name)) //nolint:noctx // closed with the stack
		if err != nil {
			return err
		}
		srv := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
		s.hosts = append(s.hosts, srv)
		go func() { _ = srv.Serve(l) }()
	}
	return nil
}

func (s *Stack) remove() error {
	var errs []error
	for _, srv := range s.hosts {
		errs = append(errs, srv.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// Compose runs docker compose on this stack and returns everything it printed.
func (s *Stack) Compose(ctx context.Context, args ...string) (string, error) {
	return s.run(exec.CommandContext(ctx, "docker", append([]string{"compose"}, args...)...)) //nolint:gosec // fixed by the tests
}

// ComposeWith is Compose with other settings, "NAME=value", for this one command.
func (s *Stack) ComposeWith(ctx context.Context, settings []string, args ...string) (string, error) {
	changed := *s
	changed.env = slices.Concat(s.env, settings)
	return changed.Compose(ctx, args...)
}

// Exec runs a command in a service's container, with input on stdin.
func (s *Stack) Exec(ctx context.Context, input, service string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", append([]string{"compose", "exec", "-T", service}, args...)...) //nolint:gosec // see Compose
	cmd.Stdin = strings.NewReader(input)
	return s.run(cmd)
}

func (s *Stack) run(cmd *exec.Cmd) (string, error) {
	cmd.Dir, cmd.Env = s.cfg.Root, s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, tail(out))
	}
	return string(out), nil
}

// Volume is the path of a volume on this machine. Only root can read it, and only on the engine's machine.
func (s *Stack) Volume(ctx context.Context, name string) (string, error) {
	out, err := s.run(exec.CommandContext(ctx, "docker", "volume", "inspect", "-f", "{{.Mountpoint}}", Project+"_"+name)) //nolint:gosec // see Compose
	return strings.TrimSpace(out), err
}

// Processes are the command lines of all processes in a service's container.
func (s *Stack) Processes(ctx context.Context, service string) ([]string, error) {
	out, err := s.run(exec.CommandContext(ctx, "docker", "top", s.Container(service), "-eo", "pid,args")) //nolint:gosec // see Compose
	if err != nil {
		return nil, err
	}
	var list []string
	for line := range strings.Lines(out) {
		_, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		list = append(list, strings.TrimSpace(args))
	}
	return list[1:], nil // behind the heading
}

// Top are the ids of all processes in a service's container, as the engine's machine has them.
func (s *Stack) Top(ctx context.Context, service string) ([]int, error) {
	out, err := s.run(exec.CommandContext(ctx, "docker", "top", s.Container(service), "-eo", "pid")) //nolint:gosec // see Compose
	if err != nil {
		return nil, err
	}
	var list []int
	for _, word := range strings.Fields(out)[1:] { // behind the heading
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		list = append(list, pid)
	}
	return list, nil
}

// Direct is a command that runs a program of the sandbox's image next to the upstream, without CodeForge. It trusts the
// upstream's authority.
func (s *Stack) Direct(ctx context.Context, program string, args ...string) *exec.Cmd {
	run := []string{
		"run", "--rm", "-i", "--network", Project + "_egress-net", "-v", filepath.Join(s.dir, "ca") + ":/ca:ro",
		"-e", "SSL_CERT_FILE=/ca/ca.pem", "-e", "REQUESTS_CA_BUNDLE=/ca/ca.pem", "--entrypoint", program, "codeforge/sandbox:e2e",
	}
	cmd := exec.CommandContext(ctx, "docker", append(run, args...)...) //nolint:gosec // the tests' own
	cmd.Env = s.env
	return cmd
}

// Environ is the environment in which docker compose finds this stack.
func (s *Stack) Environ() []string { return slices.Clone(s.env) }

// Container is the name of a service's container.
func (s *Stack) Container(service string) string {
	if service == "sandbox" {
		return Sandbox
	}
	return Project + "-" + service + "-1"
}

// Logs is what every service has logged.
func (s *Stack) Logs() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, _ := s.Compose(ctx, "logs", "--no-color")
	return out
}

func tail(b []byte) []byte {
	const most = 4 << 10
	if len(b) > most {
		return b[len(b)-most:]
	}
	return b
}

// Inspect is the engine's description of the stack's containers, as JSON.
func (s *Stack) Inspect(ctx context.Context) (string, error) {
	ids, err := s.Compose(ctx, "ps", "-aq")
	if err != nil {
		return "", err
	}
	return s.run(exec.CommandContext(ctx, "docker", append([]string{"inspect"}, strings.Fields(ids)...)...)) //nolint:gosec // see Compose
}

// FreePort returns a port that is free at the moment. It is below the range from which the kernel takes ports for
// connections: such a connection could take the port before the caller listens.
func FreePort() (int, error) {
	var failed error
	for range 100 {
		port := 10_000 + rand.IntN(20_000)
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
		failed = err
	}
	return 0, failed
}
