package embedded

import (
	"context"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
)

// Stop returns ErrUnsupported.
func Stop(context.Context, statedir.Dir) (bool, error) { return false, ErrUnsupported }
