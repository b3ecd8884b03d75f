package walk

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// screensIntro is the introduction of docs/reference/screens.md.
const screensIntro = `# Screens

The output of CodeForge when it works and when it does not. A test captures it from the running system, with its own server
behind api.github.com, and replaces times, paths, process ids and versions. ` + "`go test ./walk -run TestScreens -update`" + ` in e2e/
captures it again.
`

// screen is one script, with its heading and introduction.
type screen struct{ title, text, script string }

// screens are the page, in order. Each continues in the state that the previous one left.
var screens = []screen{
	{"Up", "", "codeforge up --detach"},
	{"Run", "`repos.ts` is the first API's script of the README.", "codeforge run repos.ts --receipt"},
	{"Logs", "The last line is a request that was refused.", "codeforge logs"},
	{"Below the folder", "Commands find the folder of CodeForge from anywhere below it.", "mkdir -p deep/down && cd deep/down && codeforge logs -n 1 --since 1h"},
	{"Connect", "The rest of the file stays, and so does a copy of the old file.", "codeforge connect cursor --file mcp.json --write | sed 's/[0-9]*-[0-9]*.bak/20261120-090000.bak/'"},
	{"Help of a command", "", "codeforge logs --help"},
	{"JSON", "", "codeforge api list --json"},
	{"Add an API", "On a terminal it asks for missing flags.",
		"echo $KEY | codeforge api add shop --domain https://api.shop.example/v1 --token SHOP_AUTH_TOKEN && codeforge api disable shop && codeforge api rm shop --yes"},
	{"Test an API", "", "codeforge api test github --path user/repos"},
	{"A skill that does not load", "", "codeforge run -e 'Deno.writeTextFileSync(\"/skills/broken.ts\", \"export const = 1\")' && codeforge skills rm broken --yes"},
	{"A string of REDACTING_STRINGS", "`internal-project-x` is in that setting. The API answers with what it got.", "codeforge run redacted.ts"},
	{"Doctor", "", "codeforge doctor"},
	{"Attack", "This runs against your own CodeForge. It calls no API and uses no credential.", "codeforge doctor --attack"},
	{"Error: a mistake in config.json", "The other APIs keep working, and an API that was loaded before keeps its last good version.", "cd mistakes && codeforge check"},
	{"Error: a wrong key", "The API's own answer reads as if the name had not been swapped, because the key is scrubbed from it. The note says what happened.",
		"cp wrong.json apis/github/config.json && codeforge api disable github && codeforge api enable github && codeforge run repos.ts; cp right.json apis/github/config.json && codeforge api disable github >/dev/null && codeforge api enable github >/dev/null; false"},
	{"Error: a token name in a place that is no surface", "The script continues: the API got the name, and responds as it does without a key.", "codeforge run place.ts"},
	{"Error: a method that is restricted", "", "codeforge run delete.ts"},
	{"Error: a slip in the host", "", "codeforge run slip.ts"},
	{"Error: a port that is not open", "", "codeforge run port.ts"},
	{"Error: what code cannot do", "", "codeforge run process.ts || codeforge run package.ts || codeforge run commonjs.ts || codeforge run --timeout 1s endless.ts"},
	{"Error: a misspelt command line", "", "codeforge stauts || codeforge api tset github || codeforge run --recept repos.ts"},
	{"Error: a run that there was not", "", "codeforge logs --run rnone"},
	{"Error: an explicit choice that does not run", "It is not replaced by the CodeForge that runs.", "codeforge status --state elsewhere || codeforge run --state elsewhere repos.ts"},
	{"Error: another program on the port", "", "CODEFORGE_URL=http://127.0.0.1:8090/mcp codeforge run repos.ts"},
	{"Error: the port is taken", "", "MCP_PORT=8090 codeforge up --state other"},
	{"Error: the Docker engine does not run", "", "MODE=docker make up"},
	{"Error: uninstalling without a terminal", "With one, it asks.", "make uninstall"},
	{"Error: nothing runs", "", "codeforge down && codeforge run repos.ts"},
	{"Error: it was killed", "", "codeforge up --detach >/dev/null && kill -9 $(codeforge status --json | sed -n 's/.*\"pid\": \\([0-9]*\\).*/\\1/p') && sleep 1; codeforge status"},
	{"With MCP_AUTH_TOKEN", "Every line says where the token goes. The token itself is never printed.", "MCP_AUTH_TOKEN=$KEY codeforge up --detach && codeforge down"},
}

// files are the files that the scripts read.
var files = map[string]string{
	"apis/github/config.json": `{
  "description": "GitHub REST API. Read only",
  "domains": ["api.github.com"],
  "credentials": {"GITHUB_AUTH_TOKEN": "github_pat_0123456789abcdef"},
  "restricted_methods": ["POST", "PUT", "PATCH", "DELETE"]
}
`,
	"mistakes/apis/stripe/config.json": `{
  "description": "Stripe payments",
  "domains": ["https://api.stripe.com"],
  "credentials": {"stripe_token": "sk_test_0123456789abcdef"},
  "restricted_method": ["POST"]
}
`,
	"mistakes/.env":             "MCP_PROT=8090\nUPSTREAM_CA_FILE=/etc/ssl/corp.pem\nSANDBOX_SLOTS=eight\nSANDBOX_SUBNET=10.77.0.0/24\n",
	"mistakes/apis/linear.json": "{}\n",
	"mistakes/apis/openai/config.json": `{
  "description": "OpenAI",
  "domains": ["api.openai.com"],
  "credentials": {"OPENAI_AUTH_TOKEN": "$OPENAI_API_KEY"}
}
`,
	"mistakes/apis/slack/config.json": `{
  "description": "Slack",
  "domains": ["slack.com"],
}
`,
	"mcp.json": `{
  "mcpServers": {
    "other": { "command": "other-server" }
  }
}
`,
	"delete.ts": `const r = await fetch("https://api.github.com/repos/octocat/hello-world", {
  method: "DELETE",
  headers: { Authorization: "Bearer GITHUB_AUTH_TOKEN" },
});
console.log(r.status, await r.text());
`,
	"place.ts": `const r = await fetch("https://api.github.com/user/repos?access_token=GITHUB_AUTH_TOKEN");
console.log(r.status);
`,
	"redacted.ts": `const r = await fetch("https://api.github.com/user/repos", { headers: { Authorization: "placeholder of internal-project-x" } });
console.log(r.status, await r.text());
`,
	"port.ts":     "await fetch(\"https://api.github.com:8443/\");\n",
	"process.ts":  "new Deno.Command(\"ls\").outputSync();\n",
	"package.ts":  "import lodash from \"lodash\";\nconsole.log(lodash);\n",
	"commonjs.ts": "const fs = require(\"fs\");\n",
	"endless.ts":  "for (;;);\n",
	"slip.ts": `const r = await fetch("https://api.githib.com/user/repos");
`,
}

// TestScreens captures the screens and compares them with docs/reference/screens.md.
func TestScreens(t *testing.T) {
	embeddedOnly(t)
	dir := newDir(t, world.Self)
	up, err := world.StartUpstream(filepath.Join(dir, "ca.pem"))
	if err != nil {
		testkit.SkipBecause(t, err.Error())
	}
	defer up.Close()
	for name, text := range files {
		write(t, dir, name, text, 0o600)
	}
	write(t, dir, "repos.ts", reposScript(t), 0o600)
	right := files["apis/github/config.json"]
	write(t, dir, "right.json", right, 0o600)
	write(t, dir, "wrong.json", strings.Replace(right, "github_pat_0123456789abcdef", "a_placeholder_key", 1), 0o600)
	write(t, dir, "Makefile", "up:\n\t@cd "+root(t)+" && make/up.sh\nuninstall:\n\t@make/uninstall.sh\n", 0o600)
	for _, name := range []string{"make/uninstall.sh", "make/engine.sh"} { // they work on the folder that they are in
		text, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, name, string(text), 0o700)
	}
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:8090")
	if err != nil {
		t.Fatal(err)
	}
	other := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: testkit.Patience}
	defer other.Close()
	go func() { _ = other.Serve(taken) }()
	env := map[string]string{
		"PATH": filepath.Dir(world.Binary("codeforge")) + ":" + os.Getenv("PATH"), "UPSTREAM_CA_FILE": filepath.Join(dir, "ca.pem"),
		"DOCKER_HOST": "unix:///nowhere/docker.sock", "KEY": "sk_0123456789abcdef", "REDACTING_STRINGS": "internal-project-x",
	}
	t.Cleanup(func() { _, _, _ = world.Shell(context.WithoutCancel(t.Context()), dir, "codeforge down", env) })
	var page strings.Builder
	page.WriteString(screensIntro)
	for _, s := range screens {
		if s.title == "Logs" {
			_, _, _ = world.Shell(within(t, 60), dir, "codeforge run delete.ts", env)
		}
		out, code, err := world.Shell(within(t, 180), dir, s.script, env)
		if err != nil {
			t.Fatalf("%s: %v\n%s", s.script, err, out)
		}
		if failed := code != 0; failed != strings.HasPrefix(s.title, "Error") && !strings.HasSuffix(s.script, ".ts") {
			t.Errorf("%s ended with %d:\n%s", s.script, code, out)
		}
		fmt.Fprintf(&page, "\n## %s\n\n%s```text\n$ %s\n%s\n```\n", s.title, paragraph(s.text), s.script, strings.TrimRight(alike(out, dir), "\n"))
	}
	if strings.Contains(page.String(), "0123456789abcdef") {
		t.Error("a screen shows a credential")
	}
	same(t, "docs/reference/screens.md", page.String(), portable)
}

func paragraph(s string) string {
	if s == "" {
		return ""
	}
	return s + "\n\n"
}

// reposScript is the first API's script of the README.
func reposScript(t *testing.T) string {
	t.Helper()
	for _, b := range blocks(document(t, "README.md")) {
		if rest, ok := strings.CutPrefix(b.Text, "cat >repos.ts <<'END'\n"); ok {
			return strings.TrimSuffix(rest, "END\n")
		}
	}
	t.Fatal("the README has no repos.ts")
	return ""
}

// alike replaces what differs between runs.
func alike(out, dir string) string {
	out = strings.NewReplacer(
		filepath.Dir(world.Binary("codeforge")), "/home/me/codeforge/bin", dir, "/home/me/codeforge", "/mnt/deno", "/home/me/codeforge/.tools/deno",
		"/mnt/.tools/typescript", "/home/me/codeforge/.tools/typescript",
		fmt.Sprintf("process %d)", os.Getpid()), "process 4242)",
	).Replace(out)
	for _, r := range []struct{ from, to string }{
		{`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}`, "2026-11-20 09:00:00.000"},
		{`\br[a-z2-7]{12}\b`, "rv4zisnvj5vxy"},
		{`(?m)^  audit \d+ \S{43}=$`, "  audit 18231 etzdoIT+UBLoEBdNoZxLUKeRIKsp0unfEKxKGolvPV4="},
		{`\b\d+ ms\b`, "3 ms"},
		{`by itself at [-0-9: ]+ UTC: process \d+`, "by itself at 2026-11-20 09:00:00 UTC: process 4711"},
		{`CodeForge dev`, "CodeForge v0.1.0"},
		{`(codeforge +)dev on linux/\w+`, "${1}v0.1.0 on linux/amd64"},
		{`\(process \d+, http`, "(process 4711, http"},
		{`until \d{4}-\d\d-\d\d`, "until 2036-11-17"},
		{`Linux \S+`, "Linux 6.18.4"},
		{`(?m)^make.*Error 1\n`, ""},
	} {
		out = regexp.MustCompile(r.from).ReplaceAllString(out, r.to)
	}
	return out
}

// machine matches what doctor says of a machine, and its sums.
var machine = regexp.MustCompile(`(?m)^(?:\w+ +(?:Docker|Docker Compose|container \S+|Python|bubblewrap|permissions|namespaces) .*|\d+ ok, .*)\n`)

// portable removes what differs between machines.
func portable(page string) string { return machine.ReplaceAllString(page, "") }
