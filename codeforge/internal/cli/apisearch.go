package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/server"
	"github.com/codeforge-mcp/codeforge/internal/visible"
)

// search prints what a model gets for a question.
func (o *apiOptions) search(ctx context.Context, e *Env, query string) error {
	c, err := o.target.config(e)
	if err != nil {
		return err
	}
	s, err := server.Connect(ctx, c, server.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	text, err := s.Search(ctx, query, o.api)
	if err != nil {
		return err
	}
	if o.json {
		enc := json.NewEncoder(e.Stdout)
		enc.SetEscapeHTML(false)
		return enc.Encode(map[string]string{"query": query, "api": o.api, "text": text})
	}
	_, err = fmt.Fprintln(e.Stdout, visible.Escape(text))
	return err
}
