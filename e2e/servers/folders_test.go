package servers

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// TestServerFolders: a server from npm reads and changes the folders that its config.json names, and no other folder.
// Promise: folders-stay-closed
func TestServerFolders(t *testing.T) {
	spec := map[string]any{
		"package": "npm:@modelcontextprotocol/server-filesystem@2026.8.31", "args": []string{"/files/reports", "/files/drafts"},
		"folders": []string{"reports", "drafts"},
	}
	w := world.Start(t, world.Config{
		Registry: true, APIs: []world.API{{Name: "fs", Config: map[string]any{"description": "files", "mcp": spec}}},
		Folders: []world.HostFolder{
			{Name: "reports", Files: map[string]string{"a.csv": "1,2"}},
			{Name: "drafts", Write: true}, {Name: "other", Files: map[string]string{"b": "secret"}},
		},
	})
	// In Docker the server is another user than code, and its new file is closed to others.
	shown := `Deno.readTextFileSync("/files/drafts/x")`
	if w.Mode == world.Docker {
		shown = `[...Deno.readDirSync("/files/drafts")].map((f) => f.name).join()`
	}
	r := w.MustExecute(t, `const call = async (f: () => Promise<unknown>) => { try { return JSON.stringify(await f()); } catch (e) { return "refused"; } };
console.log(await call(() => mcp.fs.read_text_file({ path: "/files/reports/a.csv" })));
console.log(await call(() => mcp.fs.write_file({ path: "/files/drafts/x", content: "by a server" })));
console.log(await call(() => mcp.fs.write_file({ path: "/files/reports/x", content: "by a server" })));
console.log(await call(() => mcp.fs.read_text_file({ path: "/files/other/b" })));
console.log(`+shown+`);`)
	lines := strings.Split(r.Out, "\n")
	if len(lines) != 6 || !strings.Contains(lines[0], "1,2") || !strings.Contains(lines[1], "Successfully") ||
		lines[2] != "refused" || lines[3] != "refused" || lines[4] != "by a server" && lines[4] != "x" {
		t.Errorf("%s\n%s", r.Out, r.Notes)
	}
}
