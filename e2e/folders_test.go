package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// folderTenants are tenants with one folder, with all, and with none.
const folderTenants = `{"tenants": {
  "one": {"tokens": ["token-of-tenant-one-0"], "apis": ["*"], "folders": ["reports"]},
  "all": {"tokens": ["token-of-tenant-all-0"], "apis": ["*"], "folders": ["*"]},
  "none": {"tokens": ["token-of-tenant-none"], "apis": ["*"]}}}`

// TestFolders: code of the operator and of tenants sees the folders that were chosen for them, in both languages, and
// list_apis names them.
// Promise: folders-stay-closed
func TestFolders(t *testing.T) {
	const typescript = `const get = (p: string) => { try { return Deno.readTextFileSync(p); } catch { return "-"; } };
const put = (p: string) => { try { Deno.writeTextFileSync(p, "from code"); return "wrote"; } catch { return "-"; } };
console.log(get("/files/reports/a.csv"), get("/files/drafts/b"), put("/files/reports/x"), put("/files/drafts/NAME"), get("/files/reports/../../etc/passwd"));`
	const python = `def get(p):
  try: return open(p).read()
  except OSError: return "-"
def put(p):
  try: open(p, "w").write("from code")
  except OSError: return "-"
  return "wrote"
print(get("/files/reports/a.csv"), get("/files/drafts/b"), put("/files/reports/x"), put("/files/drafts/NAME"), get("/files/reports/../../etc/passwd"))`
	dir, err := os.MkdirTemp("", "folder-tenants-")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	testkit.Must(t, os.Chmod(dir, 0o755))
	write(t, dir, "tokens.json", folderTenants)
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			w := world.Start(t, world.Config{
				User: user,
				Env:  map[string]string{"MCP_AUTH_TOKEN": "token-of-operator-0", "MCP_TOKENS_FILE": filepath.Join(dir, "tokens.json")},
				Folders: []world.HostFolder{
					{Name: "reports", Files: map[string]string{"a.csv": "1,2"}},
					{Name: "drafts", Write: true, Files: map[string]string{"b": "draft"}},
				},
			})
			for token, want := range map[string]struct{ out, line string }{
				"token-of-operator-0":   {"1,2 draft - wrote -\n", "/files/drafts (writable), /files/reports."},
				"token-of-tenant-all-0": {"1,2 draft - wrote -\n", "/files/drafts (writable), /files/reports."},
				"token-of-tenant-one-0": {"1,2 - - - -\n", "/files/reports."},
				"token-of-tenant-none":  {"- - - - -\n", ""},
			} {
				w.Token = token
				session, err := w.Connect(within(t, 60))
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close()
				for language, code := range map[string]string{"typescript": typescript, "python": python} {
					// In Docker each slot is another user, who cannot change the files of others.
					code = strings.ReplaceAll(code, "NAME", token+language)
					r, err := w.Do(within(t, 60), session, world.Run{Code: code, Language: language})
					if err != nil || r.Out != want.out {
						t.Errorf("%s, %s: %q %q %v, want %q", token, language, r.Out, r.Notes, err, want.out)
					}
				}
				answer, err := session.CallTool(within(t, 60), &mcp.CallToolParams{Name: "list_apis"})
				testkit.Must(t, err)
				line := ""
				for _, c := range answer.Content {
					if text, ok := c.(*mcp.TextContent); ok && strings.Contains(text.Text, "/files/") {
						_, line, _ = strings.Cut(text.Text, ": ")
					}
				}
				if line != want.line {
					t.Errorf("%s: list_apis says %q, want %q", token, line, want.line)
				}
			}
			if text, err := os.ReadFile(filepath.Join(w.Dir, "drafts", "token-of-operator-0python")); string(text) != "from code" {
				t.Errorf("the host's file: %q %v", text, err)
			}
			if _, err := os.Stat(filepath.Join(w.Dir, "reports", "x")); err == nil {
				t.Error("a file in the read-only folder")
			}
			if where := w.Leak(w.Logs()); where != "" {
				t.Errorf("the log holds a credential: %s", where)
			}
		})
	}
}

// TestChangedFolder: a folder that became a link since add is left out at the next start, with a warning. A file for one
// run reaches this run.
// Promise: folders-stay-closed
func TestChangedFolder(t *testing.T) {
	embeddedOnly(t)
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			w := world.Start(t, world.Config{User: user, Folders: []world.HostFolder{
				{Name: "reports", Files: map[string]string{"a.csv": "1,2"}}, {Name: "other", Files: map[string]string{"b": "x"}},
			}})
			write(t, w.Dir, "list.ts", `console.log([...Deno.readDirSync("/files")].map((f) => f.name).sort().join(), Deno.readTextFileSync("/files/data.csv"));`)
			write(t, w.Dir, "data.csv", "3,4")
			tool := func(want string, args ...string) {
				t.Helper()
				out, _, err := world.Tool(within(t, 60), world.Command{User: user, Dir: w.Dir, Args: args})
				if err != nil || !strings.Contains(out, want) {
					t.Errorf("%v: %v, no %q in\n%s", args, err, want, out)
				}
			}
			tool("data.csv,other,reports 3,4\n", "run", "list.ts", "--file", "data.csv")
			tool("NotFound", "run", "-e", `Deno.readTextFileSync("/files/data.csv")`)
			tool("", "down")
			testkit.Must(t, os.RemoveAll(filepath.Join(w.Dir, "reports")))
			testkit.Must(t, os.Symlink(filepath.Join(w.Dir, "other"), filepath.Join(w.Dir, "reports")))
			tool("leads to", "folder", "list")
			p, err := world.StartUp(user, w.Dir, 2)
			testkit.Must(t, err)
			defer p.Stop()
			_, err = p.Ready(testkit.Patience)
			testkit.Must(t, err)
			testkit.WaitFor(t, func() bool { return strings.Contains(p.Output(), "the folder reports is not available to code") })
			tool("data.csv,other 3,4\n", "run", "list.ts", "--file", "data.csv")
		})
	}
}
