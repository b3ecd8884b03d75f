package approvalapi

import "time"

// State is the state of a plan.
type State string

// The states.
const (
	StateOpen    State = "open"    // no decision yet
	StateRunning State = "running" // the proxy is sending it
	StateDone    State = "done"    // every chosen step got an answer with a status of success
	StateStopped State = "stopped" // a step failed, and the proxy did not send the steps after it
	StateRefused State = "refused" // a person refused it
	StateStale   State = "stale"   // the configuration has changed since
)

// Plan lists the requests that a dry run would have sent. It contains token names, but no credential.
type Plan struct {
	ID  string `json:"id"`
	Run string `json:"run"`
	// Digest identifies the requests of the plan and their configuration. An approval must repeat it.
	Digest string `json:"digest"`
	// Operator means that only the operator may approve the plan: mcp-server cannot.
	Operator bool  `json:"operator,omitempty"`
	State    State `json:"state"`
	// Writes is the number of steps. Reads is the number of requests that the run sent.
	Writes int `json:"writes"`
	Reads  int `json:"reads"`
	// Since is the end of the run. Until is the end of the time to approve the plan, or to read its answers.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Ended is a sentence that says why later writes of the run are not in the plan. It is empty if the plan is complete.
	Ended string `json:"ended,omitempty"`
	// Picture shows the plan in few lines, safe for a terminal.
	Picture []string `json:"picture"`
	// Steps are in the order in which the proxy sends them. Lists and receipts omit them.
	Steps []Step `json:"steps,omitempty"`
	// Audit is the ledger's checkpoint that covers the sent steps, or empty.
	Audit string `json:"audit,omitempty"`
}

// Step is one request, as the run wrote it, after redaction.
type Step struct {
	N int `json:"n"`
	// APIs are the APIs whose token names the proxy swaps in the step.
	APIs []string `json:"apis,omitempty"`
	// Rule is the rule that would have held the request, or empty.
	Rule string `json:"rule,omitempty"`
	// Method, URL, Headers and Body are complete, except for the headers that every client sends. A call of an MCP
	// server's tool has Server and Tool instead of a method and a URL, and its arguments as the body.
	Method  string   `json:"method,omitempty"`
	URL     string   `json:"url,omitempty"`
	Server  string   `json:"server,omitempty"`
	Tool    string   `json:"tool,omitempty"`
	Headers []string `json:"headers,omitempty"`
	Body    string   `json:"body,omitempty"`
	// Tokens are the token names in the step.
	Tokens []string `json:"tokens,omitempty"`
	// Changes are the fields that the step changes in the object that the run read at the same URL. The proxy reads the
	// object again before it sends the step.
	Changes []Change `json:"changes,omitempty"`
	Answer  *Reply   `json:"answer,omitempty"`
}

// Title returns the first line of a step, as code wrote it.
func (s Step) Title() string {
	if s.Server != "" {
		return "CALL " + s.Server + "." + s.Tool
	}
	return s.Method + " " + s.URL
}

// Change is a field before and after a step, as JSON. An empty string means that the field is missing.
type Change struct {
	Field  string `json:"field"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Reply is the result of a step.
type Reply struct {
	// Status is the status of the answer, or 0 if the step was not sent.
	Status int `json:"status,omitempty"`
	// Code and Why are a word and a sentence that say why the step was not sent or failed. They are empty for an
	// upstream's answer.
	Code string `json:"code,omitempty"`
	Why  string `json:"why,omitempty"`
	// Body is the beginning of the scrubbed answer, if it is text.
	Body string `json:"body,omitempty"`
	// Bytes is the length of the whole answer.
	Bytes        int64   `json:"bytes,omitempty"`
	Milliseconds float64 `json:"ms,omitempty"`
}

// IsOK reports whether the step got an answer with a status of success.
func (r *Reply) IsOK() bool { return r != nil && r.Code == "" && r.Status >= 200 && r.Status < 300 }
