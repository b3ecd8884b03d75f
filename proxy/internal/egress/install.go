package egress

import (
	"errors"

	"github.com/codeforge-mcp/codeforge/internal/dialguard"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
)

// installHint returns the operator's hint if an installation cannot reach the package registry; otherwise it returns
// the given text. The model's text names settings only, because code may read it and must not learn the network's
// addresses.
func installHint(code string, err error, otherwise readertext.Text) readertext.Text {
	var refused *dialguard.RefusedError
	switch {
	case code == upstream.CodeAddress && errors.As(err, &refused) && refused.Private.IsValid():
		return readertext.NewText(
			"The registry's name resolves to {a private address|%ADDR, which "+refused.Why+"}. If that is "+
				"meant, PACKAGE_REGISTRY_PRIVATE{|=%RANGE} in .env opens {its range|it}, from the next start on.",
			"%ADDR", refused.Addr.String(), "%RANGE", refused.Private.String())
	case code == upstream.CodeAddress && errors.As(err, &refused):
		return readertext.NewText("The registry's name resolves to {an address that no setting opens|%ADDR, which "+
			refused.Why+". No setting opens it}.", "%ADDR", refused.Addr.String())
	case code == upstream.CodeTLS:
		return readertext.NewText("UPSTREAM_CA_FILE can name the authority of the registry's certificate.")
	case code == upstream.CodeResolve, code == upstream.CodeConnect, code == upstream.CodeTimeout:
		return readertext.NewText(
			"PACKAGE_REGISTRY, or registry in its config.json, must name a registry that can be reached " +
				"from here.")
	}
	return otherwise
}
