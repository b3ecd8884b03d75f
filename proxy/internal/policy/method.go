package policy

import (
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// standardMethods lists the methods with a known meaning (RFC 9110, RFC 5789). An API that restricts methods allows
// other methods only if it names them.
var standardMethods = []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}

// NeedsMethodCheck reports whether any of the APIs restricts methods, for all requests or by operation.
func NeedsMethodCheck(apis []*catalog.API) bool {
	return slices.ContainsFunc(apis, func(a *catalog.API) bool {
		return len(a.Methods.Restricted) > 0 || a.Methods.Allowed != nil || a.Only != nil || a.Rules != nil || a.Limits != nil
	})
}

// checkMethod judges one method, from the request line or an override, by every API that holds the host.
func checkMethod(method string, h catalog.Host, holders []*catalog.API) (Verdict, bool) {
	// Servers differ in whether they fold case and cut spaces, so judge the folded method.
	m := strings.ToUpper(strings.TrimSpace(method))
	if m == "" || len(m) > 32 || !httpguts.ValidHeaderFieldName(m) {
		return buildRefusal(CodeMethodRefused, h, ""), false
	}
	switch m {
	// TRACE echoes the credential back to code (RFC 9110, section 9.3.8). CONNECT opens a tunnel, and PRI begins HTTP/2
	// (RFC 9113, section 3.4).
	case "TRACE", "TRACK", "CONNECT", "PRI":
		return buildRefusal(CodeMethodRefused, h, ""), false
	}
	for _, a := range holders {
		rules := a.Methods
		listed := slices.Contains(rules.Allowed, m)
		switch {
		case slices.Contains(rules.Restricted, m), rules.Allowed != nil && !listed:
			return buildRefusal(CodeMethodRestricted, h, a.Name), false
		case len(rules.Restricted) > 0 && !listed && !slices.Contains(standardMethods, m):
			return buildRefusal(CodeMethodUnknown, h, a.Name), false
		}
	}
	return Verdict{}, true
}

// checkUpgrade allows only WebSocket: any other protocol would be a tunnel past these checks.
func checkUpgrade(q Request) (Verdict, bool) {
	get := len(q.Methods) > 0 && q.Methods[0] == http.MethodGet
	if q.Upgrade == "" || get && strings.EqualFold(q.Upgrade, "websocket") {
		return Verdict{}, true
	}
	return buildRefusal(CodeUpgradeRefused, q.Host, ""), false
}
