package policy

import (
	"errors"
	"net/http"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// refusalText is the text of one refusal: status, error, and a hint on how to proceed. readertext.NewText defines the
// notation. %API stands for names of APIs, %HOST for the host.
type refusalText struct {
	status      int
	error, hint string
}

// showsAPIs begins a sentence that sends the reader to the list of APIs.
const showsAPIs = "{list_apis|codeforge status} shows"

// refusals holds all texts with which the proxy refuses a request.
var refusals = map[string]refusalText{
	CodeNoPolicy: {http.StatusForbidden, "The request was refused.",
		"No rule decided on this request, so it was refused."},
	CodeBadRequest: {http.StatusBadRequest, "The request is malformed or ambiguous.",
		"Send plain HTTP with one Host, one Content-Length or chunked encoding, and a path as target; fetch() does that."},
	CodeHostMismatch: {http.StatusMisdirectedRequest, "The request's host is not the connection's host.",
		"The Host header must be the host of the URL; open a connection per host; fetch() does that."},
	CodeHostInvalid: {http.StatusForbidden, "The request does not name a valid host.",
		"Use a host name of the catalog in the URL; addresses are not reachable. " + showsAPIs + " the hosts."},
	CodeHostUnknown: {http.StatusForbidden, "The host is in no API.",
		"Only hosts of the catalog are reachable: " + showsAPIs + " them."},
	CodePortUnknown: {http.StatusForbidden, "The host is in no API at this port.",
		"{The user can add|Add} the port to \"domains\" of an API."},
	CodeAPIInactive: {http.StatusForbidden, "The host's API is not active.",
		"%HOST belongs to an API that is switched off or cannot be loaded. {The user can activate|Activate} it " +
			"(\"active\"); codeforge check says whether it loads."},
	CodeAPINotInRun: {http.StatusForbidden, "The host's API is not one of this run's.",
		"This run was narrowed to other APIs. Name %API in {the apis of execute_code|--apis} to use %HOST."},
	CodePlainHTTP: {http.StatusForbidden, "The host is reachable over https only.",
		"Use https://. {The user can allow plain http for the API %API (allow_http)|To allow plain http, set " +
			"\"allow_http\" in apis/%API/config.json}."},
	CodeMethodRestricted: {http.StatusForbidden, "The method is restricted for this API.",
		"The API %API does not permit this method, nor an override to it. {list_apis shows what it permits; " +
			"the user can change that (restricted_methods, allowed_methods)|\"restricted_methods\" or \"allowed_methods\" " +
			"in apis/%API/config.json says which it permits}."},
	CodeMethodUnknown: {http.StatusForbidden, "The method is not a standard one.",
		"The API %API restricts methods, so only GET, HEAD, OPTIONS, POST, PUT, PATCH and DELETE are judged; " +
			"use one of them."},
	CodeMethodRefused: {http.StatusForbidden, "The method is never permitted.",
		"Use GET, HEAD, OPTIONS, POST, PUT, PATCH or DELETE."},
	CodeOperationUnknown: {http.StatusForbidden, "This API has no such operation.",
		"The API %API permits only the operations of its document. {list_apis with query finds them|codeforge api search " +
			"finds them; \"only\" in apis/%API/config.json decides this}."},
	CodeRuleRefused: {http.StatusForbidden, "The rules of this API do not permit the request.",
		"{The user can change the rules of the API %API|\"rules\" in apis/%API/config.json lists them}."},
	CodeRuleUnreadable: {http.StatusForbidden, "The rules of this API cannot be applied to the request.",
		"The API %API decides by fields of the body. Send them once, as JSON or a form of at most 256 KiB, and a GraphQL " +
			"document as text."},
	CodeLimitReached: {http.StatusTooManyRequests, "A limit of this API is reached.",
		"The API %API has a limit for all runs together, which {the user|you} set{| in \"limits\" of its config.json}."},
	CodeApprovalNeeded: {http.StatusForbidden, "A person must approve the request.",
		"The API %API has a rule that asks for it."},
	CodeApprovalDenied: {http.StatusForbidden, "The user refused this request.",
		"Do not send it in another way; ask what to do."},
	CodeApprovalTimeout: {http.StatusForbidden, "The request was not refused; it still waits for approval.",
		"{The user can approve it with: codeforge approve %ID. Then run|Approve it with: " +
			"codeforge approve %ID. Then run} the same code again within 15 minutes."},
	CodeApprovalFull: {http.StatusTooManyRequests, "Too many requests wait for approval.",
		"{The user decides on them|Decide on them} with codeforge approve. At most 8 of a run wait at once."},
	CodeApprovalUnseen: {http.StatusRequestEntityTooLarge, "The request cannot be shown for approval.",
		"The API %API has a rule that asks a person. Send a body of at most 256 KiB of text, and no WebSocket."},
	CodeApprovalStale: {http.StatusConflict, "The configuration changed while the request waited.",
		"The request was not sent. Run the code again."},
	CodeStateUnavailable: {http.StatusServiceUnavailable, "The proxy cannot reach its database.",
		"The request was not sent, because the API %API has a limit, or a rule that asks a person. Requests that " +
			"need neither still leave. Try again in a few seconds."},
	CodePlanEnded: {http.StatusConflict, "The plan of this dry run ends before this request.", "%SENTENCE"},
	CodePlanFull: {http.StatusTooManyRequests, "The plan of this dry run has no room for the request.",
		"A plan has at most 500 writes of 4 MiB together. Write less in one run."},
	CodePlanUnreadable: {http.StatusRequestEntityTooLarge, "The request cannot be shown in a plan.",
		"A dry run records bodies of at most 256 KiB of text, and no WebSocket. {Run it without dry_run|Run it for real}."},
	CodePlanStale: {http.StatusConflict, "The configuration has changed since the dry run.", "Run it again."},
	CodeAuditUnavailable: {http.StatusServiceUnavailable,
		"The ledger cannot be written, so writes may not leave.",
		"The request was not sent. {The user can see why|See why}: codeforge doctor, or the log (AUDIT=required)." +
			"{ Do not retry.|}"},
	CodeUpgradeRefused: {http.StatusForbidden, "The protocol upgrade is refused.",
		"Only WebSocket is allowed, requested with GET over HTTP/1.1; new WebSocket() does that."},
	CodeOverrideUnseen: {http.StatusForbidden,
		"The body overrides the method, or cannot be searched for an override.",
		"The API %API decides by the method. Some servers take it from a field of the body, as \"method\" or \"_method\" " +
			"in JSON, a form or a part. Leave that field out, or give it another name."},
	CodeCredentialSent: {http.StatusForbidden, "The request carries a credential itself, which ends the run.",
		"Write the token name instead of the credential: " + showsAPIs + " the names."},
	CodeRedactedHost: {http.StatusForbidden, "The host name contains a redacted string.",
		"A string that {the user keeps|you keep} out of requests (REDACTING_STRINGS) cannot be replaced in a host name. " +
			"Use another host."},
	CodeLoginNeeded: {http.StatusForbidden, "The login for %NAME has expired or does not exist.",
		"{The user can renew it|Renew it}: codeforge login %NAME.{ Do not retry.|}"},
	CodeTokenUnavailable: {http.StatusServiceUnavailable, "The token server of %NAME cannot be reached, or gave no token.",
		"The request was not sent. {The user can see why|See why}: codeforge credentials."},
	CodeSecretUnavailable: {http.StatusServiceUnavailable, "%NAME has not been supplied.",
		"{The user can run|Run}: codeforge secrets."},
	CodeNotSignable: {http.StatusBadRequest, "The request cannot be signed with %NAME.",
		"It must go to a host, region and service that %NAME is for, as AWS4-HMAC-SHA256 for AWS, with a body of at most " +
			"8 MiB (S3: any, in one piece), and without signed parts in its address."},
	CodeChunkSigned: {http.StatusBadRequest, "Per-chunk signatures cannot be remade.", "Send the body in one piece."},
	CodePresigned: {http.StatusBadRequest, "A presigned URL cannot be signed again.",
		"Send the request itself, with %NAME as the access key's id."},
	CodeBodyUnreadable: {http.StatusBadRequest, "The request's body does not match its headers.",
		"Content-Encoding must name the encoding that the body has."},
	CodeAmbiguous: {http.StatusBadRequest, "Servers could read the request in different ways.",
		"If a request has a credential, or an API restricts methods, paths or sums, every server must read it alike. " +
			"JSON.stringify, URLSearchParams, a FormData whose type fetch() writes, and one value per header produce that."},
	CodeTooMany: {http.StatusTooManyRequests, "Too many requests at once.",
		"Await some requests before starting more, read or cancel their answers, and send smaller bodies."},
	CodeRunEnded: {http.StatusForbidden, "The run has ended.",
		"Finish requests before the program ends or its time is up."},
	CodeBadCall: {http.StatusBadRequest, "The request is not a call of an MCP tool.",
		"Call tools as mcp.SERVER.TOOL({...}), which sends a POST of /SERVER/TOOL with a JSON object."},
	CodeCallsClosed: {http.StatusForbidden, "Only code calls tools of MCP servers.",
		"An MCP server cannot call another one."},
	CodeServerNotFound: {http.StatusNotFound, "No MCP server of this run has this name.",
		showsAPIs + " which APIs are MCP servers."},
	CodeServerUnavailable: {http.StatusServiceUnavailable, "MCP servers cannot be reached at the moment.",
		"The call was not made. Try again in a few seconds."},
	CodeCallBroken: {http.StatusBadGateway, "The connection to the MCP servers broke off.",
		"The server may have carried out the call: check before repeating it."},
	CodeArgumentsTooLarge: {http.StatusRequestEntityTooLarge, "The arguments are too large.",
		"A call takes at most 16 MiB of arguments. Pass a part, or a path or address instead."},
	CodeArgumentsEncoded: {http.StatusUnsupportedMediaType, "The arguments have a content encoding.",
		"Send them as plain JSON."},
	CodeHostNotServers: {http.StatusForbidden, "The host is not one of the server's API.",
		"An MCP server reaches only the hosts of its API. {The user can add|Add} %HOST to its domains."},
	CodeHostOfServer: {http.StatusForbidden, "The host is that of an MCP server.",
		"Call its tools as mcp.SERVER.TOOL({...})."},
	CodeHostNotRegistry: {http.StatusForbidden, "The host is not the package registry.",
		"The installation of a package reaches the registries that the settings name, and no other host."},
}

// Refuse returns the verdict for a code, for refusals that other packages decide.
func Refuse(code string, h catalog.Host, apis []*catalog.API) Verdict {
	return buildRefusal(code, h, joinNames(apis))
}

// buildRefusal returns the verdict for a code. values are further pairs of a mark in its text and the mark's value.
func buildRefusal(code string, h catalog.Host, apis string, values ...string) Verdict {
	s, ok := refusals[code]
	if !ok {
		code, s = CodeNoPolicy, refusals[CodeNoPolicy]
	}
	if len(values) > 0 {
		s.error = strings.NewReplacer(values...).Replace(s.error)
	}
	hint := readertext.NewText(s.hint, append(values, "%API", apis, "%HOST", h.String())...)
	if !strings.Contains(s.hint, "%API") {
		apis = ""
	}
	return Verdict{Status: s.status, named: apis, Refusal: proxyapi.Refusal{
		Error: s.error, Code: code, Host: h.String(), Hint: hint.Model, Person: hint.Person,
	}}
}

// newUnread returns the verdict on a request whose content must be read first. It has no hint: the request is judged
// again, and a hint costs more than the rules.
func newUnread(h catalog.Host) Verdict {
	s := refusals[CodeRuleUnreadable]
	return Verdict{Unread: true, Status: s.status, Refusal: proxyapi.Refusal{
		Error: s.error, Code: CodeRuleUnreadable, Host: h.String(),
	}}
}

// RefuseCredential returns the verdict for a request without its credential, which could not be obtained. name is the
// token name.
func RefuseCredential(code, name string, h catalog.Host) Verdict {
	return buildRefusal(code, h, "", "%NAME", name)
}

// RefuseOverride returns the verdict for an error of BodyOverrides, or of reading the body that it wrapped.
func RefuseOverride(err error, h catalog.Host, apis []*catalog.API) Verdict {
	v := Refuse(CodeOverrideUnseen, h, apis)
	send := ""
	switch {
	case errors.Is(err, errLongForm):
		send = "Send a form of at most 1 MiB."
	case errors.Is(err, errCoding):
		send = "Send the body without Content-Encoding, or in gzip, deflate, br or zstd."
	default:
		return v
	}
	return v.withHint(readertext.NewText(
		"The API %API decides by the method, and some servers take it from the body. "+send,
		"%API", joinNames(apis)))
}

// RefuseUnanswered returns the verdict for a request that still waits for a decision. id is its id for codeforge
// approve.
func RefuseUnanswered(id string, h catalog.Host, apis []*catalog.API) Verdict {
	return buildRefusal(CodeApprovalTimeout, h, joinNames(apis), "%ID", id)
}

// RefusePlanned returns the verdict for a request that depends on an answer which no step of the plan has.
func RefusePlanned(sentence string, h catalog.Host, apis []*catalog.API) Verdict {
	return buildRefusal(CodePlanEnded, h, joinNames(apis), "%SENTENCE", sentence)
}

// withHint replaces the hint of a refusal.
func (v Verdict) withHint(hint readertext.Text) Verdict {
	v.Refusal.Hint, v.Refusal.Person = hint.Model, hint.Person
	return v
}

// extendHint adds text before and after the hint of a refusal.
func (v Verdict) extendHint(before, after string) Verdict {
	v.Refusal.Hint, v.Refusal.Person = before+v.Refusal.Hint+after, before+v.Refusal.Person+after
	return v
}

// RefuseAmbiguous returns the verdict for a request that servers read in different ways. The reason must be a constant
// sentence.
func RefuseAmbiguous(reason string, h catalog.Host) Verdict {
	return buildRefusal(CodeAmbiguous, h, "").extendHint(reason+" ", "")
}

// NewHint returns the refusal as an entry of the receipt.
func (v Verdict) NewHint() proxyapi.Hint {
	h := proxyapi.Hint{Code: v.Refusal.Code, Text: v.Refusal.Hint, Host: v.Refusal.Host}
	if v.Refusal.Person != h.Text {
		h.Person = v.Refusal.Person
	}
	return h
}
