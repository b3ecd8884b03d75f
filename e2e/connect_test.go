package e2e

import (
	"path/filepath"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestConnectDesktop: the command that connect writes for Claude Desktop needs no environment and no folder. After
// CodeForge has restarted at another port, the command's process and a new one both work.
func TestConnectDesktop(t *testing.T) {
	embeddedOnly(t)
	p, dir := startDetached(t)
	tool := func(args ...string) {
		t.Helper()
		if out, code, err := world.Tool(within(t, 60), world.Command{Dir: dir, Args: args}); err != nil || code != 0 {
			t.Fatalf("codeforge %q: exit code %d, %v\n%s", args, code, err, out)
		}
	}
	file := filepath.Join(dir, "claude_desktop_config.json")
	tool("connect", "claude-desktop", "--write", "--file", file)
	session, err := world.OpenDesktop(within(t, 60), file)
	testkit.Must(t, err)
	defer session.Close()
	testkit.Must(t, world.RunOnce(within(t, 60), session))
	tool("down")
	again, err := world.StartUp(world.Self, dir, 3, "--detach")
	testkit.Must(t, err)
	if code, err := again.Wait(testkit.Patience); err != nil || code != 0 || again.Port == p.Port {
		t.Fatalf("codeforge up --detach: %d, %v, port %d after %d\n%s", code, err, again.Port, p.Port, again.Output())
	}
	testkit.Must(t, world.RunOnce(within(t, 60), session))
	second, err := world.OpenDesktop(within(t, 60), file)
	testkit.Must(t, err)
	defer second.Close()
	testkit.Must(t, world.RunOnce(within(t, 60), second))
}
