package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/visible"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

func alarmsCommand() command {
	return command{
		name: "alarms", usage: "alarms",
		summary: "list requests that tried to send a credential or a canary",
		details: `
These are requests with the value of a credential or with a canary. Only code that searches for credentials finds a
canary. No such request has left whole: CodeForge ended its run and froze its session. --watch prints new requests, and
with --notify starts a program for each, with two arguments: a title and a text. For a notice on a desktop:

  codeforge alarms --watch --notify notify-send

Exit codes: 0 listed; 1 CodeForge does not run.`,
		setup: func(fs *flag.FlagSet) action {
			t, asJSON := targetFlags(fs), jsonFlag(fs)
			watch := fs.Bool("watch", false, "keep printing alarms that come in, until Ctrl-C")
			notify := fs.String("notify", "", "`PROGRAM` to start for each of them")
			return func(ctx context.Context, e *Env, args []string) error {
				if *notify != "" && !*watch {
					return usageError("alarms: --notify needs --watch")
				}
				op, err := t.operator(ctx, e)
				if err != nil {
					return err
				}
				list, err := op.Alarms(ctx)
				switch {
				case err != nil:
					return err
				case *watch:
					return watchAlarms(ctx, e, op, list, *notify)
				case *asJSON:
					return printJSON(e.Stdout, list)
				case len(list) == 0:
					fmt.Fprintln(e.Stdout, "No alarm.")
				}
				for _, a := range list {
					printAlarm(e.Stdout, a)
				}
				return nil
			}
		},
	}
}

func unfreezeCommand() command {
	return command{
		name: "unfreeze", usage: "unfreeze [SESSION]",
		summary: "let a session run code again that an alarm has frozen",
		details: `
codeforge alarms lists them. Without SESSION: the one that is frozen, if it is only one.

Exit codes: 0 done; 1 CodeForge does not run, or no such session is frozen.`,
		setup: func(fs *flag.FlagSet) action {
			t := targetFlags(fs)
			return func(ctx context.Context, e *Env, args []string) error {
				if len(args) > 1 {
					return usageError("unfreeze takes one session, got %q too", args[1])
				}
				op, err := t.operator(ctx, e)
				if err != nil {
					return err
				}
				session := strings.Join(args, "")
				if session == "" {
					list, err := op.Alarms(ctx)
					if err != nil {
						return err
					}
					switch names := frozenSessions(list); len(names) {
					case 0:
						return operatorapi.ErrNotFrozen
					case 1:
						session = names[0]
					default:
						return usageError("unfreeze: which? %s", strings.Join(names, ", "))
					}
				}
				if err := op.Unfreeze(ctx, session); err != nil {
					return err
				}
				fmt.Fprintf(e.Stdout, "Session %s may run code again.\n", visible.Line(session))
				return nil
			}
		},
	}
}

// frozenSessions are the names of those that are frozen, each once.
func frozenSessions(list []operatorapi.Alarm) []string {
	var names []string
	for _, a := range list {
		if a.Frozen && !slices.Contains(names, a.Session) {
			names = append(names, a.Session)
		}
	}
	return names
}

// printAlarm prints a line for an alarm, and a second one while its session is frozen.
func printAlarm(w io.Writer, a operatorapi.Alarm) {
	title, text := alarmTexts(a)
	fmt.Fprintf(w, "%s  %s: %s\n", a.At.Local().Format("2006-01-02 15:04:05"), title, text)
	if a.Frozen {
		fmt.Fprintf(w, "    session %s (%s) is frozen: codeforge unfreeze %s\n",
			visible.Line(a.Session), visible.Line(a.Client), visible.Line(a.Session))
	}
}

// alarmTexts are the title and the text of an alarm. Host and client are texts of others.
func alarmTexts(a operatorapi.Alarm) (title, text string) {
	what := strings.TrimSpace(a.Method + " " + a.Host)
	return "Code was about to send " + visible.Line(a.What()),
		visible.Line(fmt.Sprintf("%s, in the %s, run %s", what, a.In, a.Run))
}

// watchAlarms prints each alarm that comes after those of known.
func watchAlarms(
	ctx context.Context, e *Env, op operatorapi.Client, known []operatorapi.Alarm, notify string,
) error {
	last := int64(0)
	for _, a := range known {
		last = max(last, a.Number)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
		list, err := op.Alarms(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // Ctrl-C
			}
			return err
		}
		slices.Reverse(list)
		for _, a := range list {
			if a.Number <= last {
				continue
			}
			last = a.Number
			printAlarm(e.Stdout, a)
			if notify == "" {
				continue
			}
			title, text := alarmTexts(a)
			if err := exec.CommandContext(ctx, notify, title, text).Run(); err != nil { //nolint:gosec // the user's own
				fmt.Fprintf(e.Stderr, "codeforge: --notify %s: %v\n", notify, err)
			}
		}
	}
}
