// Package approvalapi is what a person decides about requests that a rule holds, over HTTP on the proxy's own unix
// socket (credentialapi). mcp-server and the sandbox have no way to it. Over the control socket (controlapi),
// mcp-server sees what waits, and passes on decisions about rules that say "by": "any".
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

// Held is a request that waits for a person. It holds token names, and no credential.
type Held struct {
	ID string `json:"id"`
	// Run is the run that waits. For a request of an MCP server that belongs to no run, it is controlapi.ServerPrefix with
	// the server's name. A person can then approve this one request only.
	Run string `json:"run"`
	// Tenant is as in controlapi.Registration.
	Tenant string `json:"tenant,omitempty"`
	// Server is the MCP server that sends the request. Empty: code sends it.
	Server string `json:"server,omitempty"`
	// API and Rule are what holds it.
	API  string `json:"api"`
	Rule string `json:"rule"`
	// Operator means that only the operator may approve it: mcp-server cannot.
	Operator bool `json:"operator,omitempty"`
	// Method, URL, Headers and Body are the request as the run wrote it, after redaction. Headers that every client sends
	// are left out. The body is complete.
	Method  string   `json:"method"`
	URL     string   `json:"url"`
	Headers []string `json:"headers,omitempty"`
	Body    string   `json:"body,omitempty"`
	// Since is when it was held, Until how long it can be decided.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Waiting means that the run still waits for the answer. Else an approval lets the same request pass once when the
	// run is repeated.
	Waiting bool `json:"waiting"`
	// Approved means that it may pass once until Until.
	Approved bool `json:"approved,omitempty"`
	// Scope is what was approved with it, in the answer to a decision.
	Scope Scope `json:"scope,omitempty"`
}

// Waiting is the progress message of a run while one of its requests waits for a person.
const Waiting = "waiting for you to approve a request"

// Scope is what an approval is for.
type Scope string

// The scopes. The wider ones are for the rest of the run, under the configuration that held the request. There is none
// for longer: that is what rules are for.
const (
	ScopeOnce Scope = "once" // this request
	ScopePath Scope = "path" // what the same rule holds with this method and path, whatever its query, headers and body
	ScopeRule Scope = "rule" // everything that the same rule holds
)

// Wide reports whether the scope is more than one request.
func (s Scope) Wide() bool { return s == ScopePath || s == ScopeRule }

// Answer is a person's decision. An empty Scope is ScopeOnce.
type Answer struct {
	Approve bool  `json:"approve"`
	Scope   Scope `json:"scope,omitempty"`
}

// Client asks over an HTTP client that connects to the socket.
type Client struct{ HTTP *http.Client }

// List lists the requests that wait.
func (c Client) List(ctx context.Context) ([]Held, error) {
	return rpc.Call[[]Held](ctx, credentialapi.Peer{Client: c.HTTP}, http.MethodGet, "http://proxy"+Prefix, nil)
}

// Decide approves or refuses a request. It fails if nothing waits under this id any more.
func (c Client) Decide(ctx context.Context, id string, a Answer) (Held, error) {
	return rpc.Call[Held](ctx, credentialapi.Peer{Client: c.HTTP}, http.MethodPost, "http://proxy"+Prefix+"/"+id, a)
}
