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

	"github.com/codeforge-mcp/codeforge/cli/internal/server"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/visible"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
)

func auditCommand(e *Env) *cobra.Command {
	c := groupCommand("audit", "verify, read or export the ledger of what left the machine", `
A program that can write the ledger's folder can replace the whole ledger. A
checkpoint from elsewhere detects that. These have one:

- each result of execute_code, in its _meta and so in the client's transcripts
- each line "run ended" of the log
- the file of AUDIT_ANCHOR

verify always compares with the checkpoints of the receipts. --checkpoint and
--anchor name others.

Exit codes: 0 the ledger is whole, or done; 1 it is not whole, or is missing.`,
		"codeforge audit verify", "codeforge audit show --since 1h")
	o := auditOptions{target: targetFlags(c.PersistentFlags())}
	verb := func(name, short, example string, run func(context.Context, *Env, ledger.Source) error) *cobra.Command {
		return &cobra.Command{
			Use: name, Short: short, Example: example,
			RunE: func(c *cobra.Command, _ []string) error {
				src, err := o.source(c.Context(), e)
				if err != nil {
					return err
				}
				return run(c.Context(), e, src)
			},
		}
	}
	verify := verb("verify", "find records that were changed, removed or added", example("codeforge audit verify",
		"codeforge audit verify \\\n      --checkpoint '18231 mX3AvQ2mJd7JqZ3l9sE1nY0pTfK5uR8wBhCqXoGzLkM='"), o.verify)
	verify.Flags().StringArrayVar(&o.checkpoints, "checkpoint", nil, "a `LINE` that contains a checkpoint; repeatable")
	verify.Flags().StringVar(&o.anchor, "anchor", "", "a `FILE` with a checkpoint a line")
	verify.Flags().StringVar(&o.key, "key", "", "the `LINE` of key.pub, if you keep a copy elsewhere")
	jsonVar(e, verify.Flags(), &o.json)
	show := verb("show", "print the records",
		example("codeforge audit show --run rmzxw6", "codeforge audit show --since 2026-11-22"), o.show)
	export := verb("export", "write the records as lines of JSON or traces of OpenTelemetry",
		example("codeforge audit export >ledger.ndjson", "codeforge audit export --otlp --since 24h"), o.export)
	export.Flags().BoolVar(&o.otlp, "otlp", false, "traces in OTLP's JSON, one a line")
	for _, c := range []*cobra.Command{show, export} {
		c.Flags().StringVar(&o.since, "since", "", "only records since a `TIME`: 10m ago, 2026-11-22, or "+
			"2026-11-22T09:30:00Z")
		c.Flags().StringVar(&o.run, "run", "", "the `ID` of a run, or a prefix of it")
	}
	c.AddCommand(verify, show, export)
	return c
}

// auditOptions are the flags of audit.
type auditOptions struct {
	target                  target
	checkpoints             []string
	anchor, key, since, run string
	otlp, json              bool
}

// query returns the record filter of --since and --run.
func (o *auditOptions) query() (ledger.Query, error) {
	since, err := parseSince(o.since, time.Now())
	return ledger.Query{Since: since, Run: o.run}, err
}

func (o *auditOptions) show(_ context.Context, e *Env, src ledger.Source) error {
	q, err := o.query()
	if err != nil {
		return err
	}
	p := newPainter(e, e.Stdout)
	return ledger.Each(src, q, func(r ledger.Record) error { return printRecord(e.Stdout, p, r) })
}

func (o *auditOptions) export(_ context.Context, e *Env, src ledger.Source) error {
	q, err := o.query()
	if err != nil {
		return err
	}
	w := bufio.NewWriter(e.Stdout)
	if o.otlp {
		err = ledger.ExportOTLP(src, q, w)
	} else {
		err = ledger.Each(src, q, func(r ledger.Record) error { return printJSONLine(w, r) })
	}
	return errors.Join(err, w.Flush())
}

// source returns the ledger: the running proxy's, or that of a state directory without a running CodeForge.
func (o *auditOptions) source(ctx context.Context, e *Env) (ledger.Source, error) {
	conf, err := o.target.config(e)
	if err != nil {
		return nil, err
	}
	// Without a running proxy the ledger is read from its files.
	if _, running := conf.State.Running(); running != nil && conf.URL == "" && conf.State.Exists() {
		if names, err := ledger.Dir(conf.State.Join("audit")).Days(); err == nil && len(names) > 0 {
			return ledger.Dir(conf.State.Join("audit")), nil
		}
	}
	c, _, err := server.Credentials(ctx, conf)
	return ledger.Remote{HTTP: c.HTTP}, err
}

// verify verifies the ledger, and compares it with all available checkpoints from elsewhere.
func (o *auditOptions) verify(ctx context.Context, e *Env, src ledger.Source) error {
	known, err := o.known(ctx, e)
	if err != nil {
		return err
	}
	r, err := ledger.Verify(src, o.key, known)
	if err != nil {
		return err
	}
	return shown(e, o.json, r, len(r.Findings) == 0, func() { printReport(e, r) })
}

// known returns the checkpoints from elsewhere.
func (o *auditOptions) known(ctx context.Context, e *Env) ([]ledger.Known, error) {
	var known []ledger.Known
	for _, line := range o.checkpoints {
		h, err := ledger.ParseHead(line)
		if err != nil {
			return nil, usageError("--checkpoint %q: %w", line, err)
		}
		known = append(known, ledger.Known{Head: h, Where: "the checkpoint that was given"})
	}
	if o.anchor != "" {
		text, err := os.ReadFile(o.anchor)
		if err != nil {
			return nil, err
		}
		found := 0
		for line := range bytes.Lines(text) {
			if h, err := ledger.ParseHead(string(line)); err == nil {
				where := fmt.Sprintf("%q of the anchor", visible.Line(strings.TrimSpace(string(line))))
				known = append(known, ledger.Known{Head: h, Where: where})
				found++
			}
		}
		if found == 0 {
			return nil, fmt.Errorf("%s has no checkpoint", o.anchor)
		}
	}
	return append(known, o.ofReceipts(ctx, e)...), nil
}

// maxReceipts limits the number of receipts that verify compares, from the latest.
const maxReceipts = 100_000

// ofReceipts returns the checkpoints in mcp-server's receipts. mcp-server cannot write the ledger, so a forged ledger
// does not match them. Receipts are optional: errors end the list.
func (o *auditOptions) ofReceipts(ctx context.Context, e *Env) []ledger.Known {
	var known []ledger.Known
	rec, err := openRecord(ctx, e, o.target)
	if err != nil {
		return nil
	}
	defer rec.close()
	for cursor := ""; len(known) < maxReceipts; {
		page, err := rec.Runs(ctx, operatorapi.Filter{Limit: 1000}, cursor) //nolint:mnd // the most there can be
		if err != nil {
			return known
		}
		for _, run := range page.Runs {
			if h, err := ledger.ParseHead(run.Audit); err == nil {
				known = append(known, ledger.Known{Head: h, Where: "the receipt of run " + visible.Line(run.ID)})
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
		fmt.Fprintln(e.Stdout, p(terminal.Red, "broken: ")+visible.Line(f))
	}
	if len(r.Findings) > 0 {
		return
	}
	fmt.Fprintf(e.Stdout, "%s%d records, %s, %s\n", p(terminal.Green, "ok: "), r.Records, count(r.Days, "day"),
		count(r.Checkpoints, "checkpoint"))
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
	fmt.Fprintf(e.Stdout, "    it fits %s from elsewhere\n", count(r.Compared, "checkpoint"))
}

// decisionLine describes a person's decision.
func decisionLine(d ledger.Decision) string {
	what := visible.Line(d.Method) + " " + visible.Line(d.URL)
	if d.Plan != "" {
		what = "plan " + visible.Line(d.Plan) + ", " + count(len(d.Steps), "step")
	}
	if d.Approved {
		return "approved " + what
	}
	return "refused " + what
}

// printRecord prints one line.
func printRecord(w io.Writer, p painter, r ledger.Record) error {
	var text string
	switch {
	case r.Exchange != nil:
		text = exchangeLine(p, *r.Exchange)
	case r.Sending != nil:
		text = "sending " + visible.Line(r.Sending.Method) + " " + visible.Line(r.Sending.URL)
	case r.Run != nil:
		text = fmt.Sprintf("run     %s, exit code %d, %s; code %.12s, %d bytes", visible.Line(r.Run.Outcome), r.Run.ExitCode,
			count(r.Run.Count.Exchanges, "exchange"), visible.Line(r.Run.CodeSHA256), r.Run.CodeBytes)
	case r.Decision != nil:
		text = decisionLine(*r.Decision)
	case r.Alarm != nil:
		text = p(terminal.Red, "alarm   ") + visible.Line(strings.TrimSpace(r.Alarm.Method+" "+r.Alarm.Host)) + ": " +
			visible.Line(r.Alarm.What()+" in the "+r.Alarm.In)
	case r.Login != nil && r.Login.Out:
		text = "logout  " + visible.Line(r.Login.Name)
	case r.Login != nil:
		text = "login   " + visible.Line(r.Login.Name)
	case r.Start != nil:
		text = "start   " + visible.Line(r.Start.Version)
		if r.Start.SetAside != "" {
			text += p(terminal.Red, "; the ledger before did not verify and is in "+visible.Line(r.Start.SetAside))
		}
	case r.Gap != nil:
		text = p(terminal.Red, fmt.Sprintf("gap     %d records before this one could not be written", r.Gap.Lost))
	}
	at := p(terminal.Dim, fmt.Sprintf("%6d %s", r.N, r.At.Local().Format("2006-01-02 15:04:05")))
	_, err := fmt.Fprintf(w, "%s %s %s\n", at, visible.Line(cmp.Or(r.OfRun(), "-")), text)
	return err
}
