package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/compose"
	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// User is the user that runs CodeForge in embedded mode.
type User int

// The users.
const (
	// Self is the user of the test.
	Self User = iota
	// Ordinary is a user without privileges: the test's own, or one without a name when the test is root.
	Ordinary
)

// ordinaryUID is the user of Ordinary when the test is root.
const ordinaryUID = 31337

// Config describes the world that a test needs. The zero Config is the standard one.
type Config struct {
	User User
	// APIs are the folders of apis/. Nil means Standard with this world's canaries.
	APIs []API
	// Change, when set, alters the APIs before they are written.
	Change func([]API) []API
	// Env are settings, as .env has them.
	Env map[string]string
	// Slots is the number of slots; zero means 4.
	Slots int
	// Pods and Replicas are how many sandboxes and mcp-servers there are in Kubernetes; zero means one.
	Pods, Replicas int
	// Shared makes all sandboxes in Kubernetes share a proxy.
	Shared bool
	// TrustCA makes the proxy trust the upstream's authority for hosts in no API, for YOLO_MODE.
	TrustCA bool
	// Registry lets the npm packages that registry.Fetch fetched be installed. It sets TrustCA.
	Registry bool
	// Hosts are handlers of the upstream for names of their own.
	Hosts map[string]http.Handler
	// Interpreter replaces Deno: a program of CodeForge's bin folder, by name.
	Interpreter string
	// Folders are folders of the host that codeforge folder adds before the start.
	Folders []HostFolder
}

// HostFolder is a folder Name in Dir, with files by name.
type HostFolder struct {
	Name  string
	Write bool
	Files map[string]string
}

// World is a running CodeForge with an upstream.
type World struct {
	Mode     Mode
	User     User
	Upstream upstream.Observer
	// Canaries are the credentials, by token name.
	Canaries map[string]*canary.Canary
	// URL is where MCP clients connect, e.g. "http://127.0.0.1:8080/mcp".
	URL string
	// Dir holds apis/, and in embedded mode the state directory.
	Dir string
	// Process is `codeforge up`; nil in Docker mode.
	Process *Process
	// Stack is the compose stack; nil in other modes.
	Stack *compose.Stack
	// Cluster is the release in Kubernetes; nil in other modes.
	Cluster *Cluster

	// Token is the bearer token that HTTP sends: MCP_AUTH_TOKEN of Config.Env.
	Token string
	// TokensFile is MCP_TOKENS_FILE of Config.Env.
	TokensFile string
	// As is the user that Dial and HTTP connect as if the test is root; zero means the user that runs CodeForge.
	As int

	leaks   canary.Set
	session *mcp.ClientSession
	stop    func() error
	logs    func() string
	control func() *proxyapi.Client
}

// Start makes a world and stops it when the test ends.
func Start(t testing.TB, cfg Config) *World {
	t.Helper()
	w, err := Open(cfg)
	var missing *MissingError
	if errors.As(err, &missing) {
		testkit.SkipBecause(t, missing.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("closing the world: %v", err)
		}
		if t.Failed() {
			t.Logf("log of CodeForge:\n%s", tail(w.logs(), 12000))
		}
	})
	return w
}

// MissingError says what is missing on this machine.
type MissingError struct{ What string }

// Error names what is missing.
func (e *MissingError) Error() string { return e.What }

// Open makes a world for a caller that closes it.
func Open(cfg Config) (*World, error) {
	if cfg.Slots == 0 {
		cfg.Slots = 4
	}
	w := &World{Mode: CurrentMode(), User: cfg.User, Canaries: Canaries(), Token: cfg.Env["MCP_AUTH_TOKEN"], TokensFile: cfg.Env["MCP_TOKENS_FILE"]}
	w.leaks = canary.Join(w.Canaries)
	if cfg.Registry {
		env := map[string]string{
			"PACKAGE_REGISTRY": "https://" + upstream.Registry + "/", "PACKAGE_REGISTRY_PRIVATE": upstream.Embedded.Private.String() + "/32",
		}
		maps.Copy(env, cfg.Env)
		cfg.Env, cfg.TrustCA = env, true
	}
	start := w.startEmbedded
	switch w.Mode {
	case Docker:
		start = w.startDocker
	case Kubernetes:
		start = w.startKubernetes
	}
	if err := start(cfg); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	var err error
	if w.session, err = w.Connect(ctx); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Connect opens another MCP session.
func (w *World) Connect(ctx context.Context) (*mcp.ClientSession, error) {
	return w.ConnectAs(ctx, nil, "")
}

// ConnectAs is Connect for another client, of a revision of the protocol if one is named.
func (w *World) ConnectAs(ctx context.Context, opts *mcp.ClientOptions, protocol string) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "codeforge-e2e", Version: "1"}, opts)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: w.URL, HTTPClient: w.HTTP()},
		&mcp.ClientSessionOptions{ProtocolVersion: protocol})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", w.URL, err)
	}
	return session, nil
}

// Dial connects to the MCP endpoint as HTTP does.
func (w *World) Dial(ctx context.Context) (net.Conn, error) {
	u, err := url.Parse(w.URL)
	if err != nil {
		return nil, err
	}
	return w.dialer().DialContext(ctx, "tcp", u.Host)
}

// HTTP is a client whose connections belong to the user that runs CodeForge, since those of other users are refused. It
// sends the world's token, if there is one, unless a request has its own Authorization.
func (w *World) HTTP() *http.Client {
	return &http.Client{Transport: bearer{w.Stranger().Transport, w.Token}}
}

// Stranger is HTTP without the token.
func (w *World) Stranger() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: w.dialer().DialContext}}
}

// bearer adds a token to requests.
type bearer struct {
	next  http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" && r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.next.RoundTrip(r)
}

func (w *World) dialer() *net.Dialer {
	dialer := &net.Dialer{}
	uid := w.As
	if w.User == Ordinary && uid == 0 {
		uid = ordinaryUID
	}
	if w.Mode == Embedded && uid != 0 && os.Geteuid() == 0 {
		dialer.Control = func(_, _ string, c syscall.RawConn) error {
			var failed error
			err := c.Control(func(fd uintptr) { failed = syscall.Fchown(int(fd), uid, -1) })
			return errors.Join(err, failed)
		}
	}
	return dialer
}

// Session is the world's own MCP session.
func (w *World) Session() *mcp.ClientSession { return w.session }

// Close stops everything that Open started.
func (w *World) Close() error {
	if w.session != nil {
		_ = w.session.Close()
		w.session = nil
	}
	if w.stop == nil {
		return nil
	}
	stop := w.stop
	w.stop = nil
	return stop()
}

// Logs is everything the daemons have logged.
func (w *World) Logs() string { return w.logs() }

// Control is a client of the proxy's control API. In Docker mode only root on the engine's machine can reach it.
func (w *World) Control() *proxyapi.Client { return w.control() }

// Processes are the command lines of all processes in the tests' pid namespace, in the sandbox's container, or in pods.
func (w *World) Processes(ctx context.Context) ([]string, error) {
	if w.Mode == Docker {
		return w.Stack.Processes(ctx, "sandbox")
	}
	if w.Mode == Kubernetes {
		return w.Cluster.processes()
	}
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	var list []string
	for _, path := range paths {
		text, _ := os.ReadFile(path) // gone meanwhile
		list = append(list, strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " ")))
	}
	return list, err
}

// Result is the result of one execute_code call.
type Result struct {
	// Out is the first text block: what the code printed.
	Out string
	// Notes are the other text blocks, for the model.
	Notes   string
	IsError bool
	Receipt proxyapi.Receipt
	// JSON is the whole result as it came.
	JSON string
}

// Run is Execute with a timeout in seconds, limited to some APIs.
type Run struct {
	Code    string
	APIs    []string
	Timeout int
	// Language is that of the code; empty: TypeScript.
	Language string
	// DryRun sends what reads only.
	DryRun bool
}

// Execute runs code through the world's session.
func (w *World) Execute(ctx context.Context, code string, apis ...string) (Result, error) {
	return w.Do(ctx, w.session, Run{Code: code, APIs: apis})
}

// Do runs code through a session.
func (w *World) Do(ctx context.Context, session *mcp.ClientSession, r Run) (Result, error) {
	args := map[string]any{"code": r.Code}
	if len(r.APIs) > 0 {
		args["apis"] = r.APIs
	}
	if r.Timeout > 0 {
		args["timeout"] = r.Timeout
	}
	if r.Language != "" {
		args["language"] = r.Language
	}
	if r.DryRun {
		args["dry_run"] = true
	}
	res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "execute_code", Arguments: args})
	if err != nil {
		return Result{}, fmt.Errorf("execute_code: %w", err)
	}
	return result(res)
}

// result reads a tool's answer.
func result(res *mcp.CallToolResult) (Result, error) {
	out := Result{IsError: res.IsError}
	text, err := json.Marshal(res)
	if err != nil {
		return out, err
	}
	out.JSON = string(text)
	for i, c := range res.Content {
		t, ok := c.(*mcp.TextContent)
		switch {
		case !ok:
		case i == 0:
			out.Out = t.Text
		default:
			out.Notes += t.Text + "\n"
		}
	}
	receipt, err := json.Marshal(res.Meta["codeforge/receipt"])
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(receipt, &out.Receipt)
}

// MustExecute runs code and fails the test when the call itself fails.
func (w *World) MustExecute(t testing.TB, code string, apis ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	r, err := w.Execute(ctx, code, apis...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// MustPython is MustExecute for Python. The test is skipped where the sandbox has none.
func (w *World) MustPython(t testing.TB, code string, apis ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	r, err := w.Do(ctx, w.session, Run{Code: code, APIs: apis, Language: "python"})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.Out, "Python is not available here") {
		testkit.SkipBecause(t, r.Out)
	}
	return r
}

// known writes every credential to a file for an upstream in a container.
func known(c map[string]*canary.Canary) map[string]string {
	out := map[string]string{}
	for name, v := range c {
		out[name] = v.Value()
	}
	return out
}

// Leak returns where data contains a credential of the world, or "".
func (w *World) Leak(data string) string {
	return w.leaks.Find([]byte(data))
}

// newDir makes a world's directory, owned by the user that CodeForge will run as.
func newDir() (string, error) {
	parent := ""
	if CurrentMode() == Embedded {
		parent = filepath.Join(shared, "w")
	}
	dir, err := os.MkdirTemp(parent, "world-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755) //nolint:gosec // private files lie below, with modes of their own
}

// own gives a tree to the user that CodeForge will run as.
func own(dir string, user User) error {
	if user != Ordinary || os.Geteuid() != 0 {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, ordinaryUID, ordinaryUID)
	})
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "[...]" + s[len(s)-n:]
}

// envLines is a .env file.
func envLines(env map[string]string) string {
	var b strings.Builder
	for k, v := range env {
		fmt.Fprintf(&b, "%s=%s\n", k, v)
	}
	return b.String()
}
