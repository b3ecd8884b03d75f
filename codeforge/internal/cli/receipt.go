package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// printReceipt prints one line per exchange, the sum, and the hints.
func printReceipt(p painter, w io.Writer, r controlapi.Receipt) {
	fmt.Fprintf(w, "receipt of run %s\n", quoteIfOdd(r.Run))
	for _, x := range r.Exchanges {
		fmt.Fprintf(w, "  %s\n", exchangeLine(p, x))
	}
	if r.Omitted > 0 {
		fmt.Fprintf(w, "  and %d more exchanges\n", r.Omitted)
	}
	c := r.Count
	fmt.Fprintf(w, "  %s: %d denied, %d failed; %d swapped, %d sanitized, %d redacted; %d bytes up, %d down\n",
		count(c.Exchanges, "exchange"), c.Denied, c.Failed, c.Swapped, c.Sanitized, c.Redacted, c.BytesUp, c.BytesDown)
	for _, h := range r.Hints {
		fmt.Fprintf(w, "  hint: %s\n", quoteIfOdd(h.Text))
	}
}

// exchangeLine is one exchange: outcome, status, method, URL, and what was done to it.
func exchangeLine(p painter, x controlapi.Exchange) string {
	colour := green
	switch {
	case x.Outcome == controlapi.OutcomeDenied:
		colour = red
	case x.Outcome != controlapi.OutcomeServed:
		colour = yellow
	}
	line := p.paint(colour, fmt.Sprintf("%-7s", x.Outcome)) + fmt.Sprintf(" %3d %-6s %s", x.Status, quoteIfOdd(x.Method), quoteIfOdd(x.URL))
	if x.Code != "" {
		line += " " + p.paint(colour, quoteIfOdd(x.Code))
	}
	var did []string
	for _, s := range x.Swapped {
		did = append(did, quoteIfOdd(s.Name)+" in "+quoteIfOdd(s.In))
	}
	if x.Sanitized > 0 {
		did = append(did, fmt.Sprintf("%d sanitized", x.Sanitized))
	}
	if x.Redacted > 0 {
		did = append(did, fmt.Sprintf("%d redacted", x.Redacted))
	}
	if len(did) > 0 {
		line += "  [" + strings.Join(did, ", ") + "]"
	}
	return line + p.paint(dim, fmt.Sprintf("  %.0f ms", x.Milliseconds))
}
