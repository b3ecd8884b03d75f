package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/journal"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/statedir"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/visible"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

func logsCommand() command {
	return command{
		name: "logs", usage: "logs [-f] [--run ID]", summary: "show what went through the proxy, one line per exchange",
		details: `
The most recent exchanges are kept in log/exchanges.ndjson in the state directory; the daemons log to log/codeforge.log.
In Docker mode, docker compose exec mcp-server codeforge logs shows new exchanges until Ctrl-C.

Exit codes: 0 shown; 1 there is no log to show.`,
		setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			var o logsOptions
			fs.BoolVar(&o.follow, "f", false, "follow: show new exchanges until Ctrl-C")
			fs.StringVar(&o.run, "run", "", "`ID` of a run, or a prefix of it: show only its exchanges")
			fs.StringVar(&o.state, "state", statedir.Default, stateUsage)
			fs.StringVar(&o.control, "control", "", "`SOCKET` of the proxy's control API, instead of the state directory")
			fs.BoolVar(&o.json, "json", false, "print JSON, one event per line")
			return func(ctx context.Context, e *Env, args []string) error {
				if len(args) > 0 {
					return usageError("logs takes no argument, got %q", args[0])
				}
				return o.show(ctx, e)
			}
		},
	}
}

// containerControl is the proxy's control socket in mcp-server's container.
const containerControl = "/run/codeforge/control/proxy.sock"

type logsOptions struct {
	follow, json        bool
	run, state, control string
}

func (o logsOptions) show(ctx context.Context, e *Env) error {
	p := newPainter(e, e.Stdout)
	print := func(ev controlapi.Event) { o.print(e.Stdout, p, ev) }
	dir, err := statedir.Find(o.state)
	if err != nil {
		return err
	}
	if _, err := os.Stat(containerControl); err == nil && o.control == "" && !dir.Exists() {
		o.control = containerControl
	}
	if o.control != "" {
		c := controlapi.NewClient(o.control)
		defer c.Close()
		events, err := c.Subscribe(ctx)
		if err == nil {
			err = events.Each(print)
		}
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if !dir.Exists() {
		return fmt.Errorf("there is no state directory %s: codeforge up creates it; "+
			"in Docker mode: docker compose exec mcp-server codeforge logs", dir.Path())
	}
	if err := journal.Read(dir.Path(), print); err != nil {
		return err
	}
	if o.follow {
		return journal.Follow(ctx, dir.Path(), print)
	}
	return nil
}

func (o logsOptions) print(w io.Writer, p painter, ev controlapi.Event) {
	x := ev.Exchange
	if x == nil || !strings.HasPrefix(x.Run, o.run) {
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
			state, asJSON := stateFlag(fs), jsonFlag(fs)
			return func(_ context.Context, e *Env, args []string) error {
				if len(args) > 1 {
					return usageError("receipt takes one run, got %d", len(args))
				}
				dir, err := statedir.Find(*state)
				if err != nil {
					return err
				}
				run := strings.Join(args, "")
				r, ok, err := journal.Receipt(dir.Path(), run)
				switch {
				case err != nil:
					return err
				case !ok && run == "":
					return errors.New("no run is recorded in " + dir.Path() + " yet")
				case !ok:
					return fmt.Errorf("no run %q is recorded in %s; codeforge logs shows the recorded ones", run, dir.Path())
				case *asJSON:
					return printJSON(e.Stdout, r)
				}
				printReceipt(newPainter(e, e.Stdout), e.Stdout, r)
				return nil
			}
		},
	}
}
