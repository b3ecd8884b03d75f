package policy

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// stashSegment is the first path segment of the values that code keeps between runs. No server has this name.
const stashSegment = "$stash"

// maxSegment bounds one segment of a call's path, in bytes, unescaped.
const maxSegment = 256

// IsCall reports whether a request is for the host through which code calls the tools of MCP servers.
func (q Request) IsCall() bool { return q.Host.String() == proxyapi.ServersHost }

// DecideCall judges a request to that host. The method restrictions of an API do not apply here: they concern the
// requests that the server sends. It returns the path for the broker in a form that every parser reads the same way:
// the server's exact name, and perhaps a second segment.
func (r Rules) DecideCall(run Run, q Request, u *url.URL) (Verdict, string) {
	switch {
	case !q.IsCall():
		return buildRefusal(CodeNoPolicy, q.Host, ""), ""
	//defence:server-calls
	case run.ClientType() != ClientRun:
		return buildRefusal(CodeCallsClosed, q.Host, ""), ""
	case !q.TLS:
		v := buildRefusal(CodePlainHTTP, q.Host, "")
		return v.withHint(readertext.NewText("Use https://.")), ""
	case q.Upgrade != "":
		return buildRefusal(CodeUpgradeRefused, q.Host, ""), ""
	}
	segments, ok := parseCallPath(u)
	if !ok || len(q.Methods) == 0 || q.Methods[0] != http.MethodGet && q.Methods[0] != http.MethodPost {
		return buildRefusal(CodeBadCall, q.Host, ""), ""
	}
	if segments[0] == stashSegment {
		return Verdict{Allow: true}, joinPath(segments)
	}
	server := r.findServer(run, segments[0])
	if server == nil {
		v := buildRefusal(CodeServerNotFound, q.Host, "")
		return v.withHint(r.explainNotFound(run, segments[0])), ""
	}
	// The catalog's spelling replaces code's: the broker must not resolve the name a second time.
	segments[0] = server.Name
	if len(segments) == 2 && q.Methods[0] == http.MethodPost && proxyapi.IsTool(segments[1]) {
		return checkCall(q, server, segments[1]), joinPath(segments)
	}
	return Verdict{Allow: true, APIs: []*catalog.API{server}}, joinPath(segments)
}

// checkCall judges a call of a tool by the rules of its server.
func checkCall(q Request, server *catalog.API, tool string) Verdict {
	v := Verdict{Allow: true}
	//defence:rules
	if server.ToolRules != nil {
		switch rule, err := catalog.FindCallRule(server.ToolRules, tool, q.ruleContent()); {
		case errors.Is(err, catalog.ErrUnread):
			v = newUnread(q.Host)
		case err != nil:
			v = buildRefusal(CodeRuleUnreadable, q.Host, server.Name)
		case rule == nil || rule.Then == catalog.ActionRefuse:
			v = refuseRule(server.Name, server.ToolRules, rule, q)
		//defence:approval
		case rule.Then == catalog.ActionApprove:
			v = buildRefusal(CodeApprovalNeeded, q.Host, server.Name)
			v.Hold = v.Hold.addRule(server.Name, rule.String(), rule.ByAny)
		}
	}
	v.APIs = []*catalog.API{server}
	return v
}

// parseCallPath returns the one or two segments of a call's path, unescaped. It returns false for a path other than
// /SERVER or /SERVER/TOOL, and for segments that a reader might confuse: empty and dot segments, control characters.
func parseCallPath(u *url.URL) ([]string, bool) {
	rest, ok := strings.CutPrefix(u.EscapedPath(), "/")
	segments := strings.Split(rest, "/")
	// The path for the broker has no query: refuse one instead of dropping it.
	if !ok || len(segments) > 2 || u.RawQuery != "" || u.ForceQuery || strings.Contains(segments[0], "%") {
		return nil, false
	}
	for i, s := range segments {
		plain, err := url.PathUnescape(s)
		switch {
		case err != nil, plain == "", plain == ".", plain == "..", len(plain) > maxSegment,
			!utf8.ValidString(plain), strings.ContainsFunc(plain, unicode.IsControl):
			return nil, false
		}
		segments[i] = plain
	}
	return segments, true
}

// joinPath returns a path of segments, each escaped.
func joinPath(segments []string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

// findServer returns the run's active server with this name. Otherwise it returns the only server whose name becomes
// this identifier if each - is replaced with _, or nil.
func (r Rules) findServer(run Run, name string) *catalog.API {
	if a := r.Catalog.API(name); a != nil && canCall(run, a) {
		return a
	}
	var found *catalog.API
	for _, a := range r.listServers(run) {
		switch {
		case strings.ReplaceAll(a.Name, "-", "_") != name:
		// Two names become the same identifier: a guess could call the wrong server.
		case found != nil:
			return nil
		default:
			found = a
		}
	}
	return found
}

// listServers returns the active servers that the run may use.
func (r Rules) listServers(run Run) []*catalog.API {
	var out []*catalog.API
	for _, a := range r.Catalog.APIs() {
		if canCall(run, a) {
			out = append(out, a)
		}
	}
	return out
}

// canCall reports whether an API is an active server that the run may use.
func canCall(run Run, a *catalog.API) bool {
	//defence:server-in-run permits
	included := run.CanUse(a.Name)
	return a.Active && a.Server != nil && included
}

// explainNotFound says why a name is not one of the run's servers. It repeats only names from the catalog.
func (r Rules) explainNotFound(run Run, name string) readertext.Text {
	const shown = showsAPIs + " which APIs are MCP servers."
	a := r.Catalog.API(name)
	// A closed run must not learn that the API exists.
	if a != nil && run.IsClosed() && !run.CanUse(a.Name) {
		a = nil
	}
	switch {
	case a != nil && !a.Active:
		return readertext.NewText("The API %NAME is not active.", "%NAME", a.Name)
	case a != nil && a.Server == nil:
		return readertext.NewText("The API %NAME is no MCP server: call its hosts with fetch().", "%NAME", a.Name)
	case a != nil && !run.CanUse(a.Name):
		return readertext.NewText(
			"This run was narrowed to other APIs. Name %NAME in {the apis of execute_code|--apis} to use "+
				"this server.", "%NAME", a.Name)
	}
	servers := convert.Each(r.listServers(run), func(a *catalog.API) string { return a.Name })
	best := typo.NearestOf(name, 3, servers)
	if best == "" {
		return readertext.NewText(shown)
	}
	return readertext.NewText("The nearest name is %NAME. "+shown, "%NAME", best)
}
