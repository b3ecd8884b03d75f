package interp

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// TestExplainKill: a kill is the kernel's for lack of memory only if the kernel has counted one, or the run held too much.
func TestExplainKill(t *testing.T) {
	const limit = 1 << 30
	for name, row := range map[string]struct {
		held, before, after int64
		reason              sandboxapi.Reason
		begins              string
	}{
		"over its limit":          {limit + 1, 3, 3, sandboxapi.OOM, "The run used more memory than its limit of 1024 MiB"},
		"the kernel counted it":   {64 << 20, 3, 4, sandboxapi.OOM, "The kernel ended the run: there was no memory left for all the runs together. The run held at most 64 MiB of its limit of 1024 MiB."},
		"the kernel did not":      {limit - 1, 3, 3, sandboxapi.Cancelled, "The code itself, an operator or a program on this machine killed the run (SIGKILL). The kernel reports no kill"},
		"the kernel does not":     {limit - 1, -1, -1, sandboxapi.Cancelled, "The kernel, the code itself, an operator or a program on this machine killed the run (SIGKILL)."},
		"only once it was unread": {limit - 1, -1, 7, sandboxapi.Cancelled, "The kernel, the code itself, an operator or a program on this machine killed the run (SIGKILL)."},
	} {
		reason, detail := explainKill(row.held, limit, row.before, row.after)
		if reason != row.reason || !strings.HasPrefix(detail, row.begins) {
			t.Errorf("%s: %s, %s", name, reason, detail)
		}
	}
	if n := proc.OOMKills(); n < 0 {
		t.Errorf("this kernel counts %d", n)
	}
}
