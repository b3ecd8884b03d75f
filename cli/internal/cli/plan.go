package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

func plansCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "plans", Short: "list the plans of dry runs",
	}
	t, asJSON := targetFlags(c.Flags()), jsonFlag(c.Flags())
	c.RunE = useConnection(e, t.openApprovals, func(ctx context.Context, client approvalapi.Client, _ []string) error {
		list, err := client.ListPlans(ctx)
		if err != nil {
			return err
		}
		return printList(e, *asJSON, list, "There is no plan.", func(p approvalapi.Plan) { printPicture(e, p) })
	})
	return c
}

func planCommand(e *Env) *cobra.Command {
	c := groupCommand("plan", "show a plan of a dry run, and approve or refuse it")
	t, asJSON := targetFlags(c.PersistentFlags()), jsonFlag(c.PersistentFlags())
	steps := new(string)
	verb := func(name, short string) *cobra.Command {
		return &cobra.Command{
			Use: name + " ID", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				chosen, err := parseSteps(*steps)
				if err != nil {
					return err
				}
				return useConnection(e, t.openApprovals, func(ctx context.Context, client approvalapi.Client, ids []string) error {
					return showOrDecidePlan(ctx, e, client, name, ids[0], chosen, *asJSON)
				})(c, args)
			},
		}
	}
	approve := verb("approve", "send all or some steps in order, and show the answers")
	approve.Flags().StringVar(steps, "steps", "", "`STEPS` to send, such as 1-3,5 (default: all)")
	c.AddCommand(verb("show", "show each request with its headers, its body and what it changes"),
		approve,
		verb("refuse", "refuse the plan, so that no step is sent"))
	return c
}

func showOrDecidePlan(
	ctx context.Context, e *Env, c approvalapi.Client, verb, id string, steps []int, asJSON bool,
) error {
	p, err := c.GetPlan(ctx, id)
	if err != nil {
		return fmt.Errorf("%s: %w", safetext.OneLine(id), err)
	}
	if verb != "show" {
		// Digest: the proxy rejects the decision if the plan is not the one that was just read.
		in := approvalapi.Answer{Approve: verb == "approve", Digest: p.Digest, Steps: steps}
		if _, err := c.DecidePlan(ctx, id, in); err != nil {
			return fmt.Errorf("%s: %w", safetext.OneLine(id), err)
		}
		if p, err = c.WaitForPlan(ctx, id); err != nil {
			return err
		}
		if p.State == approvalapi.StateRunning {
			return fmt.Errorf("the plan is still being sent: codeforge plan show %s", safetext.OneLine(id))
		}
	}
	// A refused plan is a success; a plan that stopped midway is not.
	failed := verb == "approve" && p.State != approvalapi.StateDone
	switch {
	case asJSON:
		err = printJSON(e.Stdout, p)
	case verb == "show":
		printPlan(e, p)
	case verb == "refuse":
		fmt.Fprintln(e.Stdout, "Refused: no step was sent.")
	default:
		printSent(e, p)
	}
	if err == nil && failed {
		return silentError(ExitFailed)
	}
	return err
}

// maxStep bounds the numbers of --steps.
const maxStep = 10_000

// parseSteps parses a list such as 1-3,5. For "" it returns nil, which means all steps.
func parseSteps(text string) ([]int, error) {
	if text == "" {
		return nil, nil
	}
	var out []int
	for part := range strings.SplitSeq(text, ",") {
		from, to, is := strings.Cut(strings.TrimSpace(part), "-")
		if !is {
			to = from
		}
		first, err := strconv.Atoi(from)
		last, bad := strconv.Atoi(to)
		if err != nil || bad != nil || first < 1 || last < first || last > maxStep {
			return nil, usageError("--steps %q: want numbers such as 1-3,5", text)
		}
		for n := first; n <= last; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}

// printPicture prints a plan in few lines, with its state.
func printPicture(e *Env, p approvalapi.Plan) {
	paint := newPainter(e, e.Stdout)
	for i, line := range p.Picture {
		line = safetext.OneLine(line)
		if i == 0 {
			line = paint(terminal.Yellow, line)
			if p.State != approvalapi.StateOpen {
				line += " · " + string(p.State)
			}
		}
		fmt.Fprintln(e.Stdout, line)
	}
}

// printPlan prints a whole plan. All text of the code and of upstreams is escaped for the terminal.
func printPlan(e *Env, p approvalapi.Plan) {
	printPicture(e, p)
	width, _ := e.Stdout.Width()
	paint := newPainter(e, e.Stdout)
	for _, s := range p.Steps {
		fmt.Fprintln(e.Stdout)
		fmt.Fprintln(e.Stdout, paint(terminal.Yellow, fmt.Sprintf("Step %d", s.N))+apisOf(s))
		printRequest(e.Stdout, fmt.Sprintf("step %d", s.N), s.Title(), s.Headers, s.Body)
		if s.Rule != "" {
			fmt.Fprintf(e.Stdout, "    (a rule asks you about it: %s)\n", safetext.OneLine(s.Rule))
		}
		for _, c := range s.Changes {
			change := c.Field + ": " + cmp.Or(c.Before, "(none)") + " -> " + cmp.Or(c.After, "(none)")
			fmt.Fprint(e.Stdout, formatLines("    changes ", change, width))
		}
		if s.Answer != nil {
			printReply(e, s, width)
		}
	}
}

func apisOf(s approvalapi.Step) string {
	if len(s.APIs) == 0 {
		return ""
	}
	return ", " + safetext.OneLine(strings.Join(s.APIs, ", "))
}

// printSent prints the result of each step that was sent.
func printSent(e *Env, p approvalapi.Plan) {
	width, _ := e.Stdout.Width()
	sent := 0
	for _, s := range p.Steps {
		if s.Answer != nil {
			printReply(e, s, width)
		}
		if s.Answer.IsOK() {
			sent++
		}
	}
	if p.State == approvalapi.StateDone {
		fmt.Fprintf(e.Stdout, "Sent: %s.\n", countNoun(sent, "step"))
	} else {
		fmt.Fprintf(e.Stdout, "Stopped: %s succeeded. The steps after the last one above "+
			"were not sent.\n", countNoun(sent, "step"))
	}
	if p.Audit != "" {
		fmt.Fprintf(e.Stdout, "audit %s\n", safetext.OneLine(p.Audit))
	}
}

func printReply(e *Env, s approvalapi.Step, width int) {
	paint, a := newPainter(e, e.Stdout), s.Answer
	color, text := terminal.Green, strconv.Itoa(a.Status)
	if !a.IsOK() {
		color = terminal.Red
	}
	if a.Status == 0 {
		text = "not sent"
	}
	if a.Code != "" {
		text += ", " + a.Code
	}
	fmt.Fprintf(e.Stdout, "%-4d%s\n", s.N, paint(color, safetext.OneLine(text)))
	if a.Why != "" {
		fmt.Fprint(e.Stdout, formatLines("    ", a.Why, width))
	}
	for line := range strings.Lines(a.Body) {
		fmt.Fprint(e.Stdout, formatLines("    | ", strings.TrimRight(line, "\n"), width))
	}
	if a.Bytes > int64(len(a.Body)) && a.Body != "" {
		fmt.Fprintf(e.Stdout, "    (%d of %d bytes)\n", len(a.Body), a.Bytes)
	}
}
