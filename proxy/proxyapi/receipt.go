package proxyapi

import (
	"cmp"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// Receipt reports the proxy's work for one run.
type Receipt struct {
	Run        string     `json:"run"`
	Tenant     string     `json:"tenant,omitempty"` // as in Registration
	Generation uint64     `json:"generation"`
	Exchanges  []Exchange `json:"exchanges"`
	// Omitted counts exchanges beyond the bound on Exchanges.
	Omitted int `json:"omitted,omitempty"`
	// Hints say why the proxy blocked a request, why it failed, or why a name was not swapped. They are constant sentences
	// with names of the catalog, a normalised host name, and the address of a host of the catalog.
	Hints []Hint `json:"hints,omitempty"`
	Count Count  `json:"count"`
	// Audit is the short form of the ledger's checkpoint that covers the run: see proxy/ledger. It is empty if the run
	// sent no request, or if there is no ledger.
	Audit string `json:"audit,omitempty"`
	// Alarm is the alarm that ended the run, or nil.
	Alarm *Alarm `json:"alarm,omitempty"`
	// Plan is the plan of a dry run, without its steps. It is nil if the plan is empty, or if the run was not a dry run.
	Plan *approvalapi.Plan `json:"plan,omitempty"`
}

// Summary is mcp-server's report on a run that has ended.
type Summary struct {
	// Client is the name and version of the MCP client, as the client sent them.
	Client     string `json:"client,omitempty"`
	Language   string `json:"language,omitempty"`
	CodeSHA256 string `json:"code_sha256,omitempty"`
	CodeBytes  int    `json:"code_bytes,omitempty"`
	// Outcome is the reason of the exit, a sandboxapi.Reason or OutcomeLost. It is empty if the run was not started.
	Outcome         string  `json:"outcome,omitempty"`
	ExitCode        int     `json:"exit_code,omitempty"`
	Milliseconds    float64 `json:"ms,omitempty"`
	CPUMilliseconds int64   `json:"cpu_ms,omitempty"`
	// MemoryPeak is in bytes.
	MemoryPeak int64 `json:"memory_peak,omitempty"`
	// Warm means that the run used an interpreter that was already started.
	Warm bool `json:"warm,omitempty"`
	// Traceparent is the header of the MCP request: https://www.w3.org/TR/trace-context/
	Traceparent string `json:"traceparent,omitempty"`
}

// WhyIncomplete returns a sentence that says why later writes of the code may be missing from its plan. It returns ""
// if the code ended by itself with exit code 0.
func (s Summary) WhyIncomplete() string {
	const missing = " Its later writes are not in the plan."
	switch {
	case s.Outcome != outcomeExited:
		return "The run ended before the code had finished (" + cmp.Or(s.Outcome, "interrupted") + ")." + missing
	case s.ExitCode != 0:
		return "The code failed with exit code " + strconv.Itoa(s.ExitCode) + "." + missing
	}
	return ""
}

// outcomeExited is Summary.Outcome of code that ended by itself: sandboxapi.Exited.
const outcomeExited = "exited"

// OutcomeLost is Summary.Outcome if mcp-server did not report the end of the run, because mcp-server or the proxy ended
// first.
const OutcomeLost = "lost"

// Count is the sum of a run's exchanges, including the omitted ones.
type Count struct {
	Exchanges int   `json:"exchanges"`
	Denied    int   `json:"denied"`
	Failed    int   `json:"failed"`
	Swapped   int   `json:"swapped"`
	Sanitized int   `json:"sanitized"`
	Redacted  int   `json:"redacted"`
	BytesUp   int64 `json:"bytes_up"`
	BytesDown int64 `json:"bytes_down"`
}

// AddExchange counts one exchange.
func (c *Count) AddExchange(e Exchange) {
	c.Exchanges++
	switch e.Outcome {
	case OutcomeDenied:
		c.Denied++
	case OutcomeFailed, OutcomeAborted:
		c.Failed++
	}
	c.Swapped += len(e.Swapped)
	c.Sanitized += e.Sanitized
	c.Redacted += e.Redacted
	c.BytesUp += e.BytesUp
	c.BytesDown += e.BytesDown
}

// The outcomes of an exchange.
const (
	OutcomeServed  = "served"  // the upstream answered
	OutcomeDenied  = "denied"  // policy refused it, and the proxy did not send it
	OutcomeFailed  = "failed"  // the upstream was unreachable, or its response broke off
	OutcomeAborted = "aborted" // the client, the end of the run or a reload cut it off
	OutcomePlanned = "planned" // a dry run recorded it, and the proxy did not send it
)

// Exchange is one HTTP request and response through the proxy, with the decisions made on it.
type Exchange struct {
	// ID is unique among all exchanges of all times.
	ID  string    `json:"id,omitempty"`
	At  time.Time `json:"at"`
	Run string    `json:"run,omitempty"`
	// Tenant is the same as in Registration.
	Tenant string `json:"tenant,omitempty"`
	// CausedBy is set for a request of an MCP server that belongs to one run. Its Call is empty if several calls of that
	// run may have caused the request.
	CausedBy *Cause `json:"caused_by,omitempty"`
	Method   string `json:"method"`
	// URL is as the sandbox wrote it, after redaction and without query values.
	URL  string   `json:"url"`
	Host string   `json:"host"`
	APIs []string `json:"apis,omitempty"`
	// Outcome is one of the constants above.
	Outcome string `json:"outcome"`
	// Status is the status that the sandbox received.
	Status int `json:"status"`
	// Type is the media type of the answer, if it is one of MediaTypes.
	Type string `json:"type,omitempty"`
	// Code is the code of a refusal or failure, e.g. "method_restricted".
	Code      string `json:"code,omitempty"`
	Swapped   []Swap `json:"swapped,omitempty"`
	Sanitized int    `json:"sanitized,omitempty"`
	// Scrubbed lists the credentials that Sanitized counts: their names, and the parts of the answer that contained them.
	Scrubbed []Swap `json:"scrubbed,omitempty"`
	// Unlisted is how many more there were: a receipt and the ledger list 32 of Swapped and of Scrubbed.
	Unlisted int `json:"unlisted,omitempty"`
	Redacted int `json:"redacted,omitempty"`
	// BytesUp and BytesDown count the bytes of the bodies. HeadUp counts those of the method, path, query and headers as
	// code wrote them.
	BytesUp   int64 `json:"bytes_up"`
	HeadUp    int64 `json:"head_up,omitempty"`
	BytesDown int64 `json:"bytes_down"`
	// Caused lists the requests that an MCP server sent because of one of Among calls.
	Caused []Exchange `json:"caused,omitempty"`
	Among  int        `json:"among,omitempty"`
	// Plan is the plan that recorded or sent the exchange, and Step its number in the plan. Step 0 is a read that the plan
	// repeated before a step.
	Plan string `json:"plan,omitempty"`
	Step int    `json:"step,omitempty"`
	// Milliseconds is the time from the request's head to the last byte of the answer.
	Milliseconds float64 `json:"ms"`
	// HeldMS is the part of Milliseconds that the request waited for a person. FirstMS is the time until the head of the
	// answer.
	HeldMS  float64 `json:"held_ms,omitempty"`
	FirstMS float64 `json:"first_ms,omitempty"`
}

// CalledTool returns the tool that code called, as SERVER.TOOL, or "" for an exchange with another host than
// ServersHost.
func (e Exchange) CalledTool() string {
	rest, ok := strings.CutPrefix(e.URL, "https://"+ServersHost+"/")
	if !ok {
		return ""
	}
	server, tool, _ := strings.Cut(rest, "/")
	if len(e.APIs) == 1 { // the catalog's name, however code spelled it
		server = e.APIs[0]
	}
	if plain, err := url.PathUnescape(tool); err == nil {
		tool = plain
	}
	return server + "." + cmp.Or(tool, "$tools")
}

// MediaTypes lists the media types that Exchange.Type may have. Any other would be the upstream's text.
func MediaTypes() []string {
	return []string{
		"application/json", "text/html", "text/plain", "text/csv", "text/xml", "application/xml", "application/xhtml+xml",
		"text/event-stream", "application/x-ndjson", "application/octet-stream",
	}
}

// These prefixes, followed by the server's name, replace a run's id for MCP servers and installations. No run has such
// an id.
const (
	ServerPrefix  = "server-"
	InstallPrefix = "install-"
)

// IsRunID reports whether an id belongs to a run.
func IsRunID(id string) bool {
	return !strings.HasPrefix(id, ServerPrefix) && !strings.HasPrefix(id, InstallPrefix)
}

// Cause is a call of a tool that made its server send requests.
type Cause struct {
	Run  string `json:"run"`
	Call string `json:"call"` // in the form of Exchange.Call
	// Among is how many calls may have caused the request: one, or all that were in flight.
	Among int `json:"among"`
}

// ServerCalls is the complete list of calls in progress at an MCP server. A call that is not listed has ended.
type ServerCalls struct {
	// Version grows with each change. The proxy ignores a list that is older than the last one it got.
	Version uint64       `json:"version"`
	Calls   []ServerCall `json:"calls"`
}

// ServerCall is a request that mcp-server has sent to an MCP server.
type ServerCall struct {
	// ID is unique among the calls of a registration.
	ID uint64 `json:"id"`
	// Run is the run that called. It is empty for other requests, for example if mcp-server lists the tools.
	Run string `json:"run,omitempty"`
	// Call has the form of Exchange.CalledTool.
	Call string `json:"call,omitempty"`
	// GivenUp means that the caller no longer waits. The server may still work on the call.
	GivenUp bool `json:"given_up,omitempty"`
}

// CausedRequests lists the requests that a server sent because of a call.
type CausedRequests struct {
	Cause
	Exchanges []Exchange `json:"exchanges"`
	Omitted   int        `json:"omitted,omitempty"` // exchanges beyond a bound
}

// AddCaused attaches the caused requests to their calls.
func (r *Receipt) AddCaused(list []CausedRequests) {
	for _, c := range list {
		for i := range r.Exchanges {
			x := &r.Exchanges[i]
			// The same call may occur several times: each list goes to the first call without one.
			if x.Among == 0 && x.CalledTool() == c.Call {
				x.Caused, x.Among = c.Exchanges, c.Among
				break
			}
		}
		r.Omitted += c.Omitted
	}
}

// Swap records that the proxy replaced a token name by its credential, or a credential by its name, and where. Count is
// how often, if more than once.
type Swap struct {
	Name  string `json:"name"`
	In    string `json:"in"`
	Count int    `json:"count,omitempty"`
}

// Hint is a sentence of advice.
type Hint struct {
	Code string `json:"code"`
	// Text is for the model. Person is for a person at the command line, or empty if the text is the same.
	Text   string `json:"text"`
	Person string `json:"person,omitempty"`
	// Method and Host name the request, if the text does not.
	Method string `json:"method,omitempty"`
	Host   string `json:"host,omitempty"`
}

// The codes of hints that mcp-server reads. It drops HintETag, on a removed ETag, if the code reads no ETag.
// HintRejected is on an upstream's 401 or 403, so mcp-server adds no hint on that status.
const (
	HintETag     = "etag_removed"
	HintRejected = "credential_rejected"
)

// RequestPrefix returns the request of the hint, to precede its text, or "".
func (h Hint) RequestPrefix() string {
	if h.Method == "" || h.Host == "" {
		return ""
	}
	return h.Method + " " + h.Host + ": "
}

// VoiceText returns the hint for each reader, with its request.
func (h Hint) VoiceText() readertext.Text {
	return readertext.Text{Model: h.RequestPrefix() + h.Text, Person: h.RequestPrefix() + cmp.Or(h.Person, h.Text)}
}

// Refusal is the JSON body of a refused request, and of a call of a tool that failed.
type Refusal struct {
	Error string `json:"error"`
	Code  string `json:"code"`
	Host  string `json:"host,omitempty"`
	Hint  string `json:"hint,omitempty"`
	// Person is the hint for a person at the command line. Code does not see it.
	Person string `json:"-"`
	// Retryable, Server and Tool are for calls of an MCP server's tools. Retryable means that the call was not made, and
	// may be possible later.
	Retryable bool   `json:"retryable,omitempty"`
	Server    string `json:"server,omitempty"`
	Tool      string `json:"tool,omitempty"`
	// Data is the data of a server's error, beside its message.
	Data json.RawMessage `json:"data,omitempty"`
}
