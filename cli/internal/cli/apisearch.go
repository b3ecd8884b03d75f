package cli

import (
	"context"
	"fmt"

	"github.com/codeforge-mcp/codeforge/internal/visible"
)

// search prints a model's search results for a query, or why each was found.
func (o *apiOptions) search(ctx context.Context, e *Env, query string) error {
	s, err := o.target.connect(ctx, e)
	if err != nil {
		return err
	}
	defer s.Close()
	text, err := s.Search(ctx, query, o.api, o.explainHits)
	if err != nil {
		return err
	}
	if o.json {
		return printJSONLine(e.Stdout, map[string]string{"query": query, "api": o.api, "text": text})
	}
	_, err = fmt.Fprintln(e.Stdout, visible.Escape(text))
	return err
}
