package docker

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// TestDoctor runs codeforge doctor --attack on the stack, from inside mcp-server's container, where no API can be read,
// and from outside as a user of this machine would. All attacks fail, and no request reaches a server.
// Promise: checks-can-fail
func TestDoctor(t *testing.T) {
	program, err := world.Program("codeforge")
	if err != nil {
		t.Fatal(err)
	}
	before := len(stack.Upstream.Seen(""))
	inside, err := stack.Exec(t.Context(), "", "mcp-server", "codeforge", "doctor", "--attack", "--json")
	if err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), program, "doctor", "--attack", "--json", "--apis", apis) //nolint:gosec // built here
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "CODEFORGE_URL=" + stack.URL, "MCP_AUTH_TOKEN_FILE=" + tokenFile()}
	outside, err := cmd.Output()
	if err != nil {
		t.Error(err)
	}
	for _, from := range []struct {
		name, out string
		least     int
	}{{"inside", inside, 20}, {"outside", string(outside), 23}} {
		var got struct {
			OK      bool
			Attacks []struct {
				Attack, Seen string
				Held         bool
			}
		}
		if err := json.Unmarshal([]byte(from.out), &got); err != nil {
			t.Errorf("from %s: %v\n%s", from.name, err, from.out)
		}
		if !got.OK || len(got.Attacks) < from.least {
			t.Errorf("from %s: ok %v, %d attacks", from.name, got.OK, len(got.Attacks))
		}
		for _, a := range got.Attacks {
			if !a.Held {
				t.Errorf("from %s: %s was not held: %s", from.name, a.Attack, a.Seen)
			}
		}
	}
	if after := len(stack.Upstream.Seen("")); after != before {
		t.Errorf("%d requests arrived upstream", after-before)
	}
}
