package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Tools are the lines about a server's tools that list_apis shows, behind what it says of the API.
func (s *Session) Tools(ctx context.Context, name string) (string, error) {
	res, err := s.mcp.CallTool(ctx, &mcp.CallToolParams{Name: "list_apis", Arguments: map[string]any{"api": name}})
	if err != nil {
		return "", fmt.Errorf("asking for %s: %w", name, err)
	}
	var parts []string
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			parts = append(parts, t.Text)
		}
	}
	text := strings.Join(parts, "\n")
	if res.IsError {
		return "", errors.New(text)
	}
	if len(parts) > 1 {
		return strings.Join(parts[1:], "\n"), nil
	}
	return text, nil
}

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
