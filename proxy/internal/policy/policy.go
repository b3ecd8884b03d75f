// Package policy decides whether a request may leave.
//
// Contract: pure functions over the catalog, the run's APIs and the request; the zero Verdict is deny. Every active API
// that holds the host applies, and any restriction refuses. A model reads the reasons, so they consist of constants,
// names from the catalog and at most a normalised host name. They never ask the model to change a setting.
package policy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// The codes of refusals. Each has its text in refusals.
const (
	CodeNoPolicy         = "not_decided"
	CodeBadRequest       = "bad_request"
	CodeHostMismatch     = "host_mismatch"
	CodeHostInvalid      = "host_invalid"
	CodeHostUnknown      = "host_unknown"
	CodePortUnknown      = "port_unknown"
	CodeAPIInactive      = "api_inactive"
	CodeAPINotInRun      = "api_not_in_run"
	CodePlainHTTP        = "plain_http"
	CodeMethodRestricted = "method_restricted"
	CodeMethodUnknown    = "method_unknown"
	CodeMethodRefused    = "method_refused"
	CodeOperationUnknown = "operation_unknown"
	CodeRuleRefused      = "rule_refused"
	CodeRuleUnreadable   = "rule_unreadable"
	CodeLimitReached     = "limit_reached"
	CodeApprovalNeeded   = "approval_needed"
	CodeApprovalDenied   = "approval_denied"
	CodeApprovalTimeout  = "approval_timeout"
	CodeApprovalFull     = "approval_full"
	CodeApprovalUnseen   = "approval_unreadable"
	CodeApprovalStale    = "approval_stale"
	CodeStateUnavailable = "state_unavailable"
	CodePlanEnded        = "plan_ended"
	CodePlanFull         = "plan_full"
	CodePlanUnreadable   = "plan_unreadable"
	CodePlanStale        = "plan_stale"
	CodeAuditUnavailable = "audit_unavailable"
	CodeUpgradeRefused   = "upgrade_refused"
	CodeOverrideUnseen   = "override_unseen"
	CodeCredentialSent   = "credential_in_request" //nolint:gosec // a code
	CodeRedactedHost     = "redacted_host"
	// CodeLoginNeeded, CodeTokenUnavailable and CodeSecretUnavailable are codes of RefuseCredential.
	CodeLoginNeeded       = "login_needed"
	CodeTokenUnavailable  = "token_unavailable" //nolint:gosec // a refusal's code
	CodeSecretUnavailable = "secret_unavailable"
	// CodeNotSignable, CodeChunkSigned and CodePresigned are codes of RefuseCredential too, for requests that the proxy
	// cannot sign again.
	CodeNotSignable    = "not_signable"
	CodeChunkSigned    = "aws_chunk_signed"
	CodePresigned      = "aws_presigned"
	CodeBodyUnreadable = "request_body_unreadable"
	CodeAmbiguous      = "ambiguous_request"
	CodeTooMany        = "too_many_requests"
	CodeRunEnded       = "run_ended"

	// The codes of calls to MCP servers, and of servers.
	CodeBadCall           = "bad_call"
	CodeCallsClosed       = "calls_closed"
	CodeServerNotFound    = "server_not_found"
	CodeServerUnavailable = "server_unavailable"
	CodeCallBroken        = "call_broken"
	CodeArgumentsTooLarge = "arguments_too_large"
	CodeArgumentsEncoded  = "arguments_encoded"
	CodeHostNotServers    = "host_not_servers"
	CodeHostOfServer      = "host_of_server"
	CodeHostNotRegistry   = "host_not_registry"
)

// Request describes the request to judge.
type Request struct {
	// Host is the host at the port that the connection was made to.
	Host catalog.Host
	// TLS means that the request came over TLS, and would leave over TLS.
	TLS bool
	// Methods are the method of the request line and every override found, in that order.
	Methods []string
	// Path is the path, escaped as it will leave.
	Path string
	// OtherPath means that a header names a path beside Path: see HasOtherPath.
	OtherPath bool
	// Upgrade is the protocol that the request asks to upgrade to, or empty.
	Upgrade string
	// Content is the query and the body for the rules. Nil means that they have not been read; a decision that depends on
	// them is then a refusal.
	Content *Content
	// Early leaves decisions that depend on the content open. The caller must judge the request again.
	Early bool
}

// Run describes the run that asks.
type Run interface {
	// CanUse reports whether the run may use an API.
	CanUse(api string) bool
	// IsClosed reports whether the run must not learn of APIs that it does not include.
	IsClosed() bool
	// ClientType returns the kind of client that asks.
	ClientType() ClientType
}

// ClientType is the kind of client that asks. ClientNone may reach no host.
type ClientType uint8

// The kinds of clients in a slot.
const (
	ClientNone    ClientType = iota
	ClientRun                // code: the hosts of the run's APIs, and the tools of APIs that are MCP servers
	ClientServer             // an MCP server: the hosts of the server's API
	ClientInstall            // the installation of a server's package: the package registry
)

// Rules holds the rules for every request until the next reload.
type Rules struct {
	Catalog *catalog.Catalog
	// YOLO allows hosts that are in no API.
	YOLO bool
	// Registry is the package registry, for installations. Nil means that there is no registry.
	Registry *catalog.API
}

// Verdict is the decision on one request. The zero Verdict denies.
type Verdict struct {
	// Allow is true if the request may leave.
	Allow bool
	// Refusal is the answer's body if it may not.
	Refusal proxyapi.Refusal
	// Status is the HTTP status of the refusal.
	Status int
	// RetryAfter is the header of the refusal, in seconds, or empty.
	RetryAfter string
	// Unread is set if the verdict depends on the unread content. Allow is false.
	Unread bool
	// Hold is set for a request that a person may allow. Allow is false.
	Hold *Hold
	// APIs are the active APIs of the run that hold the host: the proxy may swap their token names. It is empty for a host
	// that only YOLO_MODE allows.
	APIs []*catalog.API

	named string // the APIs that the hint names, as joinNames joins them
}

// Decide judges a request. Use Verdict.ForRun on the result before you show it to the run.
func (r Rules) Decide(run Run, q Request) Verdict {
	holders := r.Catalog.ListHolders(q.Host)
	// A closed run gets the answer for an unknown host, so that it cannot probe the catalog.
	if run.ClientType() == ClientRun && run.IsClosed() && r.isHidden(run, q.Host, holders) {
		return buildRefusal(CodeHostUnknown, q.Host, "")
	}
	v := r.decideFor(run, q, holders)
	if q.Upgrade != "" && slices.Contains([]string{CodeMethodRestricted, CodeOperationUnknown, CodeRuleRefused},
		v.Refusal.Code) {
		v = v.extendHint("", " A WebSocket needs GET and POST.")
	}
	other := func(api string) bool { return !run.CanUse(api) }
	if v.Hold != nil && run.IsClosed() && slices.ContainsFunc(v.Hold.apis, other) {
		v.Hold.ByAny = false // the approver sees the APIs and their rules
	}
	return v
}

// isHidden reports whether a host is in the catalog, but in no API of the run.
func (r Rules) isHidden(run Run, h catalog.Host, holders []*catalog.API) bool {
	if len(holders) == 0 {
		return !r.YOLO || len(r.Catalog.OtherPorts(h)) > 0 || r.Catalog.MayHold(h)
	}
	return !slices.ContainsFunc(holders, func(a *catalog.API) bool { return run.CanUse(a.Name) })
}

// ForRun returns the refusal that the run may read. The rules and limits of all APIs of a host also apply to a closed
// run. But its refusal must not name APIs that the run does not include.
func (v Verdict) ForRun(run Run) Verdict {
	other := func(api string) bool { return !run.CanUse(api) }
	if run.IsClosed() && v.named != "" && slices.ContainsFunc(strings.Split(v.named, ", "), other) {
		return v.withHint(readertext.NewText("{The user has|You have} other rules for this host, which refuse it."))
	}
	return v
}

// decideFor is Decide for the active APIs that hold the host.
func (r Rules) decideFor(run Run, q Request, holders []*catalog.API) Verdict {
	if run.ClientType() == ClientInstall {
		return r.decideInstall(q, holders)
	}
	if v, ok := r.checkKind(run, q.Host, holders); !ok {
		return v
	}
	if v, ok := r.checkUnknownHost(q.Host, len(holders)); !ok {
		return v
	}
	open := listReachable(run, q.Host, holders)
	if len(holders) > 0 && len(open) == 0 {
		return buildRefusal(CodeHostOfServer, q.Host, joinNames(holders))
	}
	var mine []*catalog.API
	for _, a := range open {
		if run.CanUse(a.Name) {
			mine = append(mine, a)
		}
	}
	if len(open) > 0 && len(mine) == 0 {
		return buildRefusal(CodeAPINotInRun, q.Host, joinNames(holders))
	}
	if v, ok := checkUpgrade(q); !ok {
		return v
	}
	//defence:one-reading
	if len(holders) > 0 && hasLineBreak(q.Path) {
		return RefuseAmbiguous("The path has an escaped line break.", q.Host)
	}
	// The rules judge only the handshake, but messages can write like a POST.
	//defence:websocket-writes
	if q.Upgrade != "" {
		q.Methods = append(slices.Clip(q.Methods), http.MethodPost)
	}
	// All holders apply, also those outside the run: another API's rules protect the host.
	for _, m := range q.Methods {
		if v, ok := checkMethod(m, q.Host, holders); !ok {
			return v
		}
		if v, ok := checkOperation(m, q, holders); !ok {
			return v
		}
	}
	if len(q.Methods) == 0 {
		return buildRefusal(CodeBadRequest, q.Host, "")
	}
	//defence:moved-path
	if q.OtherPath && slices.ContainsFunc(holders, (*catalog.API).DependsOnPath) {
		return RefuseAmbiguous("A header names another path.", q.Host)
	}
	hold, v, ok := checkRules(q, holders)
	if !ok {
		return v
	}
	// Plain HTTP would show the credential to the network.
	if !q.TLS {
		for _, a := range holders {
			if len(a.Credentials) > 0 && !a.AllowHTTP {
				return buildRefusal(CodePlainHTTP, q.Host, a.Name)
			}
		}
	}
	if hold != nil && !q.Early {
		v := buildRefusal(CodeApprovalNeeded, q.Host, hold.API)
		v.APIs, v.Hold = mine, hold
		return v
	}
	return Verdict{Allow: true, APIs: mine}
}

// checkKind refuses the proxy's internal hosts. For an MCP server it also refuses the hosts of other APIs, without
// naming these APIs.
func (r Rules) checkKind(run Run, h catalog.Host, holders []*catalog.API) (Verdict, bool) {
	mine := func(a *catalog.API) bool { return run.CanUse(a.Name) }
	//defence:server-hosts permits
	included := slices.ContainsFunc(holders, mine)
	switch kind := run.ClientType(); {
	case catalog.IsOwnHost(h):
		return buildRefusal(CodeHostUnknown, h, ""), false
	case kind == ClientRun, kind == ClientServer && included:
		return Verdict{}, true
	case kind == ClientServer:
		return buildRefusal(CodeHostNotServers, h, ""), false
	}
	return buildRefusal(CodeNoPolicy, h, ""), false
}

// listReachable returns the APIs that open a host to the run. The host of a remote MCP server is not open to code.
func listReachable(run Run, h catalog.Host, holders []*catalog.API) []*catalog.API {
	closed := func(a *catalog.API) bool { return a.ServerHost == h.String() }
	//defence:server-host permits
	if run.ClientType() != ClientRun || !slices.ContainsFunc(holders, closed) {
		return holders
	}
	return slices.DeleteFunc(slices.Clone(holders), closed) // a slice of the catalog: delete from a copy
}

// checkUnknownHost refuses a host that no active API holds, unless YOLO is set and no API holds the host.
func (r Rules) checkUnknownHost(h catalog.Host, holders int) (Verdict, bool) {
	switch {
	case h.String() == "":
		return buildRefusal(CodeHostInvalid, h, ""), false
	case holders > 0:
		return Verdict{}, true
	}
	if at := r.Catalog.OtherPorts(h); len(at) > 0 {
		return buildRefusal(CodePortUnknown, h, "").extendHint("The catalog has "+joinPatterns(at)+". ", ""), false
	}
	switch {
	// YOLO must not open the host of an API that the user has switched off.
	case r.Catalog.MayHold(h):
		return buildRefusal(CodeAPIInactive, h, ""), false
	case r.YOLO && h.Port() == 0:
		return Verdict{}, true
	}
	v := buildRefusal(CodeHostUnknown, h, "")
	more := readertext.NewText(" " + h.ExplainUnknown(r.Catalog.NearestHost(h)))
	return v.withHint(readertext.Text{Model: v.Refusal.Hint + more.Model, Person: v.Refusal.Person + more.Person}), false
}

// CanResolve reports whether a host resolves for a run. A DNS query has no port, so an API with the host at any port
// counts. A nil run is not closed.
func (r Rules) CanResolve(run Run, h catalog.Host) bool {
	// A slice of the catalog: append must not write into it.
	holders := slices.Clone(r.Catalog.ListHolders(h))
	for _, p := range r.Catalog.OtherPorts(h) {
		holders = append(holders, r.Catalog.ListHolders(h.AtPort(p.Port()))...)
	}
	closed := run != nil && run.IsClosed()
	visible := func(a *catalog.API) bool { return !closed || run.CanUse(a.Name) }
	switch {
	case slices.ContainsFunc(holders, visible), h.String() == proxyapi.ServersHost, !closed && r.isRegistry(h):
		return true
	case len(holders) > 0, catalog.IsOwnHost(h):
		return false
	}
	return r.YOLO && !r.Catalog.MayHold(h)
}

// joinPatterns lists the first four patterns, for a sentence.
func joinPatterns(list []catalog.HostPattern) string {
	var out []string
	for _, p := range list[:min(len(list), 4)] {
		text := p.String()
		if p.Port() == 0 {
			text += " at the usual ports"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func joinNames(apis []*catalog.API) string {
	return strings.Join(convert.Each(apis, func(a *catalog.API) string { return a.Name }), ", ")
}
