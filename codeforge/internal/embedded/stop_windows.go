package embedded

import (
	"context"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/statedir"
)

// Stop returns ErrUnsupported.
func Stop(context.Context, statedir.Dir) (bool, error) { return false, ErrUnsupported }
