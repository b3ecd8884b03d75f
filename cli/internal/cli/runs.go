package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

var runStates = []string{
	operatorapi.OK, operatorapi.Failed, operatorapi.Stopped, operatorapi.Frozen, operatorapi.Lost, operatorapi.Running,
	operatorapi.Waiting,
	"denied",
}

func runsCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "runs", Short: "list and search the stored runs",
	}
	o := &runsOptions{target: targetFlags(c.PersistentFlags())}
	c.PersistentFlags().BoolVar(&o.json, "json", false, "print JSON")
	flags := c.Flags()
	flags.StringVar(&o.since, "since", "", "only runs since a `TIME`: 10m ago, 2026-11-22, or 2026-11-22T09:30:00Z")
	flags.StringVar(&o.filter.API, "api", "", "only runs that sent something to the API of this `NAME`")
	flags.StringVar(&o.filter.State, "status", "", "only runs of this `STATUS`")
	flags.StringVar(&o.filter.Grep, "grep", "", "only runs with all these `WORDS`")
	flags.StringVar(&o.filter.Client, "client", "", "only runs of the client of this `NAME`")
	flags.StringVar(&o.filter.Tenant, "tenant", "", "only runs of the tenant of this `NAME`")
	flags.StringVar(&o.filter.Skill, "skill", "", "only runs that imported the skill of this `NAME`")
	flags.IntVarP(&o.last, "last", "n", 50, "the last `N` runs (see --all)")
	flags.BoolVar(&o.all, "all", false, "every run")
	// onRecord calls run with the history.
	onRecord := func(
		run func(context.Context, *Env, operatorapi.Client, []string) error,
	) func(*cobra.Command, []string) error {
		return useConnection(e, o.openRecord, func(ctx context.Context, rec operatorapi.Client, args []string) error {
			return run(ctx, e, rec, args)
		})
	}
	c.RunE = onRecord(o.listRuns)
	remove := &cobra.Command{
		Use: "rm RUN...", Short: "delete runs, once you confirm; with --all every run",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 != o.all {
				return errors.New("want runs, or --all")
			}
			return nil
		},
		RunE: onRecord(o.removeRuns),
	}
	remove.Flags().BoolVar(&o.all, "all", false, "every run")
	remove.Flags().BoolVar(&o.yes, "yes", false, "remove without confirmation")
	files := &cobra.Command{
		Use: "files RUN", Short: "list the files of a run; with --out save them",
		Args: cobra.ExactArgs(1), RunE: onRecord(o.printRunFiles),
	}
	files.Flags().StringVar(&o.out, "out", "", "save the files in the folder `DIR`")
	c.AddCommand(files, &cobra.Command{
		Use: "show RUN", Short: "show a run: its code, its output, and its exchanges",
		Args: cobra.ExactArgs(1), RunE: onRecord(o.showRuns),
	}, remove)
	return c
}

type runsOptions struct {
	target         serverTarget
	filter         operatorapi.RunFilter
	since, out     string
	last           int
	all, yes, json bool
}

// checkFlags validates the flags beyond their types.
func (o *runsOptions) checkFlags() (err error) {
	switch {
	case o.filter.State != "" && !slices.Contains(runStates, o.filter.State):
		return usageError("--status %q%s", o.filter.State, suggestName(o.filter.State, "", runStates))
	case o.last < 1:
		return usageError("-n %d: want a number from 1; --all lists every run", o.last)
	}
	if o.all {
		o.last = math.MaxInt
	}
	o.filter.Since, err = parseSince(o.since, time.Now())
	return err
}

// openRecord finds the history, if the flags are valid.
func (o *runsOptions) openRecord(ctx context.Context, e *Env) (operatorapi.Client, error) {
	if err := o.checkFlags(); err != nil {
		return operatorapi.Client{}, err
	}
	return o.target.connectOperator(ctx, e)
}

// listRuns prints runs, the latest last.
func (o *runsOptions) listRuns(ctx context.Context, e *Env, rec operatorapi.Client, _ []string) error {
	var runs []operatorapi.Run
	f := o.filter
	for cursor := ""; ; {
		f.Limit = min(1000, o.last-len(runs))
		page, err := rec.Runs(ctx, f, cursor)
		if err != nil {
			return err
		}
		runs = append(runs, page.Runs...)
		if cursor = page.Next; cursor == "" || len(runs) >= o.last {
			break
		}
	}
	p := newPainter(e, e.Stdout)
	// The latest run comes last, next to the prompt.
	for _, r := range slices.Backward(runs) {
		if o.json {
			if err := printJSONLine(e.Stdout, r); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintln(e.Stdout, runLine(p, r))
	}
	if len(runs) == 0 && !o.json {
		fmt.Fprintln(e.Stderr, "No stored run matches.")
	}
	return nil
}

// runLine describes one run: start, id, state, duration, requests, APIs, title and client.
func runLine(p textPainter, r operatorapi.Run) string {
	line := p(terminal.Dim, r.Began.Local().Format("2006-01-02 15:04:05")) + " " + safetext.OneLine(r.ID) + " " +
		p(stateColour(r), fmt.Sprintf("%-7s", r.State)) + fmt.Sprintf(" %7s", formatDuration(r.WallMS)) +
		"  " + countNoun(r.Count.Exchanges, "request")
	if r.Count.Denied > 0 {
		line += p(terminal.Red, fmt.Sprintf(", %d denied", r.Count.Denied))
	}
	for _, api := range r.APIs {
		line += " " + safetext.OneLine(api)
	}
	if r.Title != "" {
		line += "  " + safetext.OneLine(r.Title)
	}
	by := r.Client
	if r.Tenant != "" {
		by = r.Tenant + ": " + by
	}
	if by != "" {
		line += p(terminal.Dim, "  by "+safetext.OneLine(by))
	}
	return line
}

func stateColour(r operatorapi.Run) terminal.Colour {
	switch {
	case r.State == operatorapi.Failed || r.State == operatorapi.Frozen:
		return terminal.Red
	case r.State == operatorapi.OK && r.Count.Denied == 0:
		return terminal.Green
	}
	return terminal.Yellow
}

// formatDuration formats milliseconds for a person.
func formatDuration(ms int64) string {
	if ms < 1000 {
		return fmt.Sprintf("%d ms", ms)
	}
	return fmt.Sprintf("%.1f s", float64(ms)/1000)
}

// showRuns prints everything that is recorded of a run.
func (o *runsOptions) showRuns(ctx context.Context, e *Env, rec operatorapi.Client, ids []string) error {
	d, err := findRun(ctx, rec, ids[0])
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(e.Stdout, d)
	}
	p := newPainter(e, e.Stdout)
	w := e.Stdout
	fmt.Fprintln(w, runLine(p, d.Run))
	if d.State == operatorapi.Frozen {
		fmt.Fprintln(w, p(terminal.Red, "FROZEN: code of this session was about to send a credential or a canary. "+
			"codeforge alarms shows where to. If it is harmless: codeforge unfreeze "+safetext.OneLine(d.Session)))
	}
	fact := func(name, text string) {
		if text != "" {
			fmt.Fprintf(w, "  %-9s %s\n", name, safetext.OneLine(text))
		}
	}
	fact("client", strings.TrimSpace(d.Client+" "+d.ClientVersion))
	fact("tenant", d.Tenant)
	fact("protocol", d.Protocol)
	fact("language", string(d.Language))
	fact("reason", d.Reason)
	fact("code", fmt.Sprintf("%d bytes, SHA-256 %s", d.CodeBytes, d.CodeSHA))
	fact("skills", strings.Join(d.Skills, ", "))
	fact("narrowed", strings.Join(d.Narrowed, ", "))
	fact("waited", formatDuration(d.WaitedMS))
	if d.MaxRSS > 0 { // unknown if the run was cancelled
		fact("used", fmt.Sprintf("%s of a processor, %d MB", formatDuration(d.CPUMS), d.MaxRSS>>20))
	}
	fact("printed", fmt.Sprintf("%d bytes; the model was given %d", d.StdoutBytes+d.StderrBytes, d.Shown))
	fact("exit", d.Exit)
	if d.Kept {
		fmt.Fprintf(w, "%s\n", p(terminal.Dim, "code:"))
		printKept(w, d.Code.Head, d.Code.Omitted, d.Code.Tail)
		fmt.Fprintf(w, "%s\n", p(terminal.Dim, "output:"))
		printKept(w, joinOutput(d.Output.Head), d.Output.Omitted, joinOutput(d.Output.Tail))
	}
	printReceipt(p, w, receiptOf(d))
	return nil
}

// joinOutput joins a run's output. A line of stdout and a line of stderr that were printed at the same time stay whole.
func joinOutput(list []operatorapi.Print) string {
	var b strings.Builder
	begun := map[bool]string{} // the last line of each stream, if it has no line feed yet
	for _, p := range list {
		text := begun[p.Err] + p.Text
		at := strings.LastIndexByte(text, '\n') + 1
		b.WriteString(text[:at])
		begun[p.Err] = text[at:]
	}
	if begun[false] != "" && begun[true] != "" {
		begun[false] += "\n"
	}
	return b.String() + begun[false] + begun[true]
}

// printKept prints a text whose middle may be missing.
func printKept(w io.Writer, head string, omitted int64, tail string) {
	indent := func(text string) {
		fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(strings.TrimRight(safetext.EscapeOdd(text), "\n"), "\n", "\n  "))
	}
	indent(head)
	if omitted > 0 {
		indent(fmt.Sprintf("... %d bytes are not kept ...", omitted))
	}
	if omitted > 0 || tail != "" {
		indent(tail)
	}
}

func (o *runsOptions) removeRuns(ctx context.Context, e *Env, rec operatorapi.Client, ids []string) error {
	what := "every run"
	if !o.all {
		what = strings.Join(ids, ", ")
	}
	var filters []operatorapi.RunFilter
	for _, id := range ids { // check all ids before the first removal
		d, err := findRun(ctx, rec, id)
		if err != nil {
			return err
		}
		filters = append(filters, operatorapi.RunFilter{Run: d.ID})
	}
	if o.all {
		filters = []operatorapi.RunFilter{{}}
	}
	if !o.yes {
		if err := confirmRemoval(ctx, e, "Forget "+safetext.OneLine(what)+"?"); err != nil {
			return err
		}
	}
	n := 0
	for _, f := range filters {
		removed, err := rec.RemoveRuns(ctx, f)
		if err != nil {
			return err
		}
		n += removed
	}
	return printValue(e, o.json, map[string]int{"removed": n}, true, func() {
		fmt.Fprintf(e.Stdout, "Forgot %s.\n", countNoun(n, "run"))
	})
}
