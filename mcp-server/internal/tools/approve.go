package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// maxShown is the longest request that a client is asked to show, in bytes. A user must see the whole request to
// approve it, so longer ones wait for the command line.
const maxShown = 6000

// maxWidth is the longest line of a request that a client is asked to show, in bytes. Clients show a block of code
// without wrapping its lines, so code could push a part of a longer line out of sight.
const maxWidth = 120

// Values of the form's only field. Some clients accept forms without asking their user, so an empty form is not an
// answer.
const (
	decision    = "decision"
	approveOnce = "approve once"
	approvePath = "approve all of this method and path in this run"
	approveRule = "approve all that this rule asks about in this run"
	refuseIt    = "refuse"
)

// otherDecisions maps the choices besides approveOnce to the decisions.
var otherDecisions = map[string]approvalapi.Answer{
	approvePath: {Approve: true, Scope: approvalapi.ScopePath}, approveRule: {Approve: true, Scope: approvalapi.ScopeRule},
	refuseIt: {},
}

// newApprover returns a function that asks a client's user about waiting requests.
func newApprover(ask userform.Asker) func(context.Context, approvalapi.HeldRequest) *approvalapi.Answer {
	return func(ctx context.Context, h approvalapi.HeldRequest) *approvalapi.Answer {
		form, ok := approvalForm(h)
		if !ok {
			return nil
		}
		return askDecision(ctx, ask, form)
	}
}

// askDecision asks a client's user. It returns nil without a decision.
func askDecision(ctx context.Context, ask userform.Asker, form userform.Question) *approvalapi.Answer {
	a, err := ask(ctx, form)
	if err != nil { // the client cannot ask, or the request no longer waits
		return nil
	}
	return readDecision(a)
}

// approvalForm returns the question about a request. It returns false if the request is too long to be shown.
func approvalForm(h approvalapi.HeldRequest) (userform.Question, bool) {
	return newDecisionForm(showRequest(h), approveOnce, approvePath, approveRule, refuseIt)
}

// newDecisionForm returns a question with these choices. It returns false if the text is too long to be shown.
func newDecisionForm(text string, choices ...string) (userform.Question, bool) {
	list, err := json.Marshal(choices)
	schema := fmt.Sprintf(`{"type":"object","required":[%q],"properties":{%q:{"type":"string","title":"Your decision",
"enum":%s}}}`, decision, decision, list)
	return userform.Question{Message: text, Schema: json.RawMessage(schema)}, err == nil && len(text) <= maxShown
}

// showRequest returns the request as a person sees it. CodeForge's text comes first, and the text of code or a server
// last.
func showRequest(h approvalapi.HeldRequest) string {
	var b strings.Builder
	who := "Code that the model wrote"
	if h.Server != "" {
		who = "The MCP server " + safetext.OneLine(h.Server) + ", called by the model's code,"
	}
	fmt.Fprintf(&b, "%s wants to send this request (%s). A rule or limit of the API %s requires your approval: %s. "+
		"If you approve, CodeForge replaces token names with your credentials. This is the whole request, with %d bytes "+
		"of body:\n",
		who, h.ID, safetext.OneLine(h.API), safetext.OneLine(h.Rule), len(h.Body))
	writeBlock(&b, h.Method+" "+h.URL, h.Headers, h.Body)
	return b.String()
}

// writeBlock writes text from code as a Markdown code block: after an empty line, with a prefix on each line. The rest
// of a line that is too long follows on lines with another prefix.
func writeBlock(b *strings.Builder, first string, headers []string, body string) {
	lines := append([]string{first}, headers...)
	if body != "" {
		lines = append(lines, "")
		lines = append(lines, strings.Split(strings.TrimSuffix(body, "\n"), "\n")...)
	}
	b.WriteByte('\n')
	for _, line := range lines {
		// The prefix stops code from writing lines that look like CodeForge's own text.
		prefix, rest := "    | ", safetext.OneLine(line)
		for more := true; more; prefix = "    : " {
			part := safetext.CutText(rest, maxWidth, "")
			rest = rest[len(part):]
			more = rest != ""
			b.WriteString(prefix + part + "\n")
		}
	}
}

// readDecision returns a user's decision, or nil. Only an explicit choice is a decision: a form that was dismissed, or
// accepted without a choice, is unanswered.
func readDecision(a userform.Answer) *approvalapi.Answer {
	var content map[string]any
	// A content that is no object cannot be a choice.
	if len(a.Content) > 0 && json.Unmarshal(a.Content, &content) != nil {
		return nil
	}
	choice, _ := content[decision].(string)
	other, isOther := otherDecisions[choice]
	//defence:explicit-approval permits
	once := choice == approveOnce
	switch {
	// Declining needs no field.
	case a.Action == userform.Decline:
		return &approvalapi.Answer{}
	case a.Action == userform.Accept && once:
		return &approvalapi.Answer{Approve: true}
	case a.Action == userform.Accept && isOther:
		return &other
	}
	return nil
}
