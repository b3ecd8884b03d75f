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
	"net/netip"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
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
	// for PACKAGE_REGISTRY. PackageIndex is the index of those of PyPI.
	Packages        []string `json:"packages,omitempty"`
	PackageRegistry string   `json:"package_registry,omitempty"`
	PackageIndex    string   `json:"package_index,omitempty"`
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
