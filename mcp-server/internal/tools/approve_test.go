package tools

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// TestAnswered: only an explicit choice is a decision.
// Promise: exact-approvals
func TestAnswered(t *testing.T) {
	for _, row := range []struct {
		action  string
		content map[string]any
		want    *approvalapi.Answer
	}{
		{"accept", map[string]any{"decision": "approve once"}, &approvalapi.Answer{Approve: true}},
		{"accept", map[string]any{"decision": "refuse"}, &approvalapi.Answer{}},
		{"accept", map[string]any{"decision": "approve all that this rule asks about in this run"}, &approvalapi.Answer{Approve: true, Scope: approvalapi.ScopeRule}},
		{"decline", nil, &approvalapi.Answer{}},
		{"decline", map[string]any{"decision": "approve once"}, &approvalapi.Answer{}},
		{"accept", nil, nil},
		{"accept", map[string]any{}, nil},
		{"accept", map[string]any{"decision": ""}, nil},
		{"accept", map[string]any{"decision": true}, nil},
		{"accept", map[string]any{"decision": "Approve once"}, nil},
		{"accept", map[string]any{"decision": []any{"approve once"}}, nil},
		{"cancel", map[string]any{"decision": "approve once"}, nil},
		{"", map[string]any{"decision": "approve once"}, nil},
	} {
		content, err := json.Marshal(row.content)
		if err != nil {
			t.Fatal(err)
		}
		if got := readDecision(userform.Answer{Action: row.action, Content: content}); !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s %v: %+v", row.action, row.content, got)
		}
	}
	for _, text := range []string{"", "no JSON", `"approve once"`, "[]", "null"} {
		if readDecision(userform.Answer{Action: "accept", Content: json.RawMessage(text)}) != nil {
			t.Errorf("%s is an answer", text)
		}
	}
}

// TestApprovalForm: the form about a request, and that about a plan, shows all of what code wrote, as blocks of code in
// Markdown and with nothing of it obeyed, or there is none. An empty line is before each block: without it the block would
// go on with the paragraph, and hide what is in <!-- -->.
// Promise: exact-approvals
func TestApprovalForm(t *testing.T) {
	h := approvalapi.HeldRequest{ID: "abcdefgh", API: "pay", Rule: "approve POST", Method: "POST", URL: "https://pay.test/refunds",
		Headers: []string{"X: \u202e"}, Body: "# Approved already <!--\n[click](https://evil.test)\r\x1b[2J\n\n--> \u200bEND"}
	step := approvalapi.Step{APIs: []string{"pay"}, Method: h.Method, URL: h.URL, Headers: h.Headers, Body: h.Body}
	held, ok := approvalForm(h)
	plan, has := planForm(approvalapi.Plan{Writes: 3, Steps: []approvalapi.Step{step, {APIs: []string{"notes"}, Server: "notes", Tool: "write", Body: h.Body}, step}})
	if !ok || !has {
		t.Fatal("no form")
	}
	for form, blocks := range map[string]int{held.Message: 1, plan.Message: 3} {
		before := "x"
		for line := range strings.Lines(form) {
			code := strings.HasPrefix(line, "    | ")
			if code && before != "\n" && !strings.HasPrefix(before, "    | ") || !code && strings.ContainsAny(line, "<[") {
				t.Errorf("%q after %q is in no block of code:\n%s", line, before, form)
			}
			if code && before == "\n" {
				blocks--
			}
			before = line
		}
		if blocks != 0 || strings.ContainsAny(form, "\u202e\u200b\x1b\r") || !strings.HasSuffix(form, "END\"\n") {
			t.Errorf("%d blocks too few: %q", blocks, form)
		}
	}
	h.Body = `{"to":"alice",` + strings.Repeat(" ", 3000) + `"amount":900,"é":1}`
	held, _ = approvalForm(h)
	_, text, _ := strings.Cut(held.Message, "    | {")
	for line := range strings.Lines(text) {
		if len(line) > 130 {
			t.Errorf("a line of %d bytes, whose end a client may hide", len(line))
		}
	}
	if !strings.HasSuffix(text, `"amount":900,"é":1}`+"\n") {
		t.Errorf("the end is missing: %q", text)
	}
	h.Body = strings.Repeat("x", maxShown)
	if _, ok := approvalForm(h); ok {
		t.Error("a form that no client shows whole")
	}
	step.Body = h.Body
	if _, ok := planForm(approvalapi.Plan{Writes: 1, Steps: []approvalapi.Step{step}}); ok {
		t.Error("a form about a plan that no client shows whole")
	}
}
