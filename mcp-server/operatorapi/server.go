package operatorapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
)

// ErrNoServer is the error for a server that is not in the catalog.
var ErrNoServer error = &rpc.Error{
	API: PeerName, Status: http.StatusNotFound, Code: "no_server",
	Text: "there is no such MCP server, or it is not active",
}

// Review lists the changes of a server's tools that wait for the user. Digest identifies all its present tools.
type Review struct {
	Server  string   `json:"server"`
	Digest  string   `json:"digest"`
	Changes []Change `json:"changes"`
}

// Change is a tool that differs from the accepted one. Its definitions are the server's text.
type Change struct {
	Tool string `json:"tool"`
	// Kind is "new", "changed" or "removed". A removed tool needs no approval. It is listed because another tool may
	// replace it.
	Kind   string          `json:"kind"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// Tool is a tool of a server. The texts are the server's.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Arguments are the names of the arguments, with a ? after each optional one.
	Arguments []string `json:"arguments"`
	// May reports whether code may call the tool: "yes", "held" until the user has reviewed it, or "no". "no" means that
	// the configuration forbids it, or that it runs only as a task.
	May string `json:"may"`
}

// Line is a line of a server's log.
type Line struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// Review fetches the changes of a server's tools. The server is started if its tools are unknown.
func (c Client) Review(ctx context.Context, server string) (Review, error) {
	return fetchAnswer[Review](ctx, c, http.MethodGet, "server/review", url.Values{"server": {server}})
}

// Log fetches the last output and events of a server.
func (c Client) Log(ctx context.Context, server string) ([]Line, error) {
	return fetchAnswer[[]Line](ctx, c, http.MethodGet, "server/log", url.Values{"server": {server}})
}

// Approve accepts a server's tools as shown by the Review with this digest.
func (c Client) Approve(ctx context.Context, server, digest string) error {
	return c.postEmpty(ctx, "server/approve", url.Values{"server": {server}, "digest": {digest}})
}

// Restart ends a server's processes and their calls.
func (c Client) Restart(ctx context.Context, server string) error {
	return c.postEmpty(ctx, "server/restart", url.Values{"server": {server}})
}

func (c Client) postEmpty(ctx context.Context, path string, v url.Values) error {
	_, err := fetchAnswer[struct{}](ctx, c, http.MethodPost, path, v)
	return err
}
