package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/server"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/statedir"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/journal"
	"github.com/codeforge-mcp/codeforge/internal/visible"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

func logsCommand() command {
	return command{
		name: "logs", usage: "logs [--follow] [-n N] [--run ID]",
		summary: "show what went through the proxy, one line per exchange",
		details: `
The most recent exchanges are kept: embedded in log/exchanges.ndjson of the state directory, where log/codeforge.log has
what the daemons log; in Docker in the volume journal, and docker compose logs shows what the daemons log.

Exit codes: 0 shown; 1 there is no log to show, or no exchange of that run.`,
		setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			o := logsOptions{target: targetFlags(fs)}
			var since string
			fs.BoolVar(&o.query.Follow, "follow", false, "show new exchanges until Ctrl-C")
			fs.BoolVar(&o.query.Follow, "f", false, "short for --follow")
			fs.IntVar(&o.query.Last, "n", 0, "only the last `N` recorded exchanges (default: all)")
			fs.StringVar(&since, "since", "", "only exchanges since a `TIME`: 10m ago, 2026-11-22, or 2026-11-22T09:30:00Z")
			fs.StringVar(&o.query.Run, "run", "", "`ID` of a run, or a prefix of it: show only its exchanges")
			fs.BoolVar(&o.json, "json", false, "print JSON, one event per line")
			return func(ctx context.Context, e *Env, args []string) error {
				if len(args) > 0 {
					return usageError("logs takes no argument, got %q", args[0])
				}
				if o.query.Last < 0 {
					return usageError("-n %d: want a number from 1", o.query.Last)
				}
				var err error
				if o.query.Since, err = parseSince(since, time.Now()); err != nil {
					return err
				}
				return o.show(ctx, e)
			}
		},
	}
}

// parseSince reads --since: a duration back from now, a day, or a time.
func parseSince(text string, now time.Time) (time.Time, error) {
	text = strings.TrimSpace(strings.TrimSuffix(text, " ago"))
	if text == "" {
		return time.Time{}, nil
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
	return time.Time{}, usageError("--since %q: want a time back like 10m or 2h, a day like 2026-11-22, or "+
		"2026-11-22T09:30:00Z", text)
}

type logsOptions struct {
	target target
	query  journal.Query
	json   bool
}

func (o logsOptions) show(ctx context.Context, e *Env) error {
	p := newPainter(e, e.Stdout)
	rec, err := openRecord(ctx, e, o.target)
	if err != nil {
		return err
	}
	n, err := rec.exchanges(ctx, o.query, func(ev controlapi.Event) { o.print(e.Stdout, p, ev) })
	if ctx.Err() != nil {
		return nil
	}
	if err == nil && n == 0 && o.query.Run != "" && !o.query.Follow {
		_, err = rec.receipt(ctx, o.query.Run) // a run without exchanges is known too
	}
	return err
}

// record is where exchanges are recorded: files in a state directory, whether or not that CodeForge runs, or what
// mcp-server in Docker keeps.
type record struct {
	dir      statedir.Dir
	operator *operatorapi.Client
	name     string
}

// openRecord finds the record.
func openRecord(ctx context.Context, e *Env, t target) (record, error) {
	c, err := t.config(e)
	if err != nil {
		return record{}, err
	}
	files := record{dir: c.State, name: c.State.Path()}
	if t.given("state") && c.URL == "" {
		return files, nil
	}
	op, place, local, err := server.Operator(ctx, c)
	switch {
	case err != nil && (c.URL != "" || !c.State.Exists()):
		return record{}, err
	case err == nil && local && place.State == nil:
		return record{operator: &op, name: place.Name()}, nil
	case err == nil && c.URL != "":
		return record{}, fmt.Errorf("%s does not tell what went through the proxy; want docker://CONTAINER, or no URL for "+
			"the CodeForge of this folder", c.URL)
	}
	return files, nil
}

// folder is the folder of the files.
func (r record) folder() (string, error) {
	if !r.dir.Exists() {
		return "", fmt.Errorf("there is no state directory %s, and no stack of this folder runs in Docker: start CodeForge "+
			"with codeforge up or docker compose up -d, or go to its folder", r.dir.Path())
	}
	return r.dir.Join("log"), nil
}

func (r record) exchanges(ctx context.Context, q journal.Query, on func(controlapi.Event)) (int, error) {
	if r.operator != nil {
		return r.operator.Exchanges(ctx, q, on)
	}
	dir, err := r.folder()
	if err != nil {
		return 0, err
	}
	return journal.Show(ctx, dir, q, on)
}

// receipt is the receipt of a run, or of the last one.
func (r record) receipt(ctx context.Context, run string) (controlapi.Receipt, error) {
	if r.operator != nil {
		rec, err := r.operator.Receipt(ctx, run)
		if errors.Is(err, operatorapi.ErrNotFound) {
			err = r.unknown(run)
		}
		return rec, err
	}
	dir, err := r.folder()
	if err != nil {
		return controlapi.Receipt{}, err
	}
	rec, found, err := journal.Receipt(dir, run)
	if err == nil && !found {
		err = r.unknown(run)
	}
	return rec, err
}

// unknown is the error for a run of which nothing is recorded.
func (r record) unknown(run string) error {
	if run == "" {
		return errors.New("no run is recorded in " + r.name + " yet")
	}
	return fmt.Errorf("no run %q is recorded in %s; codeforge logs shows the recorded ones", run, r.name)
}

func (o logsOptions) print(w io.Writer, p painter, ev controlapi.Event) {
	x := ev.Exchange
	if x == nil {
		return
	}
	if o.json {
		_ = printJSONLine(w, ev)
		return
	}
	run := x.Run
	if run == "" {
		run = "-"
	}
	at := p(terminal.Dim, x.At.Local().Format("2006-01-02 15:04:05.000"))
	fmt.Fprintf(w, "%s %s %s\n", at, visible.Line(run), exchangeLine(p, *x))
}

func receiptCommand() command {
	return command{
		name: "receipt", usage: "receipt [RUN]", summary: "show what the proxy did for one run",
		details: "RUN is the id of a run, or a prefix of it (default: the last run).\n\n" +
			"Exit codes: 0 shown; 1 there is no record of that run.",
		setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			t, asJSON := targetFlags(fs), jsonFlag(fs)
			return func(ctx context.Context, e *Env, args []string) error {
				if len(args) > 1 {
					return usageError("receipt takes one run, got %d", len(args))
				}
				rec, err := openRecord(ctx, e, t)
				if err != nil {
					return err
				}
				r, err := rec.receipt(ctx, strings.Join(args, ""))
				switch {
				case err != nil:
					return err
				case *asJSON:
					return printJSON(e.Stdout, r)
				}
				printReceipt(newPainter(e, e.Stdout), e.Stdout, r)
				return nil
			}
		},
	}
}
