// Package proxyapi is the proxy's control API: HTTP on a unix socket that only mcp-server can reach. It carries the
// public catalog, registrations of runs, receipts and events, and never a credential.
//
//	GET    /v1/catalog                     -> Catalog
//	GET    /v1/catalog/{api}/types         -> text of types.d.ts | 404
//	GET    /v1/catalog/{api}/operations    -> text of operations.jsonl | 404
//	GET    /v1/inspection                  -> Inspection
//	PUT    /v1/slots/{n}                   <- Registration -> 204 | 409 generation is not greater
//	DELETE /v1/slots/{n}?generation=G      <- Summary -> Receipt | 409 generation is not the registered one
//	POST   /v1/slots/{n}/drain?generation=G -> Receipt since the last drain | 409 generation is not the registered one;
//	       with &run=R&call=SERVER.TOOL&among=N it is also the event Caused
//	PUT    /v1/slots/{n}/calls?generation=G <- ServerCalls -> 204 | 409 generation is not the registered one
//	GET    /v1/broker                      -> 101 codeforge-broker: the proxy's HTTP/2 requests to the broker
//	GET    /v1/events?of=catalog|requests|alarms  -> NDJSON of Event, until closed
//	GET    /v1/slots/{n}/held?generation=G -> NDJSON of []approvalapi.HeldRequest, a line for each change
//	GET    /v1/held, /v1/plans and below   see package approvalapi
//	GET    /v1/health                      -> Health, 200 when the proxy serves
//	GET    /metrics                        -> Prometheus text
//
// Other answers have the body {"error": "..."}.
package proxyapi

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// Catalog is the public part of the catalog, for models and mcp-server. It contains no credential.
type Catalog struct {
	// Version changes with every change of the catalog.
	Version string `json:"version"`
	// YOLO means that hosts in no API are reachable too.
	YOLO     bool             `json:"yolo"`
	APIs     []API            `json:"apis"`
	Problems []CatalogProblem `json:"problems,omitempty"`
	// Packages are the packages that code may import, each KIND:NAME@VERSION. PackageRegistry is their npm registry, or ""
	// for PACKAGE_REGISTRY.
	Packages        []string `json:"packages,omitempty"`
	PackageRegistry string   `json:"package_registry,omitempty"`
}

// API is the public part of one active API.
type API struct {
	Name              string   `json:"name"`
	Description       string   `json:"description"`
	Domains           []string `json:"domains"`
	Credentials       []Token  `json:"credentials"`
	Reference         string   `json:"reference,omitempty"`
	RestrictedMethods []string `json:"restricted_methods,omitempty"`
	AllowedMethods    []string `json:"allowed_methods,omitempty"`
	// Rules are the API's rules in a few words each, as catalog.Rule writes them, and its limits. Rules that hold requests
	// for a person begin with "approve".
	Rules []string `json:"rules,omitempty"`
	// Approves means that a request may wait for a person, by a rule or beyond a limit.
	Approves  bool `json:"approves,omitempty"`
	AllowHTTP bool `json:"allow_http,omitempty"`
	HasTypes  bool `json:"has_types,omitempty"`
	// Operations is the SHA-256 of operations.jsonl in hexadecimal, or "" if the API lacks the file.
	Operations string `json:"operations,omitempty"`
	// Stale means that the folder's current content is broken, and that this is the last good version.
	Stale bool `json:"stale,omitempty"`
	// Server is set if the API is an MCP server.
	Server *mcpserver.Settings `json:"mcp,omitempty"`
}

// ServersHost is the host through which code calls the tools of MCP servers. It belongs to no API: the proxy answers
// it.
const ServersHost = "mcp.codeforge.internal"

// Token is a token name and the surfaces on which the proxy swaps it, as config.json writes them ("header",
// "query:key").
type Token struct {
	Name string   `json:"name"`
	In   []string `json:"in"`
	// Variables are the environment variables in which code finds the token: Placeholder, or Name if that is empty.
	Variables   []string `json:"variables,omitempty"`
	Placeholder string   `json:"placeholder,omitempty"`
}

// CatalogProblem is one mistake in apis/, without any value from the file.
type CatalogProblem struct {
	API  string `json:"api"`
	Text string `json:"text"`
	// Warning means that the API loads despite the problem.
	Warning bool `json:"warning,omitempty"`
}

// Inspection is the content of apis/ at the last load, for the operator. It includes inactive APIs and all problems,
// but no credential.
type Inspection struct {
	APIs     []InspectedAPI     `json:"apis"`
	Problems []InspectedProblem `json:"problems"`
	// Packages is Catalog.Packages.
	Packages []string `json:"packages,omitempty"`
}

// InspectedAPI is an active or inactive API.
type InspectedAPI struct {
	API
	Active bool `json:"active"`
}

// InspectedProblem is a mistake or a warning, in parts: see catalog.Problem.
type InspectedProblem struct {
	Severity string `json:"severity"` // "error" or "warning"
	API      string `json:"api,omitempty"`
	File     string `json:"file"`
	Field    string `json:"field,omitempty"`
	Found    string `json:"found,omitempty"`
	Want     string `json:"want,omitempty"`
	Text     string `json:"text"`
}

// Registration is the body of PUT /v1/slots/{n}, which begins a run in the slot.
type Registration struct {
	// Generation must be greater than every earlier generation of the slot.
	Generation uint64 `json:"generation"`
	Run        string `json:"run"`
	// Tenant is the tenant of the run, or the tenant that the server works for. Empty means the operator. An approval
	// covers the runs of one tenant.
	Tenant string `json:"tenant,omitempty"`
	// APIs restricts the run to these APIs. If empty, the run may use all active APIs.
	APIs []string `json:"apis,omitempty"`
	// Closed means that the run must not learn of any other API: their hosts and token names get the same replies as
	// unknown ones.
	Closed bool `json:"closed,omitempty"`
	// Deadline is the latest end of the run. The proxy ends the registration five seconds later.
	Deadline time.Time `json:"deadline"`
	// Install lets a server slot reach only the package registry, without any credential. Any other server slot has
	// exactly one API: the API of its server.
	Install bool `json:"install,omitempty"`
	// DryRun makes the proxy record writes in a plan instead of sending them.
	DryRun bool `json:"dry_run,omitempty"`
	// Database lists the addresses of mcp-server's database. From now on the proxy connects no run and no server to them.
	Database []netip.AddrPort `json:"database,omitempty"`
	// Canaries are values that a thief finds in the sandbox, and that no request may carry: at most MaxCanaries, of
	// MinCanary to MaxCanary letters and digits.
	Canaries []string `json:"canaries,omitempty"`
}

// The bounds of Registration.Canaries.
const (
	MaxCanaries = 8
	MinCanary   = 24
	MaxCanary   = 64
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
	if tool == "" {
		tool = "$tools"
	}
	return server + "." + tool
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

// Events selects the events of a subscriber. The proxy does not wake it for others.
type Events string

// The kinds of events.
const (
	CatalogEvents Events = "catalog"  // events with Catalog
	AlarmEvents   Events = "alarms"   // events with Alarm
	RequestEvents Events = "requests" // all other events
)

// HasEvent reports whether the selection includes an event.
func (of Events) HasEvent(e Event) bool {
	switch {
	case e.Catalog != "":
		return of == CatalogEvents
	case e.Alarm != nil:
		return of == AlarmEvents
	}
	return of == RequestEvents
}

// Event is one line of GET /v1/events. Exactly one field is set, besides Lost.
type Event struct {
	// Lost is how many events before this one the proxy dropped, because the subscriber was too slow.
	Lost int `json:"lost,omitempty"`
	// Catalog is the version after a change.
	Catalog  string    `json:"catalog,omitempty"`
	Exchange *Exchange `json:"exchange,omitempty"`
	// Receipt is the receipt of a run that has ended.
	Receipt *Receipt `json:"receipt,omitempty"`
	// Caused may come after the run's receipt.
	Caused *CausedRequests `json:"caused,omitempty"`
	// Alarm comes before the receipt that contains the same alarm.
	Alarm *Alarm `json:"alarm,omitempty"`
}

// Health is the answer of GET /v1/health.
type Health struct {
	Ready   bool   `json:"ready"`
	Problem string `json:"problem,omitempty"`
	Version string `json:"version"`
}

// Diagnosis holds the checks that only the proxy can make.
type Diagnosis struct {
	// CA is the certificate that the sandbox trusts, in PEM.
	CA string `json:"ca"`
	// Hosts are the hosts of the active APIs and of the servers that give them credentials.
	Hosts []HostCheck `json:"hosts"`
}

// HostCheck is the result of one request from the proxy to a host.
type HostCheck struct {
	Host string `json:"host"`
	// Status is the HTTP status of the answer. If it is 0, the host did not answer: Code, Problem and Hint say why, as in
	// a Refusal.
	Status  int    `json:"status,omitempty"`
	Code    string `json:"code,omitempty"`
	Problem string `json:"problem,omitempty"`
	Hint    string `json:"hint,omitempty"`
	// Plain means without TLS.
	Plain        bool  `json:"plain,omitempty"`
	Milliseconds int64 `json:"ms"`
	// SkewMilliseconds is how far the proxy's clock is ahead of the host's. It is nil if the host sent no Date.
	SkewMilliseconds *int64 `json:"skew_ms,omitempty"`
}
