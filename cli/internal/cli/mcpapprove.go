package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// approveTools shows the tools that differ from the accepted ones, and accepts them.
func (o *mcpOptions) approveTools(ctx context.Context, e *Env, name string) error {
	if _, err := o.findServer(e, name); err != nil {
		return err
	}
	op, err := o.target.connectOperator(ctx, e)
	if err != nil {
		return err
	}
	p := startProgress(e, "asking "+name)
	r, err := op.Review(ctx, name)
	p.stop()
	if err != nil {
		return err
	}
	approved := false
	if !o.json {
		printReview(e, r)
	}
	if len(r.Changes) > 0 && (o.yes || !o.json) {
		if err := requireAgreement(ctx, e, o.yes, "Accept these tools?", "the tools were not accepted",
			"--yes to accept without confirmation"); err != nil {
			return err
		}
		// The digest of the shown tools: if the server changed them meanwhile, the approval fails.
		if err := op.Approve(ctx, name, r.Digest); err != nil {
			return err
		}
		approved = true
	}
	switch {
	case o.json:
		return printValue(e, true, struct {
			operatorapi.Review
			Approved bool `json:"approved"`
		}{r, approved}, len(r.Changes) == 0 || approved, nil)
	case approved:
		_, err = fmt.Fprintf(e.Stdout, "%s is accepted as it is now.\n", name)
	default:
		_, err = fmt.Fprintf(e.Stdout, "The tools of %s have not changed since you accepted them.\n", name)
	}
	return err
}

// printReview shows the difference of each definition. The texts are the server's, so they are escaped.
func printReview(e *Env, r operatorapi.Review) {
	for _, c := range r.Changes {
		fmt.Fprintf(e.Stdout, "%s: %s\n", safetext.OneLine(c.Tool), c.Kind)
		printDiff(e, indentJSON(c.Before), indentJSON(c.After))
	}
}

// indentJSON returns JSON on several lines.
func indentJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if len(raw) == 0 || json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}
