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
		out := heldPage{Held: []approvalapi.Held{}}
		if c.cfg.Approvals == nil {
			return out, nil
		}
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		var err error
		out.Held, err = c.cfg.Approvals.Held(ctx)
		return out, err
	})
}

// heldPage is what waits, and what was decided here.
type heldPage struct {
	Held []approvalapi.Held `json:"held"`
}
