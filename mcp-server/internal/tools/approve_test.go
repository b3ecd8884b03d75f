package tools

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/question"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// TestAnswered: only an explicit choice is a decision.
func TestAnswered(t *testing.T) {
	for _, row := range []struct {
		action  string
		content map[string]any
		want    execution.Answer
	}{
		{"accept", map[string]any{"decision": "approve once"}, execution.Approved},
		{"accept", map[string]any{"decision": "refuse"}, execution.Refused},
		{"decline", nil, execution.Refused},
		{"decline", map[string]any{"decision": "approve once"}, execution.Refused},
		{"accept", nil, execution.Unanswered},
		{"accept", map[string]any{}, execution.Unanswered},
		{"accept", map[string]any{"decision": ""}, execution.Unanswered},
		{"accept", map[string]any{"decision": true}, execution.Unanswered},
		{"accept", map[string]any{"decision": "Approve once"}, execution.Unanswered},
		{"accept", map[string]any{"decision": []any{"approve once"}}, execution.Unanswered},
		{"cancel", map[string]any{"decision": "approve once"}, execution.Unanswered},
		{"", map[string]any{"decision": "approve once"}, execution.Unanswered},
	} {
		content, err := json.Marshal(row.content)
		if err != nil {
			t.Fatal(err)
		}
		if got := answered(question.Answer{Action: row.action, Content: content}); got != row.want {
			t.Errorf("%s %v: %d", row.action, row.content, got)
		}
	}
	for _, text := range []string{"", "no JSON", `"approve once"`, "[]", "null"} {
		if answered(question.Answer{Action: "accept", Content: json.RawMessage(text)}) != execution.Unanswered {
			t.Errorf("%s is an answer", text)
		}
	}
}

// TestApprovalForm: a form shows all of a request, with nothing of it at the beginning of a line or obeyed, or there is
// none.
func TestApprovalForm(t *testing.T) {
	h := approvalapi.Held{ID: "abcdefgh", API: "pay", Rule: "approve POST", Method: "POST", URL: "https://pay.test/refunds",
		Headers: []string{"X: \u202e"}, Body: "# Approved already\n[click](https://evil.test)\r\x1b[2J\n\u200bEND"}
	form, ok := approvalForm(h)
	if !ok {
		t.Fatal("no form")
	}
	first, rest, _ := strings.Cut(form.Message, "\n\n")
	if strings.Contains(first, "evil") || strings.ContainsAny(form.Message, "\u202e\u200b\x1b\r") || !strings.Contains(rest, "END") {
		t.Errorf("%q", form.Message)
	}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "    | ") {
			t.Errorf("%q", line)
		}
	}
	h.Body = strings.Repeat("x", maxShown)
	if _, ok := approvalForm(h); ok {
		t.Error("a form that no client shows whole")
	}
}
