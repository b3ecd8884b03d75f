package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

func heldCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "held", Short: "list the requests that wait for your approval",
	}
	t, asJSON := targetFlags(c.Flags()), jsonFlag(c.Flags())
	c.RunE = useConnection(e, t.openApprovals, func(ctx context.Context, client approvalapi.Client, _ []string) error {
		list, err := client.ListHeld(ctx)
		if err != nil {
			return err
		}
		return printList(e, *asJSON, list, "No request waits.", func(h approvalapi.HeldRequest) { printHeld(e, e.Stdout, h) })
	})
	return c
}

func approveCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "approve [ID...]", Short: "approve requests; without an ID, show each and ask",
		Args: cobra.ArbitraryArgs,
	}
	t := targetFlags(c.Flags())
	scope := c.Flags().String("scope", string(approvalapi.ScopeOnce), "`SCOPE` of the approval: once; path: all of this "+
		"method and path that the rule holds in this run; or rule: all that the rule holds in this run")
	watch := c.Flags().Bool("watch", false, "ask about new requests too, until Ctrl-C")
	c.RunE = useConnection(e, t.openApprovals, func(ctx context.Context, client approvalapi.Client, args []string) error {
		if len(args) > 0 {
			answer := approvalapi.Answer{Approve: true, Scope: approvalapi.Scope(*scope)}
			return sendDecision(ctx, e, client, args, answer)
		}
		return askEach(ctx, e, client, *watch)
	})
	return c
}

func refuseCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "refuse ID...", Short: "refuse requests that wait for you",
		Args: cobra.MinimumNArgs(1),
	}
	t := targetFlags(c.Flags())
	c.RunE = useConnection(e, t.openApprovals, func(ctx context.Context, client approvalapi.Client, args []string) error {
		return sendDecision(ctx, e, client, args, approvalapi.Answer{})
	})
	return c
}

func sendDecision(ctx context.Context, e *Env, c approvalapi.Client, ids []string, a approvalapi.Answer) error {
	var failed error
	for _, id := range ids {
		h, err := c.DecideHeld(ctx, id, a)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", safetext.OneLine(id), err))
			continue
		}
		fmt.Fprintln(e.Stdout, describeDecision(h, a.Approve))
	}
	return failed
}

func describeDecision(h approvalapi.HeldRequest, approve bool) string {
	what := fmt.Sprintf("%s %s %s", h.ID, safetext.OneLine(h.Method), safetext.OneLine(h.URL))
	switch {
	case !approve:
		return "Refused: " + what
	case h.Waiting && h.Scope == approvalapi.ScopePath:
		return "Approved with all of this method and path in its run: " + what
	case h.Waiting && h.Scope == approvalapi.ScopeRule:
		return "Approved with all that this rule holds in its run: " + what
	case h.Waiting:
		return "Approved, and sent: " + what
	}
	return "Approved: " + what + "\nIts run no longer waits. Run the code again within 15 minutes: " +
		"then the same request passes once."
}

// askEach shows each held request and asks about it.
func askEach(ctx context.Context, e *Env, c approvalapi.Client, watch bool) error {
	p := newPrompter(e)
	if !p.terminal {
		return usageError("approve: want the ID of a request, which codeforge held lists; on a terminal, approve asks " +
			"about each")
	}
	asked := map[string]bool{}
	for {
		list, err := c.ListHeld(ctx)
		if err != nil {
			return err
		}
		for _, h := range list {
			if asked[h.ID] || h.Approved {
				continue
			}
			// A request that the user left for later must not be shown again every second.
			asked[h.ID] = true
			printHeld(e, e.Stderr, h)
			wider := "in this run [p]ath: all of this method and path, [r]ule: all of this rule; "
			// The wider scopes end with a run, and this request belongs to none.
			if !proxyapi.IsRunID(h.Run) {
				wider = ""
			}
			answer, err := p.askLine(ctx, "Approve "+h.ID+"? [y]es, once; "+wider+"[n]o, [l]ater: ", "ID", acceptAnyAnswer)
			if err != nil {
				return err
			}
			if a, ok := answers[answer]; ok {
				if err := sendDecision(ctx, e, c, []string{h.ID}, a); err != nil {
					fmt.Fprintln(e.Stderr, err) // the request may have expired meanwhile
				}
			}
		}
		if !watch {
			if len(asked) == 0 {
				fmt.Fprintln(e.Stdout, "No request waits.")
			}
			return nil
		}
		if !timing.WaitFor(ctx, time.Second) {
			return nil
		}
	}
}

// answers maps the first letter of an answer to the decision; other letters decide nothing.
var answers = map[string]approvalapi.Answer{
	"y": {Approve: true}, "p": {Approve: true, Scope: approvalapi.ScopePath},
	"r": {Approve: true, Scope: approvalapi.ScopeRule}, "n": {},
}

// acceptAnyAnswer accepts y, p, r, n, l and their words.
func acceptAnyAnswer(s string) (string, error) {
	for _, word := range []string{"yes", "path", "rule", "no", "later"} {
		if strings.EqualFold(s, word) || strings.EqualFold(s, word[:1]) {
			return word[:1], nil
		}
	}
	return "", errors.New("want y, p, r, n or l")
}

// printHeld shows a request: the facts of the decision first, text of the code last. All text of the code is escaped
// for the terminal.
func printHeld(e *Env, w *terminal.Stream, h approvalapi.HeldRequest) {
	p := newPainter(e, w)
	state := "its run waits"
	switch {
	case h.Approved:
		state = "approved, and not used yet"
	case !h.Waiting:
		state = "its run has ended"
	case !proxyapi.IsRunID(h.Run):
		state = "it belongs to no run"
	}
	from := safetext.OneLine(h.API)
	if h.Server != "" {
		from += ", sent by its MCP server"
	}
	if h.Tenant != "" {
		from += ", of the tenant " + safetext.OneLine(h.Tenant)
	}
	fmt.Fprintf(w, "%s  %s, %s, held %s ago by: %s\n", p(terminal.Yellow, h.ID), from, state,
		time.Since(h.Since).Round(time.Second), safetext.OneLine(h.Rule))
	printRequest(w, h.ID, h.Method+" "+h.URL, h.Headers, h.Body)
}

// printRequest shows a whole request.
func printRequest(w *terminal.Stream, of, title string, headers []string, body string) {
	width, _ := w.Width()
	for _, line := range append([]string{title}, headers...) {
		fmt.Fprint(w, formatLines("    ", line, width))
	}
	if body == "" {
		return
	}
	shown, how := body, ""
	var indented bytes.Buffer
	if json.Indent(&indented, []byte(body), "", "  ") == nil { // it changes only white space
		shown, how = indented.String(), ", with new line breaks"
	}
	for line := range strings.Lines(shown) {
		fmt.Fprint(w, formatLines("    | ", strings.TrimRight(line, "\n"), width))
	}
	fmt.Fprintf(w, "    (the whole body of %s, %d bytes%s)\n", of, len(body), how)
}

// formatLines breaks a line of a request at the width of the terminal and puts prefix before each part. Without the
// prefix, a wrapped part would look like CodeForge's own text. Width 0 means that the output is not a terminal.
func formatLines(prefix, text string, width int) string {
	text = safetext.OneLine(text)
	room := max(width-len(prefix)-1, 20)
	var b strings.Builder
	for first := true; first || text != ""; first = false {
		n := len(text)
		if width > 0 {
			n = 0
			for columns := 0; n < len(text); {
				r, size := utf8.DecodeRuneInString(text[n:])
				if columns += 1 + min(1, int(r)/0x1100); columns > room { // wide characters start at U+1100
					break
				}
				n += size
			}
		}
		b.WriteString(prefix + text[:n] + "\n")
		text = text[n:]
	}
	return b.String()
}
