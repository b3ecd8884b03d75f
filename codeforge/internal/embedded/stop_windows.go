package embedded

import (
	"context"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/statedir"
)

// Stop finds nothing to stop here.
func Stop(context.Context, statedir.Dir) (bool, error) { return false, ErrUnsupported }
