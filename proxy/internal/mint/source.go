package mint

import (
	"context"

	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// supplied is a credential that a feeder outside the proxy supplies.
type supplied struct{}

// obtain implements kind. It fails: only the feeder can supply the value.
func (supplied) obtain(context.Context, *requester, kept) (grant, error) {
	return grant{}, &failure{policy.CodeSecretUnavailable, detailNotSupplied}
}

// stored implements kind.
func (supplied) stored() bool { return false }
