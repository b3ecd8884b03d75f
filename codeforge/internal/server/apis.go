package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Search is what list_apis answers to a question, about one API if its name is not empty.
func (s *Session) Search(ctx context.Context, query, api string) (string, error) {
	args := map[string]any{"query": query}
	if api != "" {
		args["api"] = api
	}
	res, err := s.mcp.CallTool(ctx, &mcp.CallToolParams{Name: "list_apis", Arguments: args})
	if err != nil {
		return "", fmt.Errorf("searching: %w", err)
	}
	r, err := result(res)
	if err == nil && r.Failed {
		err = errors.New(r.Output)
	}
	return r.Output, err
}
