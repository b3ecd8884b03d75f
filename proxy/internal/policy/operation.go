package policy

import (
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/disarm"
	"github.com/codeforge-mcp/codeforge/internal/voice"
)

// checkOperation judges one method, from the request line or an override, on the request's path, under every API that
// holds the host and permits the operations of its document only.
func checkOperation(method string, q Request, holders []*catalog.API) (Verdict, bool) {
	m := strings.ToUpper(strings.TrimSpace(method))
	for _, a := range holders {
		if a.Only == nil || a.Only.Allow(q.Host.String(), m, q.Path) || disarm.Off("operations") {
			continue
		}
		v := refuse(CodeOperationUnknown, q.Host, a.Name)
		if near := a.Only.Nearest(m, q.Path); near != "" {
			near = " The nearest is " + near + "."
			v = v.withHint(voice.Text{Model: v.Refusal.Hint + near, Person: v.Refusal.Person + near})
		}
		return v, false
	}
	return Verdict{}, true
}
