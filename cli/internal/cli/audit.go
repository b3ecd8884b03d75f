package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
)

func auditCommand(e *Env) *cobra.Command {
	c := groupCommand("audit", "verify, read or export the ledger of what left the machine")
	o := auditOptions{target: targetFlags(c.PersistentFlags())}
	verb := func(name, short string, run func(context.Context, *Env, ledger.Source) error) *cobra.Command {
		return &cobra.Command{
			Use: name, Short: short,
			RunE: useConnection(e, o.openLedger, func(ctx context.Context, src ledger.Source, _ []string) error {
				return run(ctx, e, src)
			}),
		}
	}
	verify := verb("verify", "find records that were changed, removed or added", o.verifyLedger)
	verify.Flags().StringArrayVar(&o.checkpoints, "checkpoint", nil, "a `LINE` that contains a checkpoint; repeatable")
	verify.Flags().StringVar(&o.anchor, "anchor", "", "a `FILE` with a checkpoint a line")
	verify.Flags().StringVar(&o.key, "key", "", "the `LINE` of key.pub, if you keep a copy elsewhere")
	verify.Flags().BoolVar(&o.json, "json", false, "print JSON")
	show := verb("show", "print the records", o.showRecords)
	export := verb("export", "write the records as lines of JSON or traces of OpenTelemetry", o.exportRecords)
	export.Flags().BoolVar(&o.otlp, "otlp", false, "traces in OTLP's JSON, one a line")
	for _, c := range []*cobra.Command{show, export} {
		c.Flags().StringVar(&o.since, "since", "", "only records since a `TIME`: 10m ago, 2026-11-22, or "+
			"2026-11-22T09:30:00Z")
		c.Flags().StringVar(&o.run, "run", "", "the `ID` of a run, or a prefix of it")
	}
	c.AddCommand(verify, show, export)
	return c
}

type auditOptions struct {
	target                  serverTarget
	checkpoints             []string
	anchor, key, since, run string
	otlp, json              bool
}

// newQuery returns the record filter of --since and --run.
func (o *auditOptions) newQuery() (ledger.Query, error) {
	since, err := parseSince(o.since, time.Now())
	return ledger.Query{Since: since, Run: o.run}, err
}

func (o *auditOptions) showRecords(_ context.Context, e *Env, src ledger.Source) error {
	q, err := o.newQuery()
	if err != nil {
		return err
	}
	p := newPainter(e, e.Stdout)
	return ledger.EachRecord(src, q, func(r ledger.Record) error { return printRecord(e.Stdout, p, r) })
}

func (o *auditOptions) exportRecords(_ context.Context, e *Env, src ledger.Source) error {
	q, err := o.newQuery()
	if err != nil {
		return err
	}
	w := bufio.NewWriter(e.Stdout)
	if o.otlp {
		err = ledger.ExportOTLP(src, q, w)
	} else {
		err = ledger.EachRecord(src, q, func(r ledger.Record) error { return printJSONLine(w, r) })
	}
	return errors.Join(err, w.Flush())
}

// openLedger returns the ledger: the running proxy's, or that of a state directory without a running CodeForge.
func (o *auditOptions) openLedger(ctx context.Context, e *Env) (ledger.Source, error) {
	conf, err := o.target.newConfig(e)
	if err != nil {
		return nil, err
	}
	// Without a running proxy the ledger is read from its files.
	if _, running := conf.State.ReadUp(); running != nil && conf.URL == "" && conf.State.Exists() {
		if names, err := ledger.Dir(conf.State.Join("audit")).ListDays(); err == nil && len(names) > 0 {
			return ledger.Dir(conf.State.Join("audit")), nil
		}
	}
	c, _, err := mcpclient.ConnectCredentials(ctx, conf)
	return ledger.Remote{HTTP: c.HTTP}, err
}

// verifyLedger verifies the ledger, and compares it with all available checkpoints from elsewhere.
func (o *auditOptions) verifyLedger(ctx context.Context, e *Env, src ledger.Source) error {
	known, err := o.readCheckpoints(ctx, e)
	if err != nil {
		return err
	}
	r, err := ledger.Verify(src, o.key, known)
	if err != nil {
		return err
	}
	return printValue(e, o.json, r, len(r.Findings) == 0, func() { printReport(e, r) })
}

func (o *auditOptions) readCheckpoints(ctx context.Context, e *Env) ([]ledger.KnownCheckpoint, error) {
	var known []ledger.KnownCheckpoint
	for _, line := range o.checkpoints {
		h, err := ledger.ParseHead(line)
		if err != nil {
			return nil, usageError("--checkpoint %q: %w", line, err)
		}
		known = append(known, ledger.KnownCheckpoint{Head: h, Where: "the checkpoint that was given"})
	}
	if o.anchor != "" {
		text, err := os.ReadFile(o.anchor)
		if err != nil {
			return nil, err
		}
		found := 0
		for line := range bytes.Lines(text) {
			if h, err := ledger.ParseHead(string(line)); err == nil {
				where := fmt.Sprintf("%q of the anchor", safetext.OneLine(strings.TrimSpace(string(line))))
				known = append(known, ledger.KnownCheckpoint{Head: h, Where: where})
				found++
			}
		}
		if found == 0 {
			return nil, fmt.Errorf("%s has no checkpoint", o.anchor)
		}
	}
	return append(known, o.readReceiptCheckpoints(ctx, e)...), nil
}

// maxReceipts limits the number of receipts that verify compares, from the latest.
const maxReceipts = 100_000

// readReceiptCheckpoints returns the checkpoints in mcp-server's receipts. mcp-server cannot write the ledger, so a
// forged ledger does not match them. Receipts are optional: errors end the list.
func (o *auditOptions) readReceiptCheckpoints(ctx context.Context, e *Env) []ledger.KnownCheckpoint {
	var known []ledger.KnownCheckpoint
	rec, err := o.target.connectOperator(ctx, e)
	if err != nil {
		fmt.Fprintln(e.Stderr, "CodeForge does not run, so the receipts are not compared.")
		return nil
	}
	for cursor := ""; len(known) < maxReceipts; {
		page, err := rec.Runs(ctx, operatorapi.RunFilter{Limit: 1000}, cursor) //nolint:mnd // the most there can be
		if err != nil {
			return known
		}
		for _, run := range page.Runs {
			if h, err := ledger.ParseHead(run.Audit); err == nil {
				known = append(known, ledger.KnownCheckpoint{Head: h, Where: "the receipt of run " + safetext.OneLine(run.ID)})
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	return known
}

func printReport(e *Env, r ledger.Report) {
	p := newPainter(e, e.Stdout)
	for _, f := range r.Findings {
		fmt.Fprintln(e.Stdout, p(terminal.Red, "broken: ")+safetext.OneLine(f))
	}
	if len(r.Findings) > 0 {
		return
	}
	fmt.Fprintf(e.Stdout, "%s%d records, %s, %s\n", p(terminal.Green, "ok: "), r.Records, countNoun(r.Days, "day"),
		countNoun(r.Checkpoints, "checkpoint"))
	if r.Forgotten > 0 {
		fmt.Fprintf(e.Stdout, "    %d older records were deleted; their hashes are kept\n", r.Forgotten)
	}
	if r.Unsigned > 0 {
		fmt.Fprintf(e.Stdout, "    %d records came after the last checkpoint\n", r.Unsigned)
	}
	if r.Compared == 0 {
		fmt.Fprintln(e.Stdout, "    not compared with a checkpoint from elsewhere: a ledger that was replaced as a whole "+
			"looks like this too")
		return
	}
	fmt.Fprintf(e.Stdout, "    it fits %s from elsewhere\n", countNoun(r.Compared, "checkpoint"))
}

// decisionLine describes a person's decision.
func decisionLine(d ledger.Decision) string {
	what := safetext.OneLine(d.Method) + " " + safetext.OneLine(d.URL)
	if d.Plan != "" {
		what = "plan " + safetext.OneLine(d.Plan) + ", " + countNoun(len(d.Steps), "step")
	}
	if d.Approved {
		return "approved " + what
	}
	return "refused " + what
}

func printRecord(w io.Writer, p textPainter, r ledger.Record) error {
	// Code chooses methods and URLs, and OneLine keeps their escape sequences from the terminal.
	var text string
	switch {
	case r.Exchange != nil:
		text = exchangeLine(p, *r.Exchange)
	case r.Sending != nil:
		text = "sending " + safetext.OneLine(r.Sending.Method) + " " + safetext.OneLine(r.Sending.URL)
	case r.Run != nil:
		text = fmt.Sprintf("run     %s, exit code %d, %s; code %.12s, %d bytes", safetext.OneLine(r.Run.Outcome),
			r.Run.ExitCode,
			countNoun(r.Run.Count.Exchanges, "exchange"), safetext.OneLine(r.Run.CodeSHA256), r.Run.CodeBytes)
	case r.Decision != nil:
		text = decisionLine(*r.Decision)
	case r.Alarm != nil:
		text = p(terminal.Red, "alarm   ") + safetext.OneLine(strings.TrimSpace(r.Alarm.Method+" "+r.Alarm.Host)) + ": " +
			safetext.OneLine(r.Alarm.DescribeSecret()+" in the "+r.Alarm.In)
	case r.Login != nil && r.Login.Out:
		text = "logout  " + safetext.OneLine(r.Login.Name)
	case r.Login != nil:
		text = "login   " + safetext.OneLine(r.Login.Name)
	case r.Start != nil:
		text = "start   " + safetext.OneLine(r.Start.Version)
		if r.Start.SetAside != "" {
			text += p(terminal.Red, "; the ledger before did not verify and is in "+safetext.OneLine(r.Start.SetAside))
		}
	case r.Gap != nil:
		text = p(terminal.Red, fmt.Sprintf("gap     %d records before this one could not be written", r.Gap.Lost))
	}
	at := p(terminal.Dim, fmt.Sprintf("%6d %s", r.N, r.At.Local().Format("2006-01-02 15:04:05")))
	_, err := fmt.Fprintf(w, "%s %s %s\n", at, safetext.OneLine(cmp.Or(r.RunID(), "-")), text)
	return err
}
