// Package docker tests the composed stack as it stands: what the engine says of each container, and what happens when
// a part of it dies. It needs a Docker engine, root (to kill processes and read /proc as a crash would) and nothing
// else using the stack's fixed names.
package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/compose"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// stack is shared by all tests here; root is the repository, apis the folder mounted as apis/.
var (
	stack    *compose.Stack
	root     string
	apis     string
	canaries = world.Canaries()
)

// token is the stack's MCP_AUTH_TOKEN. It comes from a file, so that no container's environment shows it.
const token = "e2e-docker-token-5b1f0c2e"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv("CODEFORGE_E2E_MODE") != "docker" {
		fmt.Println("e2e/docker: skipped: only with CODEFORGE_E2E_MODE=docker")
		return 0
	}
	if err := prepare(); err != nil {
		if errors.Is(err, compose.ErrUnavailable) && !testkit.NoSkip() {
			fmt.Println("e2e/docker: skipped:", err)
			return 0
		}
		fmt.Fprintln(os.Stderr, "e2e/docker:", err)
		return 1
	}
	defer os.RemoveAll(apis)
	code := 1
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e/docker:", err)
	} else if code = runPasses(m); code != 0 {
		fmt.Fprintln(os.Stderr, stack.Logs())
	}
	if err := stack.Down(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e/docker:", err)
		return 1
	}
	return code
}

// pass is one pass through some of the tests.
type pass struct{ name, run, skip string }

// passes are the whole suite: all tests, and after down and up those of what that can change: the main job, the token, the
// command line, and what the engine says of each container. TestEngineRestart would disturb packages that run at the same
// time, so make/test.sh runs it alone at the end.
func passes() []pass {
	const overDownUp, engine = "^TestDownUp$", "^TestEngineRestart$"
	return []pass{
		{"everything", "", overDownUp + "|" + engine},
		{"down and up", overDownUp, ""},
		{"after down and up", "^Test(MainJob|Token|Operator|LeastPrivilege|Edges|Processes|NoLeftovers)$", ""},
	}
}

// runPasses runs the tests that -run names, or the whole suite.
func runPasses(m *testing.M) int {
	flag.Parse()
	run, skip := flag.Lookup("test.run").Value, flag.Lookup("test.skip").Value
	if run.String() != "" || skip.String() != "" || flag.Lookup("test.list").Value.String() != "" {
		return m.Run()
	}
	for _, p := range passes() {
		began := time.Now()
		if err := errors.Join(run.Set(p.run), skip.Set(p.skip)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		fmt.Printf("e2e/docker: %s: %.0f s\n", p.name, time.Since(began).Seconds())
		if code != 0 {
			return code
		}
	}
	return 0
}

// prepare writes apis/ like that of a user: files of mode 0600 that belong to uid 1000.
func prepare() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := compose.Available(ctx); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: these tests kill processes of containers, as root", compose.ErrUnavailable)
	}
	var err error
	if root, err = filepath.Abs("../.."); err != nil {
		return err
	}
	if apis, err = os.MkdirTemp("", "codeforge-apis-"); err != nil {
		return err
	}
	if err := os.Chmod(apis, 0o755); err != nil {
		return err
	}
	if err := world.WriteAPIs(apis, world.Standard(canaries, "10.99.0.10/32", "/e2e/ca.pem")); err != nil {
		return err
	}
	if err := os.WriteFile(tokenFile(), []byte(token+"\n"), 0o644); err != nil { //nolint:gosec // read by mcp-server's user
		return err
	}
	return filepath.WalkDir(apis, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, 1000, 1000)
	})
}

// memoryTotal is the sandbox's limit: more than one run may use, less than several.
const memoryTotal = "1536m"

func tokenFile() string { return filepath.Join(apis, ".mcp-token") }

func start() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute) // images may be built from nothing
	defer cancel()
	var err error
	if stack, err = compose.New(compose.Config{Root: root, APIs: apis, Env: map[string]string{"MCP_AUTH_TOKEN_FILE": tokenFile(), "SANDBOX_MEMORY_TOTAL": memoryTotal}, Build: os.Getenv("CODEFORGE_E2E_NOBUILD") == ""}); err != nil {
		return err
	}
	began := time.Now()
	if err := stack.Up(ctx); err != nil {
		return err
	}
	fmt.Printf("e2e/docker: up after %.1f s\n", time.Since(began).Seconds())
	return nil
}

// result is one answer of execute_code.
type result struct {
	Text, Notes string
	Failed      bool
	Receipt     proxyapi.Receipt
}

// execute runs code over a new MCP session. A call that could not be made is also a Failed result.
func execute(t *testing.T, code string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	session, err := connect(ctx)
	if err != nil {
		return result{Failed: true, Text: err.Error()}
	}
	defer session.Close()
	res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": code}})
	if err != nil {
		return result{Failed: true, Text: err.Error()}
	}
	r := result{Failed: res.IsError}
	for i, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok && i == 0 {
			r.Text = text.Text
		} else if ok {
			r.Notes += text.Text
		}
	}
	if data, err := json.Marshal(res.Meta["codeforge/receipt"]); err == nil {
		_ = json.Unmarshal(data, &r.Receipt)
	}
	return r
}

// connect begins an MCP session.
func connect(ctx context.Context) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e-docker", Version: "1"}, nil)
	return client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: stack.URL, HTTPClient: &http.Client{Transport: bearing(token)}}, nil)
}

// bearing is a transport that sends a bearer token.
type bearing string

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// bearer fetches the upstream's /bearer with a token name; trial marks the request.
func bearer(trial string) string {
	return fmt.Sprintf(`const r = await fetch("https://httpbin.test/bearer?t=%s", {headers: {Authorization: "Bearer HTTPBIN_TOKEN"}});
console.log(r.status, (await r.json()).token);`, trial)
}

// works does the main job once: the upstream sees the credential, the code sees the name.
func works(t *testing.T) {
	t.Helper()
	trial := fmt.Sprintf("works-%d", time.Now().UnixNano())
	r := execute(t, bearer(trial))
	if r.Failed || strings.TrimSpace(r.Text) != "200 HTTPBIN_TOKEN" {
		t.Fatalf("the code printed %q, failed %v, notes %q", r.Text, r.Failed, r.Notes)
	}
	seen := stack.Upstream.Seen(trial)
	if len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+canaries["HTTPBIN_TOKEN"].Value() {
		t.Fatalf("the upstream saw %d requests, or not the credential", len(seen))
	}
	if r.Receipt.Count.Swapped != 1 {
		t.Errorf("the receipt counts %d swaps", r.Receipt.Count.Swapped)
	}
}

// healTime is how long the stack may take to recover. The engine waits longer before each restart of a container that
// ended within ten seconds, and machines are slow.
const healTime = 90 * time.Second

// heals waits until the main job works again for two seconds. It logs how long that took, and logs and returns the
// errors that clients got meanwhile.
func heals(t *testing.T, within time.Duration) []string {
	t.Helper()
	began, told := time.Now(), map[string]bool{}
	good := time.Time{}
	for {
		r := execute(t, bearer("heals"))
		if r.Failed || strings.TrimSpace(r.Text) != "200 HTTPBIN_TOKEN" {
			good = time.Time{}
			told[r.Text+r.Notes] = true
		} else if good.IsZero() {
			good = time.Now()
		}
		if !good.IsZero() && time.Since(good) > 2*time.Second {
			t.Logf("served again after %.1f s; told meanwhile: %q", good.Sub(began).Seconds(), keys(told))
			return keys(told)
		}
		if time.Since(began) > within {
			states, _ := exec.CommandContext(t.Context(), "sh", "-c", //nolint:gosec // fixed
				`docker inspect -f '{{.Name}} {{.State.Status}} {{.State.Error}} {{.RestartCount}}' $(docker ps -aq)`).CombinedOutput()
			logs, _ := stack.Compose(t.Context(), "logs", "--no-color", "--tail", "30")
			t.Fatalf("not healed after %v; told: %q\n%s\n%s", within, keys(told), states, logs)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func keys(m map[string]bool) []string {
	out := []string{}
	for k := range m {
		out = append(out, k)
	}
	return out
}

// docker runs the docker command.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// small is the size up to which data is searched for every form of a credential. Larger data, such as a whole file
// system, is searched for the plain value only.
const small = 8 << 20

// leak is the name of a credential that is in data, or "".
func leak(data []byte) string {
	for _, c := range canaries {
		if bytes.Contains(data, []byte(c.Value())) {
			return c.Name
		}
		if len(data) > small {
			continue
		}
		if where := c.Find(data); where != "" {
			return where
		}
	}
	return ""
}
