package walk

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// says checks that a message says what is wrong and what to do, and contains no credential.
func says(t *testing.T, out string, want ...string) {
	t.Helper()
	for _, s := range want {
		if !strings.Contains(out, s) {
			t.Errorf("the message does not say %q:\n%s", s, out)
		}
	}
	if strings.Contains(out, "panic") || strings.Contains(out, hidden) {
		t.Errorf("the message holds a panic or the credential:\n%s", out)
	}
}

// hidden is the credential of the APIs in these tests.
const hidden = "sk_test_a1b2c3d4e5f6g7h8"

// slip is a typical mistake of a model in code.
type slip struct {
	name, code string
	// want are words that the hints in the result must contain.
	want []string
}

// slips are the mistakes in code.
var slips = []slip{
	{"wrong token name", `const r = await fetch("https://httpbin.test/anything?t=name", { headers: { Authorization: "Bearer HTTPBIN_TOKN" } }); console.log(r.status);`, []string{"a word that looks like a token name but is not one", "The API httpbin has", "HTTPBIN_TOKEN"}},
	{"token in a place that is no surface", `const r = await fetch("https://httpbin.test/anything?t=place&key=HTTPBIN_TOKEN"); console.log(r.status);`, []string{"HTTPBIN_TOKEN", "declares it for: header. Write it there", `"query:<its name>"`}},
	{"typo in the domain", `await fetch("https://htpbin.test/anything");`, []string{"htpbin.test", "Did you mean httpbin.test?", "list_apis"}},
	{"http for https", `const r = await fetch("http://httpbin.test/bearer?t=plain", { headers: { Authorization: "Bearer HTTPBIN_TOKEN" } }); console.log(r.status, await r.text());`, []string{"Use https://", "API httpbin", "allow_http"}},
	{"restricted method", `const r = await fetch("https://strict.test/anything?t=post", { method: "POST", body: "{}" }); console.log(r.status, await r.text());`, []string{"API strict", "does not permit this method", "restricted_methods"}},
	{"a program", `new Deno.Command("ls").outputSync();`, []string{"NotFound: Failed to spawn", "Processes, native code and facts about the machine are not available"}},
	{"CommonJS", `const fs = require("fs");`, []string{"ReferenceError: require is not defined", "There is no CommonJS"}},
	{"a file that was not sent", `import { f } from "./lib.ts"; f();`, []string{"Only this module is sent"}},
	{"a skill that does not load", `await Deno.writeTextFile("/skills/broken.ts", "// @description x\nexport const a = ;"); await Deno.writeTextFile("/skills/my notes.ts", "");`, []string{"The skill broken does not load: SyntaxError: Expression expected at /skills/broken.ts:2:18", `"my notes.ts" in /skills is not a skill`}},
}

// TestMistakesInCode makes typical mistakes in code, through MCP: the result tells the model what to do.
func TestMistakesInCode(t *testing.T) {
	world.RunInOneMode(t, "mcp-server and the interpreter decide it")
	w := world.Start(t, world.Config{})
	for _, s := range slips {
		t.Run(s.name, func(t *testing.T) {
			r := w.MustExecute(t, s.code)
			t.Logf("out: %s\nnotes: %s", r.Out, r.Notes)
			says(t, r.Out+r.Notes, s.want...)
			if strings.Contains(r.Out, "(ext:") || strings.Contains(r.Out, "\x1b") {
				t.Errorf("the inside of Deno, or colours: %q", r.Out)
			}
			if where := w.Leak(r.JSON); where != "" {
				t.Errorf("the answer holds a credential: %s", where)
			}
		})
	}
}

// TestMistakesInFiles makes typical mistakes in a config.json: codeforge check names file, field and remedy.
func TestMistakesInFiles(t *testing.T) {
	embeddedOnly(t)
	const file = "apis/shop/config.json"
	rows := []struct{ name, text, more string }{
		{"wrong token name", `{"description": "x", "domains": ["api.shop.test"], "credentials": {"shop-token": "` + hidden + `"}}`, "5 to 64 of A-Z, 0-9 and _, starting with a letter, e.g."},
		{"not a surface", `{"description": "x", "domains": ["api.shop.test"], "credentials": {"SHOP_TOKEN": {"value": "` + hidden + `", "in": ["headers"]}}}`, `did you mean "header"?`},
		{"domain with scheme", `{"description": "x", "domains": ["https://api.shop.test/"], "credentials": {"SHOP_TOKEN": "` + hidden + `"}}`, "api.shop.test"},
		{"secret with a newline", `{"description": "x", "domains": ["api.shop.test"], "credentials": {"SHOP_TOKEN": "` + hidden + `\n"}}`, "a line break in the credential; want one line"},
		{"trailing comma", "{\n  \"description\": \"x\",\n  \"domains\": [\"api.shop.test\"],\n  \"credentials\": {\"SHOP_TOKEN\": \"" + hidden + "\"},\n}\n", "a trailing comma; want no comma after the last entry"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, file, row.text, 0o600)
			out, code, err := world.Tool(within(t, 20), world.Command{Dir: dir, Args: []string{"check"}})
			t.Log(out)
			if err != nil || code != 1 {
				t.Errorf("codeforge check ended with %d, %v; want 1", code, err)
			}
			says(t, out, file, row.more, "0 active APIs, 1 broken, 0 inactive")
		})
	}
}

// TestMistakesOnTheMachine runs on machines that lack something.
func TestMistakesOnTheMachine(t *testing.T) {
	embeddedOnly(t)
	t.Run("port taken", portTaken)
	t.Run("no user namespaces", noUserNamespaces)
	t.Run("Docker not running", dockerNotRunning)
}

func portTaken(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := newDir(t, world.Self)
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	out, code, err := world.Tool(within(t, 30), world.Command{Dir: dir, Args: []string{"up"}, Env: map[string]string{"MCP_PORT": port}})
	t.Log(out)
	if err != nil || code != 1 {
		t.Errorf("codeforge up ended with %d, %v; want 1", code, err)
	}
	says(t, out, "port "+port, "in use by", "process "+strconv.Itoa(os.Getpid()), "MCP_PORT in .env", "--port")
}

// newDir is a directory with an empty apis/.
func newDir(t *testing.T, user world.User) string {
	t.Helper()
	dir, err := world.NewDir(user, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// noUserNamespaces starts as an ordinary user whose kernel forbids them.
func noUserNamespaces(t *testing.T) {
	if _, err := exec.LookPath("unshare"); err != nil {
		testkit.SkipBecause(t, "no unshare command")
	}
	dir := newDir(t, world.Ordinary)
	out, code, err := world.Tool(within(t, 30), world.Command{User: world.Ordinary, Dir: dir, Bin: forbidding(t, dir), Args: []string{"up", "--port", "0"}})
	t.Log(out)
	if err != nil || code != 1 {
		t.Errorf("codeforge up ended with %d, %v; want 1", code, err)
	}
	says(t, out, "user.max_user_namespaces", "sysctl -w", "Docker")
}

// forbidding is a folder with a codeforge that runs where no user namespace can be made. The limit is set in a user
// namespace made for this test, so that the machine's own stays.
func forbidding(t *testing.T, dir string) string {
	t.Helper()
	bin := filepath.Join(dir, "bin")
	write(t, bin, "codeforge", fmt.Sprintf("#!/bin/sh\nexec unshare --user --map-root-user sh -c 'echo 0 >/proc/sys/user/max_user_namespaces && exec %s \"$@\"' sh \"$@\"\n", world.Binary("codeforge")), 0o755)
	return bin
}

// dockerNotRunning has the docker command and no engine behind it.
func dockerNotRunning(t *testing.T) {
	if _, err := exec.LookPath("docker"); err != nil {
		testkit.SkipBecause(t, "no docker command")
	}
	for _, script := range []string{"MODE=docker make up", "./rebuild.sh"} {
		out, code, err := world.Shell(within(t, 30), root(t), script, map[string]string{"DOCKER_HOST": "unix:///nowhere/docker.sock"})
		t.Log(out)
		if err != nil || code == 0 {
			t.Errorf("%s ended with %d, %v; want a failure", script, code, err)
		}
		says(t, out, "no Docker engine answers", "Docker Desktop", "systemctl start docker", "MODE=embedded make up")
	}
}
