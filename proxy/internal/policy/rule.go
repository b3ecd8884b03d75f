package policy

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// checkRules judges a request by the rules of every API that holds the host. It refuses a request if a rule cannot
// decide. A non-nil Hold makes the request wait until a person decides.
func checkRules(q Request, holders []*catalog.API) (*Hold, Verdict, bool) {
	var hold *Hold
	path := chooseRulePath(q, holders)
	for _, a := range holders {
		//defence:rules permits
		if a.Rules == nil {
			continue
		}
		for _, m := range q.Methods {
			rule, err := catalog.FindRule(a.Rules, strings.ToUpper(strings.TrimSpace(m)), path, q.ruleContent())
			switch {
			case errors.Is(err, catalog.ErrUnread):
				if !q.Early {
					return nil, newUnread(q.Host), false
				}
			case errors.Is(err, catalog.ErrPath):
				return nil, RefuseAmbiguous("Servers could read the path in different ways.", q.Host), false
			case err != nil:
				return nil, buildRefusal(CodeRuleUnreadable, q.Host, a.Name), false
			case rule == nil || rule.Then == catalog.ActionRefuse:
				return nil, refuseRule(a.Name, a.Rules, rule, q), false
			// Further rules may still refuse, so go on: a person must not approve a request that a rule refuses.
			//defence:approval
			case rule.Then != catalog.ActionAllow:
				hold = hold.addRule(a.Name, rule.String(), rule.ByAny)
			}
		}
	}
	return hold, Verdict{}, true
}

// chooseRulePath returns the path that rules decide on. If no API of the host decides by the path, it is "/", which
// "/**" matches too. Then a path that servers read in different ways changes no decision, so the proxy need not refuse
// it.
func chooseRulePath(q Request, holders []*catalog.API) string {
	//defence:rule-path
	if slices.ContainsFunc(holders, (*catalog.API).DependsOnPath) {
		return q.Path
	}
	return "/"
}

// HasOnlyQueries reports whether an allowed request consists of GraphQL queries. A rule or the imported schema of each
// API of the host must match it as a query. Queries only read, whether sent with POST or with GET.
func HasOnlyQueries(q Request, holders []*catalog.API) bool {
	matches := func(rules []catalog.Rule, method, path string) bool {
		rule, err := catalog.FindRule(rules, method, path, q.ruleContent())
		return err == nil && rule != nil && rule.Then == catalog.ActionAllow && rule.GraphQL == "query"
	}
	judged := chooseRulePath(q, holders)
	for _, a := range holders {
		for _, m := range q.Methods {
			// An imported schema is at one path, so its queries depend on the path that leaves.
			if m != http.MethodPost && m != http.MethodGet || !matches(a.Rules, m, judged) && !matches(a.Queries, m, q.Path) {
				return false
			}
		}
	}
	return len(holders) > 0 && len(q.Methods) > 0 && q.Upgrade == ""
}

// refuseRule names the rule that refused, or the rules that would permit.
func refuseRule(api string, rules []catalog.Rule, rule *catalog.Rule, q Request) Verdict {
	v := buildRefusal(CodeRuleRefused, q.Host, api)
	if rule != nil {
		return v.extendHint("", " This rule refuses the request: "+rule.String()+".")
	}
	var allowed []string
	for _, r := range rules {
		if r.Then != catalog.ActionRefuse && len(allowed) < maxNamed {
			allowed = append(allowed, strings.TrimPrefix(r.String(), "allow "))
		}
	}
	return v.extendHint("", " It permits: "+strings.Join(allowed, "; ")+".")
}

// maxNamed is how many rules a refusal names.
const maxNamed = 6

// ruleContent returns the content for the rules, or nil if it has not been read.
func (q Request) ruleContent() catalog.Content {
	// A nil *Content in the interface would not be a nil interface.
	if q.Content == nil {
		return nil
	}
	return q.Content
}

// Hold makes a request wait until a person decides on one or several rules. One approval must cover all of its rules
// together.
type Hold struct {
	// API and Rule are the API's name and the rule, as catalog.Rule writes it. Several are joined: "approve POST; approve
	// DELETE".
	API, Rule string
	// ByAny means that all of the rules let others than the operator decide.
	ByAny bool

	apis, rules []string
}

// addRule adds a rule. It accepts a nil Hold.
func (h *Hold) addRule(api, rule string, byAny bool) *Hold {
	if h == nil {
		h = &Hold{ByAny: true}
	}
	if !slices.Contains(h.apis, api) {
		h.apis = append(h.apis, api)
	}
	if !slices.Contains(h.rules, rule) {
		h.rules = append(h.rules, rule)
	}
	h.API, h.Rule, h.ByAny = strings.Join(h.apis, ", "), strings.Join(h.rules, "; "), h.ByAny && byAny
	return h
}
