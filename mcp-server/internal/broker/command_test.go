package broker

import (
	"slices"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// A leading ~/ in what the user wrote is the home of the slot that the server got.
func TestHomeInStart(t *testing.T) {
	home := sandboxapi.HomeDir(103)
	s := &sandboxSlot{lease: sandboxapi.Lease{Slot: 103}, api: proxyapi.API{Name: "x", Server: &mcpserver.Settings{
		Package: "npm:x@1.0.0", Args: []string{"~/data", "~", "a~/b"},
		Env: map[string]string{"FILE": "~/memory.json", "TOKEN": "X_AUTH_TOKEN"},
	}}}
	start := s.Start()
	if got := start.Command[len(start.Command)-3:]; !slices.Equal(got, []string{home + "/data", "~", "a~/b"}) {
		t.Errorf("arguments %q", got)
	}
	if start.Env["FILE"] != home+"/memory.json" || start.Env["TOKEN"] != "X_AUTH_TOKEN" || len(start.Env) != 2 {
		t.Errorf("environment %v", start.Env)
	}
}
