//go:build disarm

package main

import (
	"strconv"
	"testing"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/rig"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// TestDisarmed: without its defence each of these attacks of a hostile MCP server succeeds. e2e/negative runs it, under the
// tag disarm, for those that need a process in a server slot.
func TestDisarmed(t *testing.T) {
	for defence, row := range map[string]struct {
		mode  rig.Mode
		tries func(s *rig.Server) string
	}{
		"server-package": {rig.User, func(*rig.Server) string {
			return "write " + runapi.PackageDir(hostilePackage) + "/deno.lock x"
		}},
		"server-group": {rig.Container, func(*rig.Server) string { return "write /tmp/of-a-server x" }},
		"server-home": {rig.Root, func(s *rig.Server) string {
			return "fill " + runapi.HomeDir(s.Slot) + "/large " + strconv.Itoa(jail.HomeSize+8<<20)
		}},
	} {
		t.Run(defence, func(t *testing.T) {
			t.Setenv("CODEFORGE_DISARM", defence)
			w := servers(t, row.mode, 1)
			install(t, w, hostilePackage)
			s := w.Server(t, runapi.ServerHead{Package: hostilePackage})
			if _, err := s.Do(row.tries(s)); err != nil {
				t.Errorf("the attack is stopped by something else: %v", err)
			}
		})
	}
}
