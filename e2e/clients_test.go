package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// withClients is the variable that make clients sets: the clients take 1,100 MB.
const withClients = "CODEFORGE_CLIENTS"

// readers are clients that read their configuration without a screen.
var readers = []string{
	"@anthropic-ai/claude-code@2.1.197", "@google/gemini-cli@0.61.0", "@openai/codex@0.171.0", "opencode-ai@1.18.33",
}

// installReaders installs them where the test finds them, outside its namespaces. What goes wrong, the test says.
func installReaders(root string) {
	if os.Getenv(withClients) == "" {
		return
	}
	if _, err := testkit.InstallNPM(context.Background(), root, filepath.Join(root, ".tools", "npm", "readers"), readers...); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
}

// TestClientFiles: the clients themselves read what codeforge connect writes, and connect with it.
func TestClientFiles(t *testing.T) {
	embeddedOnly(t)
	if os.Getenv(withClients) == "" {
		t.Skip("make clients runs it")
	}
	modules := testkit.InstallPackages(t, "readers", readers...)
	claude := []string{filepath.Join(modules, ".bin", "claude"), "mcp", "list"}
	gemini := []string{testkit.NodeBinary(t), filepath.Join(modules, ".bin", "gemini"), "mcp", "list"}
	for _, token := range []string{"", "a-token-of-this-test-0123456789"} {
		t.Run(fmt.Sprintf("token %v", token != ""), func(t *testing.T) {
			w := world.Start(t, world.Config{Env: map[string]string{"MCP_AUTH_TOKEN": token}})
			home, work := filepath.Join(w.Dir, "home"), filepath.Join(w.Dir, "work")
			for path, text := range map[string]string{
				filepath.Join(home, ".claude", "settings.json"):       `{"enableAllProjectMcpServers": true}`, // the user's approval
				filepath.Join(home, ".gemini", "trustedFolders.json"): fmt.Sprintf(`{%q: "TRUST_FOLDER"}`, work),
				filepath.Join(work, "README"):                         "",
			} {
				testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755)) //nolint:gosec // of this test
				testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
			}
			connect := func(args ...string) {
				t.Helper()
				out, code, err := world.Tool(within(t, 60), world.Command{
					Dir: work, Args: append([]string{"connect"}, append(args, "--write", "--state", w.Process.State)...),
					Env: map[string]string{"HOME": home},
				})
				if err != nil || code != 0 {
					t.Fatalf("codeforge connect %q: exit code %d, %v\n%s", args, code, err, out)
				}
			}
			// list is what a client says of its servers.
			list := func(argv []string, env ...string) string {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // installed above
				cmd.Dir, cmd.WaitDelay = work, time.Second
				cmd.Env = append([]string{
					"PATH=" + os.Getenv("PATH"), "HOME=" + home, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1",
				}, env...)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Logf("%q: %v", argv, err)
				}
				return string(out)
			}
			check := func(client string, argv []string, how string, env ...string) {
				t.Helper()
				out := list(argv, env...)
				if !strings.Contains(out, "codeforge: "+how) || !strings.Contains(out, "Connected") {
					t.Errorf("%s says:\n%s\nwant codeforge: %s, connected", client, out, how)
				}
			}
			how := w.URL
			if token != "" {
				how = world.Binary("codeforge") + " stdio"
			}
			connect("claude")
			check("Claude Code", claude, how)
			connect("gemini")
			check("Gemini CLI", gemini, how)
			// Claude Desktop's file has the same form, and starts a program.
			connect("claude-desktop", "--file", filepath.Join(work, ".mcp.json"))
			check("Claude Code with the file of Claude Desktop", claude, world.Binary("codeforge")+" stdio")
			opencode := []string{filepath.Join(modules, ".bin", "opencode"), "mcp", "list"}
			connect("opencode")
			if out := list(opencode); !strings.Contains(out, "codeforge") || !strings.Contains(out, "connected") || !strings.Contains(out, how) {
				t.Errorf("opencode says:\n%s\nwant codeforge: %s, connected", out, how)
			}
			connect("codex") // it lists servers without connecting to them
			codex := []string{testkit.NodeBinary(t), filepath.Join(modules, ".bin", "codex"), "mcp", "get", "codeforge"}
			if out := list(codex); !strings.Contains(out, strings.Fields(how)[0]) || !strings.Contains(out, "enabled: true") {
				t.Errorf("Codex says:\n%s\nwant codeforge: %s, enabled", out, how)
			}
			if token == "" {
				return
			}
			connect("claude", "--http")
			check("Claude Code over HTTP", claude, w.URL, "MCP_AUTH_TOKEN="+token)
			connect("gemini", "--http")
			check("Gemini CLI over HTTP", gemini, w.URL, "MCP_AUTH_TOKEN="+token)
			if out := list(claude, "MCP_AUTH_TOKEN=wrong"); strings.Contains(out, "Connected") {
				t.Errorf("with a wrong token Claude Code says:\n%s", out)
			}
		})
	}
}
