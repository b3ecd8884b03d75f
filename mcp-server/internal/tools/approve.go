package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// maxShown is the longest request that a client is asked to show, in bytes. A user must see the whole request to
// approve it, so longer ones wait for the command line.
const maxShown = 6000

// Values of the form's only field. Some clients accept forms without asking their user, so an empty form is not an
// answer.
const (
	decision    = "decision"
	approveOnce = "approve once"
	approvePath = "approve all of this method and path in this run"
	approveRule = "approve all that this rule asks about in this run"
	refuseIt    = "refuse"
)

// newApprover returns a function that asks a client's user about waiting requests.
func newApprover(ask userform.Asker) func(context.Context, approvalapi.HeldRequest) execution.Decision {
	return func(ctx context.Context, h approvalapi.HeldRequest) execution.Decision {
		form, ok := approvalForm(h)
		if !ok {
			return execution.Unanswered
		}
		a, err := ask(ctx, form)
		if err != nil { // the client cannot ask, or the request no longer waits
			return execution.Unanswered
		}
		return readDecision(a)
	}
}

// approvalForm returns the question about a request. It returns false if the request is too long to be shown.
func approvalForm(h approvalapi.HeldRequest) (userform.Question, bool) {
	text := showRequest(h)
	if len(text) > maxShown {
		return userform.Question{}, false
	}
	schema := fmt.Sprintf(`{"type":"object","required":[%q],"properties":{%q:{"type":"string","title":"Your decision",
"enum":[%q,%q,%q,%q]}}}`, decision, decision, approveOnce, approvePath, approveRule, refuseIt)
	return userform.Question{Message: text, Schema: json.RawMessage(schema)}, true
}

// showRequest returns the request as a person sees it. CodeForge's text comes first, and the text of code or a server
// last.
func showRequest(h approvalapi.HeldRequest) string {
	var b strings.Builder
	who := "Code that the model wrote"
	if h.Server != "" {
		who = "The MCP server " + safetext.OneLine(h.Server) + ", which code of the model has called,"
	}
	fmt.Fprintf(&b, "%s wants to send this request (%s). The API %s asks you about it: %s. "+
		"Token names in it are replaced by your credentials. All of it is shown, %d bytes of body:\n",
		who, h.ID, safetext.OneLine(h.API), safetext.OneLine(h.Rule), len(h.Body))
	writeBlock(&b, h.Method+" "+h.URL, h.Headers, h.Body)
	return b.String()
}

// writeBlock writes text from code as a Markdown code block: after an empty line, with a prefix on each line.
func writeBlock(b *strings.Builder, first string, headers []string, body string) {
	lines := append([]string{first}, headers...)
	if body != "" {
		lines = append(lines, "")
		lines = append(lines, strings.Split(strings.TrimSuffix(body, "\n"), "\n")...)
	}
	b.WriteByte('\n')
	for _, line := range lines {
		// The prefix stops code from writing lines that look like CodeForge's own text.
		b.WriteString("    | " + safetext.OneLine(line) + "\n")
	}
}

// readDecision returns a user's decision. Only an explicit choice is a decision. A form that was dismissed, or accepted
// without a choice, is unanswered.
func readDecision(a userform.Answer) execution.Decision {
	var content map[string]any
	// A content that is no object cannot be a choice.
	if len(a.Content) > 0 && json.Unmarshal(a.Content, &content) != nil {
		return execution.Unanswered
	}
	//defence:explicit-approval permits
	once := content[decision] == approveOnce
	switch {
	// Declining needs no field.
	case a.Action == userform.Decline:
		return execution.Refused
	case a.Action == userform.Accept && once:
		return execution.Approved
	case a.Action == userform.Accept && content[decision] == approvePath:
		return execution.ApprovedPath
	case a.Action == userform.Accept && content[decision] == approveRule:
		return execution.ApprovedRule
	case a.Action == userform.Accept && content[decision] == refuseIt:
		return execution.Refused
	}
	return execution.Unanswered
}
