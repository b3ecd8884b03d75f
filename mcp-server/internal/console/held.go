package console

import (
	"context"
	"net/http"

	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// Approvals are the requests that wait for a person.
type Approvals interface {
	Held(ctx context.Context) ([]approvalapi.Held, error)
}

// heldRoutes are the page of requests that wait.
func (c *Console) heldRoutes(handle func(string, func(*http.Request) (any, error))) {
	handle("GET held", func(r *http.Request) (any, error) {
		if c.cfg.Approvals == nil {
			return []approvalapi.Held{}, nil
		}
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		return c.cfg.Approvals.Held(ctx)
	})
}
