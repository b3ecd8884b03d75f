// Package approvalapi defines how a person decides about requests that a rule holds: HTTP on a unix socket of the proxy
// (credentialapi). mcp-server and the sandbox cannot reach this socket. Over the control socket (proxyapi),
// mcp-server sees the held requests, and passes on decisions for rules with "by": "any".
//
//	GET  /approvals/v1              -> []Held, the oldest first
//	POST /approvals/v1/{id} Answer  -> Held, as it was decided
//
// Other answers have the body rpc.Error.
package approvalapi

import (
	"context"
	"net/http"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

// Prefix begins every path.
const Prefix = "/approvals/v1"

// HeldRequest is a request that waits for a person. It contains token names, but no credential.
type HeldRequest struct {
	ID string `json:"id"`
	// Run is the run that waits. A request of an MCP server without a run has proxyapi.ServerPrefix and the server's
	// name here; a person can then approve only this one request.
	Run string `json:"run"`
	// Tenant is the same as in proxyapi.Registration.
	Tenant string `json:"tenant,omitempty"`
	// Server is the MCP server that sends the request, or "" if code sends it.
	Server string `json:"server,omitempty"`
	// API and Rule are the API and its rule that hold the request.
	API  string `json:"api"`
	Rule string `json:"rule"`
	// Operator means that only the operator may approve the request: mcp-server cannot.
	Operator bool `json:"operator,omitempty"`
	// Method, URL, Headers and Body are the request as the run wrote it, after redaction. They omit the headers that every
	// client sends. The body is complete.
	Method  string   `json:"method"`
	URL     string   `json:"url"`
	Headers []string `json:"headers,omitempty"`
	Body    string   `json:"body,omitempty"`
	// Since is the time when the proxy held the request. Until is the end of the time to decide.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Waiting means that the run still waits for the answer. Otherwise an approval lets the same request pass once if the
	// code is run again.
	Waiting bool `json:"waiting"`
	// Approved means that the request may pass once until Until.
	Approved bool `json:"approved,omitempty"`
	// Scope is the scope of the approval, in the answer to a decision.
	Scope Scope `json:"scope,omitempty"`
}

// Waiting is the progress message of a run while one of its requests waits for a person.
const Waiting = "waiting for you to approve a request"

// Scope says which requests an approval covers.
type Scope string

// The scopes. The wider ones cover the rest of the run, under the configuration that held the request. For a longer
// time, write an allow rule.
const (
	ScopeOnce Scope = "once" // this request
	ScopePath Scope = "path" // requests under the same rule with this method and path, and any query, headers and body
	ScopeRule Scope = "rule" // all requests under the same rule
)

// IsWide reports whether the scope covers more than one request.
func (s Scope) IsWide() bool { return s == ScopePath || s == ScopeRule }

// Answer is a person's decision. An empty Scope is ScopeOnce.
type Answer struct {
	Approve bool  `json:"approve"`
	Scope   Scope `json:"scope,omitempty"`
}

// Client sends requests through an HTTP client that connects to the socket.
type Client struct{ HTTP *http.Client }

// ListHeld lists the held requests, the oldest first.
func (c Client) ListHeld(ctx context.Context) ([]HeldRequest, error) {
	return rpc.Call[[]HeldRequest](ctx, credentialapi.Peer{Client: c.HTTP}, http.MethodGet, "http://proxy"+Prefix, nil)
}

// DecideHeld approves or refuses a request. It returns an error if the id is no longer held.
func (c Client) DecideHeld(ctx context.Context, id string, a Answer) (HeldRequest, error) {
	return rpc.Call[HeldRequest](ctx, credentialapi.Peer{Client: c.HTTP}, http.MethodPost, "http://proxy"+Prefix+"/"+id, a)
}
