package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// printReceipt prints one line per exchange, the totals, and the hints.
func printReceipt(p textPainter, w io.Writer, r proxyapi.Receipt) {
	fmt.Fprintf(w, "receipt of run %s\n", safetext.OneLine(r.Run))
	for _, x := range r.Exchanges {
		fmt.Fprintf(w, "  %s\n", exchangeLine(p, x))
		printCaused(p, w, x)
	}
	if r.Omitted > 0 {
		fmt.Fprintf(w, "  and %d more exchanges\n", r.Omitted)
	}
	c := r.Count
	fmt.Fprintf(w, "  %s: %d denied, %d failed; %d swapped, %d scrubbed, %d redacted; %d bytes up, %d down\n",
		countNoun(c.Exchanges, "exchange"), c.Denied, c.Failed, c.Swapped, c.Sanitized, c.Redacted, c.BytesUp, c.BytesDown)
	if r.Audit != "" {
		fmt.Fprintf(w, "  audit %s\n", safetext.OneLine(r.Audit))
	}
	for _, h := range r.Hints {
		fmt.Fprintf(w, "  hint: %s\n", safetext.OneLine(h.VoiceText().Person))
	}
}

// printCaused prints the requests that a call of an MCP server's tool caused.
func printCaused(p textPainter, w io.Writer, x proxyapi.Exchange) {
	if x.Among > 1 {
		fmt.Fprintf(w, "    sent for this or for one of %s at the same time:\n", countNoun(x.Among-1, "other call"))
	}
	for _, c := range x.Caused {
		fmt.Fprintf(w, "    %s\n", exchangeLine(p, c))
	}
}

// exchangeLine describes one exchange: outcome, status, method, URL, and the proxy's changes. For a call of an MCP
// server's tool, it shows the tool instead of method and URL, and the sizes of arguments and result.
func exchangeLine(p textPainter, x proxyapi.Exchange) string {
	colour := terminal.Green
	switch {
	case x.Outcome == proxyapi.OutcomeDenied:
		colour = terminal.Red
	case x.Outcome != proxyapi.OutcomeServed:
		colour = terminal.Yellow
	}
	method, target, sizes := x.Method, x.URL, ""
	if call := x.CalledTool(); call != "" {
		method, target, sizes = "CALL", call, fmt.Sprintf("  %d bytes up, %d down", x.BytesUp, x.BytesDown)
	}
	line := p(colour, fmt.Sprintf("%-7s", x.Outcome)) +
		fmt.Sprintf(" %3d %-6s %s", x.Status, safetext.OneLine(method), safetext.OneLine(target))
	if x.Code != "" {
		line += " " + p(colour, safetext.OneLine(x.Code))
	}
	changes := convert.Each(x.Swapped, func(s proxyapi.Swap) string {
		return safetext.OneLine(s.Name) + " in " + safetext.OneLine(s.In)
	})
	if x.Unlisted > 0 {
		changes = append(changes, fmt.Sprintf("%d more names", x.Unlisted))
	}
	if x.Sanitized > 0 {
		changes = append(changes, fmt.Sprintf("%d scrubbed", x.Sanitized))
	}
	if x.Redacted > 0 {
		changes = append(changes, fmt.Sprintf("%d redacted", x.Redacted))
	}
	if len(changes) > 0 {
		line += "  [" + strings.Join(changes, ", ") + "]"
	}
	wait := ""
	if x.HeldMS >= 1 {
		wait = fmt.Sprintf(" after %.0f ms of waiting for approval", x.HeldMS)
	}
	return line + p(terminal.Dim, fmt.Sprintf("%s  %.0f ms%s", sizes, x.Milliseconds-x.HeldMS, wait))
}
