// Package approvalapi defines how a person decides about requests that a rule holds, and about the plans of dry runs:
// HTTP on two unix sockets of the proxy. The operator's socket (credentialapi) accepts every decision. mcp-server and
// the sandbox cannot reach it. The control socket (proxyapi) shows mcp-server the same requests and plans. Over it
// the proxy accepts a decision only if a rule with "by": "any" holds the request, or every step of the plan.
//
//	GET  {held}              -> []HeldRequest, the oldest first
//	POST {held}/{id}  Answer -> HeldRequest, as it was decided
//	GET  {plans}             -> []Plan without bodies, headers and answers, the oldest first
//	GET  {plans}/{id}        -> Plan
//	POST {plans}/{id} Answer -> Plan, as it was decided: "running" or "refused"
//
// Other answers have the body rpc.Error.
package approvalapi

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/timing"
)

// Paths are the paths of a socket at which the API begins.
type Paths struct{ Held, Plans string }

// The paths on the operator's socket and on the control socket.
var (
	OperatorPaths = Paths{Held: "/approvals/v1", Plans: "/plans/v1"}
	ControlPaths  = Paths{Held: "/v1/held", Plans: "/v1/plans"}
)

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

// Answer is a person's decision.
type Answer struct {
	Approve bool `json:"approve"`
	// Scope is for a held request. Empty means ScopeOnce.
	Scope Scope `json:"scope,omitempty"`
	// Digest is the digest of the plan that the person saw.
	Digest string `json:"digest,omitempty"`
	// Steps are the numbers of the plan's steps to send. An empty list means all steps.
	Steps []int `json:"steps,omitempty"`
}

// Client sends requests to the proxy over one of the sockets.
type Client struct {
	Peer  rpc.Peer
	Paths Paths
}

// ListHeld lists the requests of all runs that wait for a person, the oldest first.
func (c Client) ListHeld(ctx context.Context) ([]HeldRequest, error) {
	return callProxy[[]HeldRequest](ctx, c, http.MethodGet, c.Paths.Held, nil)
}

// DecideHeld approves or refuses a request. It returns an *rpc.Error if the id is not held, or if only the
// operator may decide and this is not the operator's socket.
func (c Client) DecideHeld(ctx context.Context, id string, a Answer) (HeldRequest, error) {
	return callProxy[HeldRequest](ctx, c, http.MethodPost, c.Paths.Held+"/"+url.PathEscape(id), a)
}

// ListPlans lists the plans, the oldest first, without their steps.
func (c Client) ListPlans(ctx context.Context) ([]Plan, error) {
	return callProxy[[]Plan](ctx, c, http.MethodGet, c.Paths.Plans, nil)
}

// GetPlan returns a plan with its steps.
func (c Client) GetPlan(ctx context.Context, id string) (Plan, error) {
	return callProxy[Plan](ctx, c, http.MethodGet, c.Paths.Plans+"/"+url.PathEscape(id), nil)
}

// DecidePlan approves or refuses a plan, once. Its errors are those of DecideHeld.
func (c Client) DecidePlan(ctx context.Context, id string, a Answer) (Plan, error) {
	return callProxy[Plan](ctx, c, http.MethodPost, c.Paths.Plans+"/"+url.PathEscape(id), a)
}

// WaitForPlan waits until the proxy has sent a plan, or until ctx ends, and returns the plan.
func (c Client) WaitForPlan(ctx context.Context, id string) (Plan, error) {
	for {
		p, err := c.GetPlan(ctx, id)
		if err != nil || p.State != StateRunning || !timing.WaitFor(ctx, 100*time.Millisecond) {
			return p, err
		}
	}
}

func callProxy[T any](ctx context.Context, c Client, method, path string, body any) (T, error) {
	return rpc.Call[T](ctx, c.Peer, method, "http://proxy"+path, body)
}
