package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/term"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/clients"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/visible"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// approve shows which tools are not as they were accepted, and accepts them.
func (o *mcpOptions) approve(ctx context.Context, e *Env, name string) error {
	if _, err := o.known(e, name); err != nil {
		return err
	}
	op, err := o.operator(ctx, e)
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
		if err := o.confirmed(ctx, e); err != nil {
			return err
		}
		if err := op.Approve(ctx, name, r.Digest); err != nil {
			return err
		}
		approved = true
	}
	switch {
	case o.json:
		err = printJSON(e.Stdout, struct {
			operatorapi.Review
			Approved bool `json:"approved"`
		}{r, approved})
		if err == nil && len(r.Changes) > 0 && !approved {
			return silent(ExitFailed)
		}
	case approved:
		_, err = fmt.Fprintf(e.Stdout, "%s is accepted as it is now.\n", name)
	default:
		_, err = fmt.Fprintf(e.Stdout, "The tools of %s are as you accepted them.\n", name)
	}
	return err
}

// confirmed is nil if the tools are accepted.
func (o *mcpOptions) confirmed(ctx context.Context, e *Env) error {
	switch {
	case o.yes:
		return nil
	case !term.IsTerminal(int(e.Stdin.Fd())):
		return errors.New("nothing was accepted: pass --yes to accept without confirmation")
	}
	return ask(ctx, e, "Accept these tools?", "nothing was accepted")
}

// printReview shows the difference of each definition. They are a server's words.
func printReview(e *Env, r operatorapi.Review) {
	paint := newPainter(e, e.Stdout)
	for _, c := range r.Changes {
		fmt.Fprintf(e.Stdout, "%s: %s\n", visible.Line(c.Tool), c.Kind)
		for _, line := range clients.Diff(spread(c.Before), spread(c.After)) {
			text := visible.Line(line)
			switch line[0] {
			case '+':
				text = paint(terminal.Green, text)
			case '-':
				text = paint(terminal.Red, text)
			}
			fmt.Fprintf(e.Stdout, "  %s\n", text)
		}
	}
}

// spread is JSON over several lines.
func spread(raw json.RawMessage) string {
	var b bytes.Buffer
	if len(raw) == 0 || json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}
