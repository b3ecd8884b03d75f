package cli

import (
	"context"
	"fmt"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

// searchAPIs prints a model's search results for a query, or why each was found.
func (o *apiOptions) searchAPIs(ctx context.Context, e *Env, query string) error {
	s, err := o.target.openSession(ctx, e)
	if err != nil {
		return err
	}
	defer s.Close()
	text, err := s.SearchAPIs(ctx, query, o.api, o.explainHits)
	if err != nil {
		return err
	}
	if o.json {
		return printJSONLine(e.Stdout, map[string]string{"query": query, "api": o.api, "text": text})
	}
	_, err = fmt.Fprintln(e.Stdout, safetext.EscapeOdd(text))
	return err
}
