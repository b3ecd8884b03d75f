package doctor

import (
	"context"

	"github.com/codeforge-mcp/codeforge/cli/internal/server"
	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
)

// buckets says whether the buckets of a CodeForge that runs answer, as mcp-server found some seconds ago. Without a
// running CodeForge, or without buckets, there is nothing to say.
func buckets(ctx context.Context, c Config) []Finding {
	op, _, isLocal, err := server.Operator(ctx, c.Server)
	if err != nil || !isLocal {
		return nil
	}
	b, err := op.Buckets(ctx)
	if err != nil {
		return nil
	}
	return append(bucketFinding("bucket of skills", b.Skills), bucketFinding("bucket of runs", b.Runs)...)
}

func bucketFinding(check string, b *historyapi.Bucket) []Finding {
	switch {
	case b == nil:
		return nil
	case b.Problem != "":
		return []Finding{warn(check, b.Problem, "CodeForge goes on without it, and needs no restart when it answers again")}
	}
	return []Finding{ok(check, b.Address+" answers")}
}
