//go:build disarm

package guard_test

import (
	"net/http"
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/guard"
)

// TestDisarmed: without these defences, foreign pages and hosts get an answer, other machines get the local paths, and a
// stream outlives its token.
// e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	for _, c := range locals {
		if c.defence == "" {
			continue
		}
		t.Run(c.defence, func(t *testing.T) {
			t.Setenv("CODEFORGE_DISARM", c.defence)
			if w := send(t, newLocalGuard(), http.MethodPost, "/mcp", c.host, c.header); w.Code != http.StatusOK {
				t.Errorf("Host %q %q is stopped by something else: %d", c.host, c.header, w.Code)
			}
		})
	}
	for _, c := range outside {
		if c.defence == "" {
			continue
		}
		t.Run(c.defence, func(t *testing.T) {
			t.Setenv("CODEFORGE_DISARM", c.defence)
			h := guard.New(newPublicConfig()).SplitRequests(say("local"), say("public"))
			w := send(t, h, http.MethodPost, "/console", c.host, c.header)
			if w.Code != http.StatusOK || w.Body.String() == c.want {
				t.Errorf("Host %q %q is stopped by something else: %d %s", c.host, c.header, w.Code, w.Body)
			}
		})
	}
	t.Run("client-stream", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "client-stream")
		if _, ended := revokeDuringStream(t); ended {
			t.Error("the attack is stopped by something else")
		}
	})
}
