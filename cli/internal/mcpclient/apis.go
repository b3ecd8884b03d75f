package mcpclient

import (
	"context"
	"strings"
)

// ReadTools returns the lines about a server's tools that list_apis shows after the API.
func (s *Session) ReadTools(ctx context.Context, name string) (string, error) {
	r, err := s.callTool(ctx, "asking for "+name, "list_apis", map[string]any{"api": name})
	if len(r.Notes) > 0 {
		return strings.Join(r.Notes, "\n"), err
	}
	return r.Output, err
}

// SearchAPIs returns list_apis' answer to a query, about one API if api is not empty. With explain, it returns why each
// result was found.
func (s *Session) SearchAPIs(ctx context.Context, query, api string, explain bool) (string, error) {
	args := map[string]any{"query": query, "explain": explain}
	if api != "" {
		args["api"] = api
	}
	r, err := s.callTool(ctx, "searching", "list_apis", args)
	return r.Output, err
}
