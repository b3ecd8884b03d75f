package operatorapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
)

// ErrNoServer is the answer for a server that the catalog does not have.
var ErrNoServer error = &rpc.Error{
	Status: http.StatusNotFound, Code: "no_server", Text: "there is no such MCP server, or it is not active",
}

// Review is what of a server's tools waits for the user. Digest is of all its tools as they are now.
type Review struct {
	Server  string   `json:"server"`
	Digest  string   `json:"digest"`
	Changes []Change `json:"changes"`
}

// Change is a tool that is not as the user accepted it. Its definitions are the server's words.
type Change struct {
	Tool string `json:"tool"`
	// Kind is "new", "changed" or "removed". A removed tool needs no approval, and is told for what may have replaced it.
	Kind   string          `json:"kind"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// Tool is a tool of a server. The texts are the server's words.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Arguments are their names, those that may be left out with a ? behind.
	Arguments []string `json:"arguments"`
	// May says whether code may call it: "yes", "held" until the user has seen it, or "no" by the configuration,
	// or because it runs as a task only.
	May string `json:"may"`
}

// Line is a line of a server's log.
type Line struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// Review asks what of a server's tools waits for the user. The server is started for that if its tools are not known.
func (c Client) Review(ctx context.Context, server string) (Review, error) {
	return fetch[Review](ctx, c, http.MethodGet, "server/review", url.Values{"server": {server}})
}

// Log fetches what a server printed last, and what happened to it.
func (c Client) Log(ctx context.Context, server string) ([]Line, error) {
	return fetch[[]Line](ctx, c, http.MethodGet, "server/log", url.Values{"server": {server}})
}

// Approve accepts a server's tools as a Review with this digest has shown them.
func (c Client) Approve(ctx context.Context, server, digest string) error {
	return c.post(ctx, "server/approve", url.Values{"server": {server}, "digest": {digest}})
}

// Restart ends a server's processes, with the calls that they have.
func (c Client) Restart(ctx context.Context, server string) error {
	return c.post(ctx, "server/restart", url.Values{"server": {server}})
}

func (c Client) post(ctx context.Context, path string, v url.Values) error {
	_, err := fetch[struct{}](ctx, c, http.MethodPost, path, v)
	return err
}
