package doctor

import (
	"context"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
)

// checkDatabase reports whether the Postgres of a running CodeForge answers. Without a Postgres it returns no finding.
func checkDatabase(ctx context.Context, c Config) []Finding {
	op, _, isLocal, err := mcpclient.ConnectOperator(ctx, c.Server)
	if err != nil || !isLocal {
		return nil
	}
	switch d, err := op.Database(ctx); {
	case err != nil || !d.Used:
		return nil
	case d.Problem != "":
		return []Finding{newWarning("database", d.Problem,
			"CodeForge goes on, and stores what waits when Postgres answers again")}
	}
	return []Finding{newOK("database", "Postgres answers")}
}
