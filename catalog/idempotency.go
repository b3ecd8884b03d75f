package catalog

import (
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// maxIdempotency is the longest name of the header in bytes.
const maxIdempotency = 64

// readIdempotency reads "idempotency". It accepts only known names for such a header. The proxy writes this header, so
// it must not change how a server reads the request.
func (d *configDecoder) readIdempotency(c *configFile, n *node) {
	d.ReadString("idempotency", n, &c.idempotency)
	// Header names are case-insensitive.
	name := strings.ToLower(c.idempotency)
	known := strings.HasSuffix(name, "idempotency-key") || strings.HasSuffix(name, "-request-id")
	if n.Kind == jsonread.String && (!known || !isToken(name) || len(name) > maxIdempotency) {
		d.AddError("idempotency", "something else", `the name of a header for idempotency keys, e.g. "Idempotency-Key"`)
		c.idempotency = ""
	}
}
