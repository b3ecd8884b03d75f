package catalog

import (
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

const (
	// maxIdempotency is how long the name of the header may be, in bytes.
	maxIdempotency = 64
	// idempotencyPattern is that of the names of idempotency.
	idempotencyPattern = "^[A-Za-z0-9-]*([Ii]dempotency-[Kk]ey|-[Rr]equest-[Ii]d)$"
)

// idempotency reads "idempotency". Only what is known as such a header may be one: the proxy writes it, so that it must
// be none that says how the request is to be read.
func (d *decoder) idempotency(c *config, n *node) {
	d.Str("idempotency", n, &c.idempotency)
	name := strings.ToLower(c.idempotency)
	known := strings.HasSuffix(name, "idempotency-key") || strings.HasSuffix(name, "-request-id")
	if n.Kind == jsonread.String && (!known || !isToken(name) || len(name) > maxIdempotency) {
		d.Bad("idempotency", "something else", `the name of a header for idempotency keys, e.g. "Idempotency-Key"`)
		c.idempotency = ""
	}
}
