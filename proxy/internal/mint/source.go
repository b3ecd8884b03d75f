package mint

import (
	"context"

	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// commandSource is a credential that a feeder outside the proxy supplies.
type commandSource struct{}

// obtainGrant implements kind. It fails: only the feeder can supply the value.
func (commandSource) obtainGrant(context.Context, *requester, storedToken) (grant, error) {
	return grant{}, &failure{policy.CodeSecretUnavailable, detailNotSupplied}
}

// canBeStored implements kind.
func (commandSource) canBeStored() bool { return false }
