package clients

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/jsonfile"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

const url = "http://127.0.0.1:8080/mcp"

var stdio = []string{"/opt/codeforge", "stdio", "--state", "/srv/.codeforge"}

// TestLines: every client's line has the header if a token is required, with a placeholder for the token.
func TestLines(t *testing.T) {
	for _, c := range ListClients() {
		for _, token := range []bool{false, true} {
			line := c.OneLineConfig(Access{URL: url, Token: token, Command: stdio})
			if !strings.Contains(line, url) || !json.Valid([]byte(line)) && c.Name != codexName {
				t.Errorf("%s: %s", c.Name, line)
			}
			if c.Name == codexName {
				continue // TestCodex
			}
			if got := strings.Contains(line, "Authorization") && strings.Contains(line, "Bearer <MCP_AUTH_TOKEN>"); got != token {
				t.Errorf("%s, token %v: %s", c.Name, token, line)
			}
		}
	}
	if got, want := ClaudeCode(Access{URL: url, Token: true}), `claude mcp add --transport http codeforge http://127.0.0.1:8080/mcp --header "Authorization: Bearer <MCP_AUTH_TOKEN>"`; got != want {
		t.Errorf("got %s", got)
	}
}

// TestEntries: without a token the endpoint; with one the program, which needs none, or by request a reference.
func TestEntries(t *testing.T) {
	for _, c := range ListClients() {
		merged := func(a Access, http bool) string {
			out, err := c.AddCodeForge(nil, a, http)
			if err != nil || !json.Valid(out) && c.Name != codexName {
				t.Fatalf("%s: %v\n%s", c.Name, err, out)
			}
			return string(out)
		}
		plain := merged(Access{URL: url, Command: stdio}, false)
		if strings.Contains(plain, "Authorization") || strings.Contains(plain, url) == (c.remote == nil) {
			t.Errorf("%s without a token: %s", c.Name, plain)
		}
		token := merged(Access{URL: url, Token: true, Command: stdio}, false)
		if !strings.Contains(token, `"/opt/codeforge"`) || strings.Contains(token, "Authorization") || strings.Contains(token, "inputs") {
			t.Errorf("%s with a token: %s", c.Name, token)
		}
		http := merged(Access{URL: url, Token: true, Command: stdio}, true)
		if c.reference == "" { // the file has no way to name a variable, so the client starts the program
			if http != token {
				t.Errorf("%s over HTTP: %s", c.Name, http)
			}
		} else if c.Name != codexName && (!strings.Contains(http, `"Authorization": "Bearer `+strings.ReplaceAll(c.reference, "NAME", TokenSetting)) || strings.Contains(http, "<")) {
			t.Errorf("%s over HTTP: %s", c.Name, http)
		}
		if again, err := c.AddCodeForge([]byte(http), Access{URL: url, Token: true, Command: stdio}, true); err != nil || string(again) != http {
			t.Errorf("%s: written again it differs: %v\n%s", c.Name, err, again)
		}
	}
}

// TestVariables: the entry of a program has the variables that the program needs.
func TestVariables(t *testing.T) {
	desktop, _ := FindClient("claude-desktop")
	out, err := desktop.AddCodeForge(nil, Access{URL: url, Command: stdio, Env: map[string]string{"PATH": "/opt/bin"}}, false)
	if err != nil || !strings.Contains(string(out), `"PATH": "/opt/bin"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestMergeKeeps: everything else in a file stays, byte by byte.
func TestMergeKeeps(t *testing.T) {
	cursor, _ := FindClient("cursor")
	vscode, _ := FindClient("vscode")
	entry := `"codeforge": {` + "\n\t\t\t\"url\": \"" + url + "\"\n\t\t}"
	for _, row := range []struct {
		name, before, after string
		client              Client
	}{
		{"no list yet", "{\n\t\"theme\": \"dark\"\n}\n", "{\n\t\"theme\": \"dark\",\n\t\"mcpServers\": {\n\t\t" + entry + "\n\t}\n}\n", cursor},
		{"an empty list", "{\n\t\"mcpServers\": {}\n}", "{\n\t\"mcpServers\": {\n\t\t" + entry + "\n\t}\n}", cursor},
		{"other servers", "{\n\t\"mcpServers\": {\n\t\t\"x\":   {\"n\": 1e400, \"s\": \"\\u0041<\"}  \n\t}, \"z\":[ ]}", "{\n\t\"mcpServers\": {\n\t\t\"x\":   {\"n\": 1e400, \"s\": \"\\u0041<\"},\n\t\t" + entry + "  \n\t}, \"z\":[ ]}", cursor},
		{"an older entry", "{\n\t\"mcpServers\": {\n\t\t\"codeforge\": {\"url\": \"http://old\"}, \"x\": {}\n\t}\n}", "{\n\t\"mcpServers\": {\n\t\t" + entry + ", \"x\": {}\n\t}\n}", cursor},
		{"in deeper objects of that name", "{\n\t\"a\": {\"mcpServers\": {\"codeforge\": 1}}\n}", "{\n\t\"a\": {\"mcpServers\": {\"codeforge\": 1}},\n\t\"mcpServers\": {\n\t\t" + entry + "\n\t}\n}", cursor},
	} {
		got, err := row.client.AddCodeForge([]byte(row.before), Access{URL: url}, false)
		if err != nil || string(got) != row.after {
			t.Errorf("%s: %v\n%s\nwant\n%s", row.name, err, got, row.after)
		}
		if !json.Valid(got) {
			t.Errorf("%s: not JSON", row.name)
		}
	}
	got, err := vscode.AddCodeForge([]byte(`{"inputs": [{"id": "mine"}]}`), Access{URL: url, Token: true}, true)
	if err != nil || !strings.Contains(string(got), `"mine"`) || !strings.Contains(string(got), `"codeforge-token"`) {
		t.Errorf("inputs: %v\n%s", err, got)
	}
	for _, bad := range []string{"{ // mine\n}", `{"a": 1,}`, "not json", `[1]`, `{"mcpServers": [1]}`, `{"mcpServers": "x"}`} {
		if got, err := cursor.AddCodeForge([]byte(bad), Access{URL: url}, false); !errors.Is(err, jsonfile.ErrNotJSON) {
			t.Errorf("%s: %v\n%s", bad, err, got)
		}
	}
}

// FuzzMerge: what was valid stays valid, and every other member stays.
func FuzzMerge(f *testing.F) {
	f.Add(`{"mcpServers": {"x": 1}}`)
	f.Add(" {\n} ")
	f.Add(`{"mcpServers":{"codeforge":{},"codeforge":2}}`)
	cursor, _ := FindClient("cursor")
	f.Fuzz(func(t *testing.T, text string) {
		out, err := cursor.AddCodeForge([]byte(text), Access{URL: url}, false)
		if err != nil {
			return
		}
		var before, after map[string]json.RawMessage
		if json.Unmarshal(out, &after) != nil {
			t.Fatalf("%q became %q", text, out)
		}
		_ = json.Unmarshal([]byte(text), &before) // empty
		for name, value := range before {
			if name != "mcpServers" && string(after[name]) != string(value) {
				t.Errorf("%q: %s became %s", text, value, after[name])
			}
		}
		var servers map[string]httpEntry
		if _ = json.Unmarshal(after["mcpServers"], &servers); servers["codeforge"].URL != url {
			t.Errorf("%q became %q", text, out)
		}
	})
}

// TestWrite: a copy of what was there is kept, the mode stays, a link stays one, and a file that changed meanwhile is
// not replaced.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	fresh := filepath.Join(dir, "new", "mcp.json")
	if backup, err := ReplaceConfig(fresh, nil, []byte("{}"), now); err != nil || backup != "" {
		t.Errorf("a new file: %q, %v", backup, err)
	}
	path, link := filepath.Join(dir, "mcp.json"), filepath.Join(dir, "link.json")
	if err := os.WriteFile(path, []byte("before"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("mcp.json", link); err != nil {
		testkit.SkipBecause(t, "no right to make links: "+err.Error())
	}
	if _, err := ReplaceConfig(link, []byte("something else"), []byte("after"), now); err == nil || !strings.Contains(err.Error(), "changed by another program") {
		t.Errorf("changed meanwhile: %v", err)
	}
	backup, err := ReplaceConfig(link, []byte("before"), []byte("after"), now)
	if err != nil {
		t.Fatal(err)
	}
	old, _ := os.ReadFile(backup)
	text, _ := os.ReadFile(path)
	info, _ := os.Stat(path)
	if string(old) != "before" || string(text) != "after" || info.Mode().Perm() != 0o640 {
		t.Errorf("copy %q, file %q, mode %v", old, text, info.Mode())
	}
	if to, err := os.Readlink(link); err != nil || to != "mcp.json" {
		t.Errorf("the link: %q, %v", to, err)
	}
	// A copy is never overwritten.
	if _, err := ReplaceConfig(path, []byte("after"), []byte("again"), now); err == nil {
		t.Error("a copy was overwritten")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.codeforge-part")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestDiff(t *testing.T) {
	got := strings.Join(DiffLines("a\nb\nc\nd\ne\nf\n", "a\nb\nc\nX\nY\ne\nf\n"), "\n")
	if want := " b\n c\n-d\n+X\n+Y\n e\n f"; got != want {
		t.Errorf("%s", got)
	}
	if got := strings.Join(DiffLines("", "{}\n"), "\n"); got != "+{}" {
		t.Errorf("%s", got)
	}
}

// TestFiles: where clients keep their configuration.
func TestFiles(t *testing.T) {
	for os, want := range map[string]string{"darwin": "/h/Library/Application Support/Claude/claude_desktop_config.json", "windows": "/a/Claude/claude_desktop_config.json", "linux": "/h/.config/Claude/claude_desktop_config.json"} {
		c, _ := FindClient("claude-desktop")
		if got := filepath.ToSlash(c.ConfigPath(System{OS: os, Home: "/h", Work: "/w", AppData: "/a"})); got != want {
			t.Errorf("%s: %s", os, got)
		}
	}
}

// TestCodex: connect appends the entry to config.toml and keeps every other byte. A second run changes nothing. If the
// file is not TOML, or already has another entry with this name, it stays unchanged.
func TestCodex(t *testing.T) {
	codex, _ := FindClient("codex")
	const before = "model = \"x\" # mine\n\n[mcp_servers.other]\ncommand = \"o\"\n"
	for _, row := range []struct {
		name, want string
		access     Access
		http       bool
	}{
		{"no token", "url = \"" + url + "\"\n", Access{URL: url, Command: stdio}, false},
		{"a program", "command = \"/opt/codeforge\"\nargs = [\"stdio\", \"--state\", \"/srv/.codeforge\"]\n", Access{URL: url, Token: true, Command: stdio}, false},
		{"a token", "url = \"" + url + "\"\nbearer_token_env_var = \"MCP_AUTH_TOKEN\"\n", Access{URL: url, Token: true, Command: stdio}, true},
	} {
		got, err := codex.AddCodeForge([]byte(before), row.access, row.http)
		rest, found := strings.CutPrefix(string(got), before)
		if err != nil || !found || !strings.Contains(rest, "[mcp_servers.codeforge]\n") || !strings.HasSuffix(rest, row.want) {
			t.Errorf("%s: %v\n%s", row.name, err, got)
		}
		if again, err := codex.AddCodeForge(got, row.access, row.http); err != nil || string(again) != string(got) {
			t.Errorf("%s: written again it differs: %v\n%s", row.name, err, again)
		}
		if _, err := codex.AddCodeForge(got, Access{URL: "http://other/mcp"}, false); !errors.Is(err, ErrCannotEdit) {
			t.Errorf("%s: another entry: %v", row.name, err)
		}
	}
	if _, err := codex.AddCodeForge([]byte("mcp_servers = {}\n"), Access{URL: url}, false); !errors.Is(err, ErrCannotEdit) {
		t.Errorf("an inline table: %v", err)
	}
	if _, err := codex.AddCodeForge([]byte("key = sk_live_1"), Access{URL: url}, false); !errors.Is(err, ErrCannotEdit) || strings.Contains(err.Error(), "sk_live") {
		t.Errorf("not TOML: %v", err)
	}
	if got, want := codex.OneLineConfig(Access{URL: url, Token: true}), "codex mcp add codeforge --url "+url+" --bearer-token-env-var MCP_AUTH_TOKEN"; got != want {
		t.Errorf("got %s", got)
	}
}

// TestReplaceFails: a file that has changed, is too large or cannot be copied stays as it is.
func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "config.json")
	at := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	if backup, err := ReplaceConfig(path, nil, []byte("one"), at); err != nil || backup != "" {
		t.Fatalf("a new file: %q, %v", backup, err)
	}
	if backup, err := ReplaceConfig(path, []byte("one"), []byte("two"), time.Time{}); err != nil || backup != "" {
		t.Errorf("without a copy: %q, %v", backup, err)
	}
	if _, err := ReplaceConfig(path, []byte("one"), []byte("three"), at); err == nil || !strings.Contains(err.Error(), "changed by another program") {
		t.Errorf("a changed file: %v", err)
	}
	backup := path + ".20261130-090000.bak"
	if got, err := ReplaceConfig(path, []byte("two"), []byte("three"), at); err != nil || got != backup {
		t.Errorf("with a copy: %q, %v", got, err)
	}
	if _, err := ReplaceConfig(path, []byte("three"), []byte("four"), at); err == nil || !strings.HasPrefix(err.Error(), "keeping a copy: ") {
		t.Errorf("a copy of this time exists: %v", err)
	}
	for file, want := range map[string]string{path: "three", backup: "two"} {
		if text, err := os.ReadFile(file); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", file, text, err)
		}
	}
	if err := os.WriteFile(path, []byte("\ufefftext"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadConfig(path); err != nil || string(text) != "text" {
		t.Errorf("with a byte order mark: %q, %v", text, err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, maxFile); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadConfig(path); err != nil || len(text) != maxFile {
		t.Errorf("the largest file: %d, %v", len(text), err)
	}
	if err := os.Truncate(path, maxFile+1); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{path, dir, filepath.Join(path, "x")} {
		if text, err := ReadConfig(bad); err == nil {
			t.Errorf("%s: %d bytes", bad, len(text))
		}
		if _, err := ReplaceConfig(bad, nil, nil, time.Time{}); err == nil {
			t.Errorf("%s was replaced", bad)
		}
	}
}

// TestDiffContext shows two lines around a change, and none that is not there.
func TestDiffContext(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{"", "", ""}, {"a", "a", " a"}, {"", "a\nb", "+a|+b"}, {"a\nb\n", "", "-a|-b"}, {"1\n2\n3\n4\n5\n6\n7", "1\n2\n3\nx\n5\n6\n7\n", " 2| 3|-4|+x| 5| 6"},
		{"a\na", "a\na\na", " a| a|+a"}, {"a\nb", "b", "-a| b"}, {"1\n2\n3", "1\n2\n3\n4", " 2| 3|+4"},
	} {
		if got := strings.Join(DiffLines(c.before, c.after), "|"); got != c.want {
			t.Errorf("%q to %q: %s, want %s", c.before, c.after, got, c.want)
		}
	}
}
