package e2e

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
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

// TestConnectHosted: for a client on another machine, connect prints the place, the URL, and a code or the provider.
// Without PUBLIC_URL it names the settings.
func TestConnectHosted(t *testing.T) {
	embeddedOnly(t)
	tokens := filepath.Join(t.TempDir(), "tenants.json")
	testkit.Must(t, os.WriteFile(tokens, []byte(`{"tenants": {"ann": {"logins": ["ann"], "apis": ["*"]}}}`), 0o600))
	const public = "https://forge.example.com"
	type command struct {
		args []string
		code int
		want []string
	}
	for _, c := range []struct {
		env      map[string]string
		commands []command
	}{
		{nil, []command{{[]string{"connect", "claude-ai"}, 1, []string{"claude.ai connects over the internet: set PUBLIC_URL and MCP_TOKENS_FILE"}}}},
		{map[string]string{"PUBLIC_URL": public, "OIDC_ISSUER": "https://login.example.com/", "MCP_TOKENS_FILE": tokens}, []command{
			{[]string{"connect", "claude-ai"}, 0, []string{"In claude.ai, open: Settings, Connectors", public + "/mcp\n", "log in at https://login.example.com/"}},
			{[]string{"clients", "list"}, 1, []string{"without OIDC_ISSUER"}},
		}},
		{map[string]string{"PUBLIC_URL": public, "MCP_TOKENS_FILE": tokens}, []command{
			{[]string{"connect", "chatgpt"}, 0, []string{"In ChatGPT, open: Settings, Apps", public + "/mcp\n", "\n  [A-Z2-7]{4}-[A-Z2-7]{4}-[A-Z2-7]{4}\n", "as the tenant ann"}},
			{[]string{"connect", "chatgpt", "--tenant", "bob"}, 2, []string{"there is no tenant \"bob\""}},
			{[]string{"connect", "chatgpd"}, 2, []string{"chatgpt"}},
			{[]string{"clients", "list"}, 0, []string{"No client has logged in"}},
			{[]string{"clients", "revoke", "unknown"}, 1, []string{"there is no such client"}},
		}},
	} {
		dir, err := world.NewDir(world.Self, nil, c.env)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		p, err := world.StartUp(world.Self, dir, 1, "--detach")
		testkit.Must(t, err)
		t.Cleanup(func() {
			_, _, _ = world.Tool(context.Background(), world.Command{Dir: dir, Args: []string{"down", "--state", p.State}})
		})
		if code, err := p.Wait(testkit.Patience); err != nil || code != 0 {
			t.Fatalf("codeforge up --detach: %d, %v\n%s", code, err, p.Output())
		}
		for _, one := range c.commands {
			out, code, err := world.Tool(within(t, 60), world.Command{Dir: dir, Args: append(one.args, "--state", p.State)})
			testkit.Must(t, err)
			for _, want := range one.want {
				if code != one.code || !regexp.MustCompile(want).MatchString(out) {
					t.Errorf("%q: %d, %s\nwant %q", one.args, code, out, want)
				}
			}
		}
	}
}
