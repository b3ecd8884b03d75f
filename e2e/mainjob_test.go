// Package e2e tests the whole of CodeForge as users and MCP clients use it, in embedded mode and in Docker.
package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func TestMain(m *testing.M) {
	os.Exit(world.Main(m, world.InstallMCPRemote, installReaders))
}

// script is the main job in three lines.
const script = `const r = await fetch("https://httpbin.test/bearer?t=%s", { headers: { Authorization: "Bearer HTTPBIN_TOKEN" } });
const answer = await r.json();
console.log(r.status, answer.token);
`

// TestMainJob runs code that names a credential: the upstream sees the credential, the code sees the name, and the
// receipt says what was swapped.
func TestMainJob(t *testing.T) {
	if world.CurrentMode() == world.Docker && !testkit.IsThorough() {
		t.Skip("e2e/docker.TestMainJob does the main job there, and TestNoSecret searches the log")
	}
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			w := world.Start(t, world.Config{User: user})
			res := w.MustExecute(t, fmt.Sprintf(script, "line"), "httpbin")
			if res.IsError || res.Out != "200 HTTPBIN_TOKEN\n" {
				t.Fatalf("out %q, error %v, notes %q", res.Out, res.IsError, res.Notes)
			}
			seen := w.Upstream.Seen("line")
			if len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+w.Canaries["HTTPBIN_TOKEN"].Value() {
				t.Errorf("the upstream saw %d requests, want one with the credential: %+v", len(seen), seen)
			}
			ex := res.Receipt.Exchanges
			if len(ex) != 1 || len(ex[0].Swapped) != 1 || ex[0].Swapped[0].Name != "HTTPBIN_TOKEN" || ex[0].Sanitized == 0 {
				t.Errorf("receipt %+v, want one exchange with HTTPBIN_TOKEN swapped and sanitized", res.Receipt)
			}
			if where := w.Leak(res.JSON); where != "" {
				t.Errorf("the result holds a credential: %s", where)
			}
			if where := w.Leak(w.Logs()); where != "" {
				t.Errorf("the log holds a credential: %s", where)
			}
			// The supervisor passes on the proxy's lines, so they may arrive after the run's end.
			testkit.WaitFor(t, func() bool { return strings.Contains(w.Logs(), "[inject]") && strings.Contains(w.Logs(), "[sanitize]") })
		})
	}
}

// users are the users that a test starts CodeForge as: both in embedded mode, where they differ.
func users() map[string]world.User {
	if mode := world.CurrentMode(); mode != world.Embedded {
		return map[string]world.User{string(mode): world.Self}
	}
	if os.Geteuid() != 0 {
		return map[string]world.User{"ordinary user": world.Ordinary}
	}
	return map[string]world.User{"root": world.Self, "ordinary user": world.Ordinary}
}
