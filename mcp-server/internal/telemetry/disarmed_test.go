//go:build disarm

package telemetry

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestDisarmed switches the defence off, and then its attack succeeds: e2e/negative.
func TestDisarmed(t *testing.T) {
	t.Run("trace-method", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "trace-method")
		_, all := record(t, execution.RunRequest{}, execution.Outcome{Receipt: proxyapi.Receipt{Exchanges: []proxyapi.Exchange{exchangeOf("sk_live_value")}}}, nil)
		if !strings.Contains(all, "sk_live_value") {
			t.Error("the attack is stopped by something else")
		}
	})
	t.Run("telemetry-debug", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "telemetry-debug")
		if all, _ := collectSignals(t, Logs); !strings.Contains(all[Logs], "code-of-a-run") {
			t.Error("the attack is stopped by something else")
		}
	})
}
