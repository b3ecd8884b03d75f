// Package planapi is what a person decides about the plan of a dry run, over HTTP on the proxy's own unix socket
// (credentialapi). mcp-server and the sandbox have no way to it. Over the control socket (controlapi), mcp-server sees
// the plans, and passes on decisions about those of which every step is held by a rule that says "by": "any".
//
//	GET  /plans/v1              -> []Plan without bodies, headers and answers, the oldest first
//	GET  /plans/v1/{id}         -> Plan
//	POST /plans/v1/{id} Answer  -> Plan, as it was decided: "running" or "refused"
//
// Other answers have the body rpc.Error.
package planapi

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

// Prefix begins every path.
const Prefix = "/plans/v1"

// State is what has become of a plan.
type State string

// The states.
const (
	Open    State = "open"    // nobody has decided
	Running State = "running" // it is being sent
	Done    State = "done"    // every chosen step was answered with a status of success
	Stopped State = "stopped" // a step was not, and those after it were not sent
	Refused State = "refused" // a person refused it
	Stale   State = "stale"   // the configuration has changed since
)

// Plan is what a dry run would have sent. It holds token names, and no credential.
type Plan struct {
	ID  string `json:"id"`
	Run string `json:"run"`
	// Digest is over everything that would be sent, under which configuration. An approval names it.
	Digest string `json:"digest"`
	// Operator means that only the operator may approve it: mcp-server cannot.
	Operator bool  `json:"operator,omitempty"`
	State    State `json:"state"`
	// Writes is the number of steps, Reads that of the requests that the run sent.
	Writes int `json:"writes"`
	Reads  int `json:"reads"`
	// Since is when the run ended, Until how long the plan can be approved, or its answers be read.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Ended is a sentence that says why later writes of the run are not in the plan. Empty: the plan is complete.
	Ended string `json:"ended,omitempty"`
	// Picture is the plan in few lines, made harmless for a terminal.
	Picture []string `json:"picture"`
	// Steps are in the order in which they are sent. Nil in a list and in a receipt.
	Steps []Step `json:"steps,omitempty"`
	// Audit is the checkpoint of the ledger that covers what was sent, or empty.
	Audit string `json:"audit,omitempty"`
}

// Step is one request, as the run wrote it, after redaction.
type Step struct {
	N int `json:"n"`
	// APIs are those whose token names are replaced in it.
	APIs []string `json:"apis,omitempty"`
	// Rule is the rule that would have held the request, or empty.
	Rule string `json:"rule,omitempty"`
	// Method, URL, Headers and Body are complete, but for the headers that every client sends. A call of an MCP server's
	// tool has Server and Tool instead of a method and a URL, and its arguments as the body.
	Method  string   `json:"method,omitempty"`
	URL     string   `json:"url,omitempty"`
	Server  string   `json:"server,omitempty"`
	Tool    string   `json:"tool,omitempty"`
	Headers []string `json:"headers,omitempty"`
	Body    string   `json:"body,omitempty"`
	// Tokens are the token names in it.
	Tokens []string `json:"tokens,omitempty"`
	// Changes are the fields that it changes of what the run had read at the same URL, which is read again before the
	// step is sent.
	Changes []Change `json:"changes,omitempty"`
	Answer  *Reply   `json:"answer,omitempty"`
}

// Change is a field before and after a step, as JSON. It is empty if there is none.
type Change struct {
	Field  string `json:"field"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Reply is the result of a step.
type Reply struct {
	// Status is the answer's, scrubbed like every other. 0: the step was not sent.
	Status int `json:"status,omitempty"`
	// Code and Why say why it was not sent, or is not a success: a word and a sentence. Empty for an upstream's answer.
	Code string `json:"code,omitempty"`
	Why  string `json:"why,omitempty"`
	// Body is the beginning of the answer, if it is text.
	Body string `json:"body,omitempty"`
	// Bytes is the length of all of it.
	Bytes        int64   `json:"bytes,omitempty"`
	Milliseconds float64 `json:"ms,omitempty"`
}

// OK reports whether the step was answered with a status of success.
func (r *Reply) OK() bool { return r != nil && r.Code == "" && r.Status >= 200 && r.Status < 300 }

// Answer is a person's decision.
type Answer struct {
	Approve bool `json:"approve"`
	// Digest is that of the plan which the person saw.
	Digest string `json:"digest"`
	// Steps are those to send. Empty: all of them.
	Steps []int `json:"steps,omitempty"`
}

// Client asks over an HTTP client that connects to the socket.
type Client struct{ HTTP *http.Client }

// List lists the plans.
func (c Client) List(ctx context.Context) ([]Plan, error) {
	return rpc.Call[[]Plan](ctx, credentialapi.Peer{Client: c.HTTP}, http.MethodGet, "http://proxy"+Prefix, nil)
}

// Get is a plan with its steps.
func (c Client) Get(ctx context.Context, id string) (Plan, error) {
	at := "http://proxy" + Prefix + "/" + url.PathEscape(id)
	return rpc.Call[Plan](ctx, credentialapi.Peer{Client: c.HTTP}, http.MethodGet, at, nil)
}

// Decide approves or refuses a plan, once.
func (c Client) Decide(ctx context.Context, id string, a Answer) (Plan, error) {
	at := "http://proxy" + Prefix + "/" + url.PathEscape(id)
	return rpc.Call[Plan](ctx, credentialapi.Peer{Client: c.HTTP}, http.MethodPost, at, a)
}
