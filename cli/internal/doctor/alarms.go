package doctor

import (
	"context"
	"fmt"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
)

// checkAlarms reports the sessions that an alarm has frozen. Without a running CodeForge, or without a frozen session,
// it returns no finding.
func checkAlarms(ctx context.Context, c Config) []Finding {
	op, _, _, err := mcpclient.ConnectOperator(ctx, c.Server)
	if err != nil {
		return nil
	}
	frozen, err := op.FrozenSessions(ctx)
	if err != nil || len(frozen) == 0 {
		return nil
	}
	return []Finding{newWarning("alarms", fmt.Sprintf("%d sessions are frozen, because their code was about to send a "+
		"canary or a credential", len(frozen)), "see codeforge alarms; codeforge unfreeze lets a session run code again")}
}
