package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

func logsCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "logs", Short: "show exchanges with APIs, one line each",
	}
	o := logsOptions{target: targetFlags(c.Flags())}
	c.Flags().BoolVarP(&o.follow, "follow", "f", false, "show new exchanges until Ctrl-C")
	c.Flags().IntVarP(&o.last, "last", "n", 0, "only the last `N` recorded exchanges (default: all)")
	since := c.Flags().String("since", "", "only exchanges since a `TIME`: 10m ago, 2026-11-22, or 2026-11-22T09:30:00Z")
	c.Flags().StringVar(&o.filter.Run, "run", "", "`ID` of a run, or a prefix of it: show only its exchanges")
	c.Flags().BoolVar(&o.json, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if o.last < 0 || o.last == 0 && c.Flags().Changed("last") {
			return usageError("-n %d: want a number from 1", o.last)
		}
		var err error
		if o.filter.Since, err = parseSince(*since, time.Now()); err != nil {
			return err
		}
		return o.showLogs(c.Context(), e)
	}
	return c
}

// parseSince parses --since: a duration before now, a day, or a time.
func parseSince(text string, now time.Time) (time.Time, error) {
	text = strings.TrimSpace(strings.TrimSuffix(text, " ago"))
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, usageError("--since %q: want a time back like 10m, 2h or 7d, a day like 2026-11-22, or "+
		"2026-11-22T09:30:00Z", text)
}

type logsOptions struct {
	target serverTarget
	filter operatorapi.ExchangeFilter
	last   int
	follow bool
	json   bool
}

func (o logsOptions) showLogs(ctx context.Context, e *Env) error {
	p := newPainter(e, e.Stdout)
	rec, err := o.target.connectOperator(ctx, e)
	if err != nil {
		return err
	}
	status, err := rec.History(ctx)
	if err == nil && status.Mode == "off" {
		err = errOff
	}
	if err != nil {
		return err
	}
	show := func(x proxyapi.Exchange) { o.printExchange(e.Stdout, p, x) }
	if o.follow {
		return o.followExchanges(ctx, rec, status.Cursor, show)
	}
	n, err := o.listExchanges(ctx, rec, show)
	if ctx.Err() != nil {
		return nil
	}
	// Without exchanges, an unknown run would look like a silent one.
	if err == nil && n == 0 && o.filter.Run != "" && proxyapi.IsRunID(o.filter.Run) {
		_, err = findRun(ctx, rec, o.filter.Run) // a run without exchanges is known too
	}
	return err
}

// listExchanges calls on for each recorded exchange, oldest first.
func (o logsOptions) listExchanges(
	ctx context.Context, rec operatorapi.Client, on func(proxyapi.Exchange),
) (n int, err error) {
	f := o.filter
	f.Limit, f.Oldest = 1000, o.last == 0
	var latest []operatorapi.Exchange
	for cursor := ""; ; {
		if !f.Oldest {
			f.Limit = min(1000, o.last-n)
		}
		page, err := rec.Exchanges(ctx, f, cursor)
		if err != nil {
			return n, err
		}
		n += len(page.Exchanges)
		if f.Oldest {
			for _, x := range page.Exchanges {
				on(x.Exchange)
			}
		} else {
			latest = append(latest, page.Exchanges...)
		}
		if cursor = page.Next; cursor == "" || !f.Oldest && n >= o.last {
			break
		}
	}
	for _, x := range slices.Backward(latest) {
		on(x.Exchange)
	}
	return n, nil
}

// maxShown limits the remembered ids of exchanges while following.
const maxShown = 100_000

// followExchanges shows the recorded exchanges, and then new ones after the cursor until ctx ends, each once. After a
// gap it lists again from the last exchange.
func (o logsOptions) followExchanges(ctx context.Context, rec operatorapi.Client, cursor string,
	on func(proxyapi.Exchange)) error {
	shown := map[string]bool{}
	show := func(x proxyapi.Exchange) {
		if shown[x.ID] {
			return
		}
		if len(shown) >= maxShown {
			// An exchange may then be shown twice, which is better than growing without bound.
			clear(shown)
		}
		shown[x.ID] = true
		on(x)
	}
	_, err := o.listExchanges(ctx, rec, show)
	// The stream starts at the cursor, which is older than the list: shown removes the exchanges in both.
	last := time.Now()
	if err == nil {
		err = rec.Events(ctx, cursor, func(ev operatorapi.HistoryEvent) {
			x := ev.Exchange
			switch {
			case ev.Kind == operatorapi.EventGap:
				missed := o
				missed.last, missed.filter.Since = 0, last
				_, _ = missed.listExchanges(ctx, rec, show) // an error ends the stream too
			case x != nil && strings.HasPrefix(x.Run, o.filter.Run) && !x.At.Before(o.filter.Since):
				show(x.Exchange)
				last = x.At
			}
		})
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (o logsOptions) printExchange(w io.Writer, p textPainter, x proxyapi.Exchange) {
	if o.json {
		_ = printJSONLine(w, proxyapi.Event{Exchange: &x})
		return
	}
	at := p(terminal.Dim, x.At.Local().Format("2006-01-02 15:04:05.000"))
	fmt.Fprintf(w, "%s %s %s\n", at, safetext.OneLine(cmp.Or(x.Run, "-")), exchangeLine(p, x))
}

func receiptCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "receipt [RUN]", Short: "show the exchanges of one run",
		Args: cobra.MaximumNArgs(1),
	}
	t, asJSON := targetFlags(c.Flags()), jsonFlag(c.Flags())
	c.RunE = useConnection(e, t.connectOperator, func(ctx context.Context, rec operatorapi.Client, args []string) error {
		d, err := findRun(ctx, rec, strings.Join(args, ""))
		if err != nil {
			return err
		}
		r := receiptOf(d)
		return printValue(e, *asJSON, r, true, func() { printReceipt(newPainter(e, e.Stdout), e.Stdout, r) })
	})
	return c
}

func receiptOf(d operatorapi.Detail) proxyapi.Receipt {
	return proxyapi.Receipt{
		Run: d.ID, Generation: d.Generation, Omitted: d.Omitted, Hints: d.Hints, Count: d.Count,
		Exchanges: convert.Each(d.Exchanges, func(x operatorapi.Exchange) proxyapi.Exchange { return x.Exchange }),
	}
}
