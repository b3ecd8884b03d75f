package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

type ruleResult struct {
	Rule string `json:"rule"`
	// Result is "no match", "match", "depends on the body", or the reason why the rule cannot be evaluated.
	Result string `json:"result"`
}

// requestExplanation describes the decision on a request to one API.
type requestExplanation struct {
	API    string       `json:"api"`
	Method string       `json:"method"`
	Path   string       `json:"path"`
	Steps  []ruleResult `json:"rules,omitempty"`
	// Verdict is "allowed", "waits for approval", "refused", or "depends on the body".
	Verdict string `json:"verdict"`
	// Why names the rule or setting that decided.
	Why string `json:"why"`
}

const dependsOnBody = "depends on the body"

// explainRequest prints the decision of an API's configuration on a method and a path.
func (o *apiOptions) explainRequest(e *Env, name, method, path string) error {
	if !strings.HasPrefix(path, "/") && method != callMethod {
		return usageError("api explain: the path begins with /, e.g. codeforge api explain %s %s /v1/items", name, method)
	}
	// Query and body are unread here: a rule on them counts as "depends on the body".
	path, _, _ = strings.Cut(path, "?")
	_, cat := inspectConfig(e, o.apis)
	a := cat.API(name)
	if a == nil {
		return fmt.Errorf("there is no API %q in %s that loads; codeforge api list lists them", name, o.apis)
	}
	x := newExplanation(a, method, path)
	if o.json {
		return printJSON(e.Stdout, x)
	}
	p := newPainter(e, e.Stdout)
	for i, s := range x.Steps {
		fmt.Fprintf(e.Stdout, "%3d  %s\n     %s\n", i+1, safetext.OneLine(s.Rule), p(terminal.Dim, s.Result))
	}
	color := terminal.Green
	if x.Verdict != "allowed" {
		color = terminal.Yellow
	}
	fmt.Fprintf(e.Stdout, "%s: %s\n", p(color, x.Verdict), safetext.OneLine(x.Why))
	return nil
}

// newExplanation decides in the proxy's order.
func newExplanation(a *catalog.API, method, path string) requestExplanation {
	x := requestExplanation{API: a.Name, Method: method, Path: path, Verdict: "refused"}
	switch {
	case !a.Active:
		x.Why = `the API is not active ("active": false)`
	case method == callMethod:
		x.explainCall(a)
	case slices.Contains(a.Methods.Restricted, method):
		x.Why = "restricted_methods has " + method
	case a.Methods.Allowed != nil && !slices.Contains(a.Methods.Allowed, method):
		x.Why = "allowed_methods has no " + method
	case a.Only != nil && !slices.ContainsFunc(a.Hosts, func(h catalog.HostPattern) bool {
		return a.Only.Allows(h.String(), method, path)
	}):
		x.Why = "operations.only is set, and this is not an operation of the document"
	case a.Rules == nil:
		x.Verdict, x.Why = "allowed", "the API has no rules"
	default:
		if !a.DependsOnPath() {
			path = "/"
		}
		x.explainRules(a.Rules, func(one []catalog.Rule) (*catalog.Rule, error) {
			return catalog.FindRule(one, method, path, nil)
		})
	}
	return x
}

// callMethod stands for a call of an MCP server's tool.
const callMethod = "CALL"

// explainCall explains the decision on calls of the tool whose name is the path.
func (x *requestExplanation) explainCall(a *catalog.API) {
	named := func(glob string) bool { return mcpserver.MatchTool(glob, x.Path) }
	switch {
	case a.Server == nil:
		x.Why = "the API is not an MCP server"
	case slices.ContainsFunc(a.Server.Deny, named):
		x.Why = "mcp.tools.deny has it"
	case len(a.Server.Allow) > 0 && !slices.ContainsFunc(a.Server.Allow, named):
		x.Why = "mcp.tools.allow does not have it"
	case a.ToolRules == nil:
		x.Verdict, x.Why = "allowed", "the API has no rules about tools"
	default:
		x.explainRules(a.ToolRules, func(one []catalog.Rule) (*catalog.Rule, error) {
			return catalog.FindCallRule(one, x.Path, nil)
		})
	}
}

func (x *requestExplanation) explainRules(rules []catalog.Rule, decide func([]catalog.Rule) (*catalog.Rule, error)) {
	depends := ""
	// Each rule is evaluated alone, because FindRule returns only the rule that decides.
	for i, r := range rules {
		matched, err := decide(rules[i : i+1])
		s := ruleResult{Rule: r.String(), Result: "no match"}
		switch {
		case errors.Is(err, catalog.ErrUnread):
			s.Result = dependsOnBody
			depends = s.Rule
		case err != nil:
			s.Result = err.Error()
			x.Why = s.Result
		case matched != nil:
			s.Result = "match"
			x.Why = fmt.Sprintf("rule %d: %s", i+1, s.Rule)
		}
		x.Steps = append(x.Steps, s)
		if x.Why == "" {
			continue
		}
		switch {
		case matched != nil && r.Then == catalog.ActionAllow:
			x.Verdict = "allowed"
		case matched != nil && r.Then == catalog.ActionApprove:
			x.Verdict = "waits for approval"
		}
		break
	}
	x.Why = cmp.Or(x.Why, "no rule matches")
	if depends != "" {
		x.Why = fmt.Sprintf("%s; without it: %s, %s", depends, x.Verdict, x.Why)
		x.Verdict = dependsOnBody
	}
}
