package cli

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

func alarmsCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "alarms", Short: "list requests that tried to send a credential or a canary",
	}
	t, asJSON := targetFlags(c.Flags()), jsonFlag(c.Flags())
	watch := c.Flags().Bool("watch", false, "print new alarms until Ctrl-C")
	notify := c.Flags().String("notify", "", "`PROGRAM` to start for each alarm")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *notify != "" && !*watch {
			return usageError("alarms: --notify needs --watch")
		}
		op, err := t.connectOperator(c.Context(), e)
		if err != nil {
			return err
		}
		list, err := op.Alarms(c.Context())
		switch {
		case err != nil:
			return err
		case *watch:
			return watchAlarms(c.Context(), e, op, list, *notify)
		}
		return printList(e, *asJSON, list, "No alarm.", func(a operatorapi.Alarm) { printAlarm(e.Stdout, a) })
	}
	return c
}

func unfreezeCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "unfreeze [SESSION]", Short: "let a frozen session run code again",
		Args: cobra.MaximumNArgs(1),
	}
	t := targetFlags(c.Flags())
	c.RunE = useConnection(e, t.connectOperator, func(ctx context.Context, op operatorapi.Client, args []string) error {
		session := strings.Join(args, "")
		if session == "" {
			names, err := op.FrozenSessions(ctx)
			if err != nil {
				return err
			}
			switch len(names) {
			case 0:
				return operatorapi.ErrNotFrozen
			case 1:
				session = names[0]
			default:
				return usageError("unfreeze: several sessions are frozen; name one of %s", strings.Join(names, ", "))
			}
		}
		if err := op.Unfreeze(ctx, session); err != nil {
			return err
		}
		fmt.Fprintf(e.Stdout, "Session %s may run code again.\n", safetext.OneLine(session))
		return nil
	})
	return c
}

// printAlarm prints a line for an alarm, and a second line while its session is frozen.
func printAlarm(w io.Writer, a operatorapi.Alarm) {
	title, text := alarmTexts(a)
	fmt.Fprintf(w, "%s  %s: %s\n", a.At.Local().Format("2006-01-02 15:04:05"), title, text)
	if a.Frozen {
		fmt.Fprintf(w, "    session %s (%s) is frozen: codeforge unfreeze %s\n",
			safetext.OneLine(a.Session), safetext.OneLine(a.Client), safetext.OneLine(a.Session))
	}
}

// alarmTexts returns the title and the text of an alarm. The host comes from code and the client's name from the
// client.
func alarmTexts(a operatorapi.Alarm) (title, text string) {
	what := strings.TrimSpace(a.Method + " " + a.Host)
	// safetext.OneLine removes control characters: code must not be able to write to the terminal.
	return "Code was about to send " + safetext.OneLine(a.DescribeSecret()),
		safetext.OneLine(fmt.Sprintf("%s, in the %s, run %s", what, a.In, a.Run))
}

func watchAlarms(ctx context.Context, e *Env, op operatorapi.Client, known []operatorapi.Alarm, notify string) error {
	last := int64(0)
	for _, a := range known {
		last = max(last, a.Number)
	}
	for {
		if !timing.WaitFor(ctx, time.Second) {
			return nil
		}
		list, err := op.Alarms(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // Ctrl-C
			}
			return err
		}
		// The list has the latest first; a watcher reads in the order of time.
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
