package walk

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/compose"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// steps are the README's sh blocks by their first line. The walks follow those that are true in both modes, and skip the
// others. A block that is not here fails TestReadmeIsWalked.
var steps = map[string]bool{
	"git clone https://github.com/codeforge-mcp/codeforge": false, // the walk clones this tree
	"make up": true,
	"bin/codeforge run -e 'console.log(6 * 7)' --receipt":                 true,
	"bin/codeforge api add github":                                        true, // the walk types the token
	"cat >repos.ts <<'END'":                                               true,
	"claude mcp add --transport http codeforge http://127.0.0.1:8080/mcp": false, // needs Claude Code; its address is tried
}

// walker follows the README in a fresh clone. Commands that it runs are quoted in the README or in a page of pages.
type walker struct {
	dir, readme, pages string
	env                map[string]string
	token              *canary.Canary
}

// clone makes a fresh clone of the tree's HEAD.
func clone(t *testing.T) *walker {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		testkit.SkipBecause(t, "no git")
	}
	parent, err := world.NewDir(world.Self, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	w := &walker{dir: filepath.Join(parent, "codeforge"), token: canary.New("GITHUB_AUTH_TOKEN")}
	cmd := exec.CommandContext(within(t, 60), "git", "-c", "safe.directory=*", "clone", "-q", "--no-local", root(t), w.dir) //nolint:gosec // this tree
	if out, err := cmd.CombinedOutput(); err != nil {
		testkit.SkipBecause(t, "this tree cannot be cloned: "+string(out))
	}
	readme, err := os.ReadFile(filepath.Join(w.dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	w.readme = string(readme)
	w.pages = w.readme + document(t, "docs/start/docker.md") + document(t, "docs/start/linux.md")
	write(t, parent, "token", w.token.Value()+"\n", 0o600)
	w.env = map[string]string{}
	return w
}

// do runs a script in the clone, and returns its output.
func (w *walker) do(t *testing.T, seconds int, script string) string {
	t.Helper()
	out, code, err := world.Shell(within(t, seconds), w.dir, script, w.env)
	t.Logf("$ %s%s", script, out)
	if err != nil || code != 0 {
		t.Fatalf("%s ended with %d, %v\n%s", script, code, err, out)
	}
	if where := w.token.Find([]byte(out)); where != "" {
		t.Errorf("%s shows the credential: %s", script, where)
	}
	return out
}

// followBlocks runs the README's sh blocks in order, and returns what they printed.
func (w *walker) followBlocks(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, b := range blocks(w.readme) {
		first, _, _ := strings.Cut(b.Text, "\n")
		if b.Lang == "sh" && steps[first] {
			if strings.HasPrefix(first, "bin/codeforge api add") {
				b.Text = "<../token " + b.Text
			}
			out.WriteString(w.do(t, 600, b.Text))
		}
	}
	return out.String()
}

// quoted returns a command, and fails the test if the pages do not quote it.
func (w *walker) quoted(t *testing.T, command string) string {
	t.Helper()
	if !strings.Contains(w.pages, "`"+command+"`") {
		t.Errorf("neither the README nor docs/start has `%s`", command)
	}
	return command + "\n"
}

// TestReadmeIsWalked checks that the walks know every block of the README.
func TestReadmeIsWalked(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	known := 0
	for _, b := range blocks(document(t, "README.md")) {
		if b.Lang != "sh" {
			continue
		}
		first, _, _ := strings.Cut(b.Text, "\n")
		if _, ok := steps[first]; !ok {
			t.Errorf("no walk knows the README's block %q", first)
		}
		known++
	}
	if known != len(steps) {
		t.Errorf("the README has %d sh blocks, the walk knows %d", known, len(steps))
	}
}

// TestReadmeEmbedded follows the README from a fresh clone in embedded mode. The tests' upstream serves the first API.
func TestReadmeEmbedded(t *testing.T) {
	embeddedOnly(t)
	w := clone(t)
	w.env["MODE"] = "embedded"
	w.env["UPSTREAM_CA_FILE"] = filepath.Join(w.dir, "..", "ca.pem")
	up, err := world.StartUpstream(w.env["UPSTREAM_CA_FILE"])
	if err != nil {
		testkit.SkipBecause(t, err.Error())
	}
	defer up.Close()
	before := world.TakeSnapshot()
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			log, _, _ := world.Shell(ctx, w.dir, "tail -n 40 .codeforge/log/*.log", w.env)
			t.Log(log)
		}
		_, _, _ = world.Shell(ctx, w.dir, "bin/codeforge down --purge --yes", w.env)
	})
	says(t, w.followBlocks(t), "is ready", "42\n")
	says(t, w.do(t, 30, w.quoted(t, "bin/codeforge check")), "1 active API", "0 mistakes")
	w.do(t, 60, "for i in $(seq 500); do bin/codeforge status | grep -q api.github.com && exit; sleep 0.1; done; exit 1\n") // "within a second"
	says(t, w.do(t, 60, w.quoted(t, "bin/codeforge run repos.ts --receipt")), "octocat/hello-world", "GITHUB_AUTH_TOKEN in header:Authorization")
	seen := up.Seen("")
	if len(seen) == 0 || seen[len(seen)-1].Header.Get("Authorization") != "Bearer "+w.token.Value() {
		t.Errorf("the upstream saw %+v, want the credential", seen)
	}
	for command, want := range map[string]string{
		"bin/codeforge api test github": "was swapped", "bin/codeforge skills list": "page-through", "bin/codeforge doctor": " 0 failed",
	} {
		says(t, w.do(t, 60, w.quoted(t, command)), want)
	}
	says(t, w.do(t, 30, "bin/codeforge logs"), "https://api.github.com/user/repos")
	w.clients(t)
	says(t, w.do(t, 60, w.quoted(t, "bin/codeforge try")), "How warm is it", `Berlin: "21.5 °C"`, "https://api.open-meteo.com/v1/forecast")
	w.quoted(t, "make down")
	says(t, w.do(t, 60, "make down\n"), "stopped")
	if left := before.Leftovers(); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

// entry is the server's entry in a client's configuration file, with the fields of all clients.
type entry struct {
	Type, URL, ServerURL, HTTPURL, Command string
	Args                                   []string
}

// entries are the entries for clients' files in docs/connect.
func (w *walker) entries(t *testing.T) []entry {
	t.Helper()
	var out []entry
	pages, err := filepath.Glob(filepath.Join(root(t), "docs", "connect", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var found []block
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, blocks(string(text))...)
	}
	for _, b := range found {
		if b.Lang != "json" {
			continue
		}
		var file map[string]map[string]entry // the one key differs by client
		text := b.Text
		if port := w.env["MCP_PORT"]; port != "" {
			text = strings.ReplaceAll(text, "127.0.0.1:8080", "127.0.0.1:"+port)
		}
		if err := json.Unmarshal([]byte(text), &file); err != nil {
			t.Errorf("%v in\n%s", err, b.Text)
		}
		var e entry
		for _, servers := range file {
			e = servers["codeforge"]
		}
		if e.URL+e.ServerURL+e.HTTPURL+e.Command == "" {
			t.Errorf("no server in\n%s", b.Text)
		}
		e.URL += e.ServerURL + e.HTTPURL
		out = append(out, e)
	}
	if len(out) != 12 {
		t.Errorf("docs/connect has %d entries for clients, want 12", len(out))
	}
	return out
}

// clients connects as the entries of docs/connect say: to the address, or by starting the program.
func (w *walker) clients(t *testing.T) {
	t.Helper()
	for _, e := range w.entries(t) {
		switch {
		case e.URL != "":
			try(t, &mcp.StreamableClientTransport{Endpoint: e.URL})
		case e.Command == "npx": // e2e.TestMCPRemote drives it
			try(t, &mcp.StreamableClientTransport{Endpoint: e.Args[len(e.Args)-1]})
		case strings.HasSuffix(e.Command, "/bin/codeforge"):
			for i, a := range e.Args {
				e.Args[i] = strings.Replace(a, "/home/me/codeforge", w.dir, 1)
			}
			command := strings.Replace(e.Command, "/home/me/codeforge", w.dir, 1)
			cmd := exec.CommandContext(t.Context(), command, e.Args...) //nolint:gosec // the README's
			cmd.Env = []string{"HOME=/nonexistent"}                     // Claude Desktop gives little
			try(t, &mcp.CommandTransport{Command: cmd})
		}
	}
}

// try runs one script over a transport.
func try(t *testing.T, transport mcp.Transport) {
	t.Helper()
	ctx := within(t, 30)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "walk", Version: "1"}, nil).Connect(ctx, transport, nil)
	if err != nil {
		t.Errorf("%T: %v", transport, err)
		return
	}
	defer session.Close()
	res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "console.log(6 * 7)"}})
	if err != nil || res.IsError || len(res.Content) == 0 || res.Content[0].(*mcp.TextContent).Text != "42\n" {
		t.Errorf("%T: execute_code answered %+v, %v", transport, res, err)
	}
}

// TestReadmeDocker follows the README from a fresh clone with Docker, under the tests' project name. It sends nothing
// to the first API, and only checks that the API is in force.
func TestReadmeDocker(t *testing.T) {
	if world.CurrentMode() != world.Docker {
		t.Skip("about Docker: tested with CODEFORGE_E2E_MODE=docker")
	}
	if err := compose.Available(t.Context()); err != nil {
		testkit.SkipBecause(t, err.Error())
	}
	release, err := compose.Turn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	w := clone(t)
	port, err := compose.FreePort() // the user's own CodeForge may have 8080
	if err != nil {
		t.Fatal(err)
	}
	w.env["COMPOSE_PROJECT_NAME"], w.env["CODEFORGE_TAG"], w.env["MCP_PORT"] = compose.Project, "e2e", strconv.Itoa(port)
	t.Cleanup(func() {
		_, _, _ = world.Shell(context.WithoutCancel(t.Context()), w.dir, "docker compose down -v --timeout 5", w.env)
	})
	w.env["MODE"] = "docker"
	says(t, w.followBlocks(t), "is ready", "42\n")
	ready := "for i in $(seq 90); do docker compose exec -T mcp-server codeforge status >/dev/null 2>&1 && exit; sleep 1; done; exit 1"
	w.do(t, 120, ready)
	w.quoted(t, "docker compose exec mcp-server codeforge status")
	says(t, w.do(t, 60, "docker compose exec -T mcp-server codeforge status"), "api.github.com", "GITHUB_AUTH_TOKEN")
	w.quoted(t, "docker compose exec mcp-server codeforge check")
	says(t, w.do(t, 60, "docker compose exec -T mcp-server codeforge check"), "1 active API", "0 mistakes")
	w.quoted(t, "docker compose exec -T mcp-server codeforge run - <FILE.ts")
	says(t, w.do(t, 60, "echo 'console.log(6 * 7)' | docker compose exec -T mcp-server codeforge run -"), "42")
	w.quoted(t, "docker compose exec mcp-server codeforge skills list")
	says(t, w.do(t, 60, "docker compose exec -T mcp-server codeforge skills list"), "page-through")
	w.containerClients(t)
	w.do(t, 120, w.quoted(t, "docker compose down"))
}

// containerClients connects as the entries of docs/connect say, to the container in place of embedded mode.
func (w *walker) containerClients(t *testing.T) {
	t.Helper()
	for _, e := range w.entries(t) {
		switch {
		case e.URL != "":
			try(t, &mcp.StreamableClientTransport{Endpoint: e.URL})
		case e.Command == "docker":
			for i, a := range e.Args {
				e.Args[i] = strings.Replace(a, "codeforge-mcp-server-1", compose.Project+"-mcp-server-1", 1)
			}
			try(t, &mcp.CommandTransport{Command: exec.CommandContext(t.Context(), e.Command, e.Args...)}) //nolint:gosec // the README's
		}
	}
}
