package egress

import (
	"errors"

	"github.com/codeforge-mcp/codeforge/proxy/internal/dialguard"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
)

// installHint is what the operator can do when an installation cannot reach the package registry: the settings are not
// those of an API. No code sees it.
func installHint(code string, err error, otherwise string) string {
	var refused *dialguard.RefusedError
	switch {
	case code == upstream.CodeAddress && errors.As(err, &refused):
		leads := "The registry's name leads to " + refused.Addr.String() + ", which " + refused.Why
		if !refused.Private.IsValid() {
			return leads + ". No setting opens it."
		}
		return leads + ". If that is meant, PACKAGE_REGISTRY_PRIVATE=" + refused.Private.String() +
			" in .env opens it, from the next start on."
	case code == upstream.CodeTLS:
		return "UPSTREAM_CA_FILE can name the authority of the registry's certificate."
	case code == upstream.CodeResolve, code == upstream.CodeConnect, code == upstream.CodeTimeout:
		return "PACKAGE_REGISTRY, or registry in its config.json, must name a registry that can be reached from here."
	}
	return otherwise
}
