package policy

import (
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// standard are the methods whose meaning is known (RFC 9110, RFC 5789). An API that restricts methods allows no other,
// unless it names it.
var standard = []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}

// Restricts reports whether any of the APIs restricts methods, of all requests or by operation.
func Restricts(apis []*catalog.API) bool {
	return slices.ContainsFunc(apis, func(a *catalog.API) bool {
		return len(a.Methods.Restricted) > 0 || a.Methods.Allowed != nil || a.Only != nil || a.Rules != nil || a.Limits != nil
	})
}

// checkMethod judges one method, from the request line or an override, under every API that holds the host.
func checkMethod(method string, h catalog.Host, holders []*catalog.API) (Verdict, bool) {
	m := strings.ToUpper(strings.TrimSpace(method))
	if m == "" || len(m) > 32 || !httpguts.ValidHeaderFieldName(m) {
		return refuse(CodeMethodRefused, h, ""), false
	}
	switch m {
	case "TRACE", "TRACK", "CONNECT", "PRI":
		return refuse(CodeMethodRefused, h, ""), false
	}
	for _, a := range holders {
		rules := a.Methods
		listed := slices.Contains(rules.Allowed, m)
		switch {
		case slices.Contains(rules.Restricted, m), rules.Allowed != nil && !listed:
			return refuse(CodeMethodRestricted, h, a.Name), false
		case len(rules.Restricted) > 0 && !listed && !slices.Contains(standard, m):
			return refuse(CodeMethodUnknown, h, a.Name), false
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
	return refuse(CodeUpgradeRefused, q.Host, ""), false
}
