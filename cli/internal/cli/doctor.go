package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/doctor"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/settings"
)

func doctorCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "doctor", Short: "check what CodeForge needs on this machine, and say how to fix it",
	}
	flags := c.Flags()
	state, apis, asJSON := stateFlag(flags), apisFlag(flags), jsonFlag(flags)
	offline := flags.Bool("offline", false, "skip what needs the network")
	attack := flags.Bool("attack", false, "attack the running CodeForge")
	bin := flags.String("bin", "", "`DIR` of the other binaries (default: the directory of codeforge)")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := findState(e, *state, flags.Changed("state"))
		if err != nil {
			return err
		}
		c := doctor.Config{State: dir, Dotenv: e.inHome(dotenvFile), Bin: *bin, Offline: *offline}
		w, err := readVariables(e)
		if err == nil {
			c.Settings, err = settings.Parse(w.getenv)
		}
		c.SettingsErr, c.Environ = err, e.Environ
		c.Project = w.getenv("COMPOSE_PROJECT_NAME")
		c.OwnAPIs = flags.Changed("apis")
		c.Deno, c.Port = w.getenv("DENO_PATH"), c.Settings.MCPPort
		c.Python = w.getenv("PYTHON_PATH")
		if c.Container = e.isInContainer(); !c.Container {
			c.Problems, c.Catalog = inspectConfig(e, *apis)
		}
		if c.Server, err = (serverTarget{flags: flags, state: state, url: new(string)}).newConfig(e); err != nil {
			c.Server = mcpclient.Config{State: dir, Fallback: "http://127.0.0.1:8080/mcp"}
		}
		if *attack {
			return printAttacks(cmd.Context(), e, c, *asJSON)
		}
		return printExamination(cmd.Context(), e, c, *asJSON)
	}
	return c
}

// printAttacks runs the attacks and prints their table.
func printAttacks(ctx context.Context, e *Env, c doctor.Config, asJSON bool) error {
	paint := newPainter(e, e.Stdout)
	all, open := []doctor.AttackOutcome{}, 0
	err := doctor.RunAttacks(ctx, c, func(o doctor.AttackOutcome) {
		all = append(all, o)
		colour, verdict := terminal.Green, "held"
		if !o.Held {
			open++
			colour, verdict = terminal.Red, "NOT HELD"
		}
		if !asJSON {
			fmt.Fprintf(e.Stdout, "%s %-46s expected %-26s seen %s\n",
				paint(colour, fmt.Sprintf("%-8s", verdict)), o.Name, o.Expected, safetext.OneLine(o.Seen))
		}
	})
	if err != nil {
		return err
	}
	return printValue(e, asJSON, map[string]any{"ok": open == 0, "attacks": all}, open == 0, func() {
		fmt.Fprintf(e.Stdout, "%d attacks, %d not held.\n", len(all), open)
	})
}

// printExamination runs the checks and prints their findings.
func printExamination(ctx context.Context, e *Env, c doctor.Config, asJSON bool) error {
	paint := newPainter(e, e.Stdout)
	colours := map[doctor.Status]terminal.Colour{
		doctor.OK: terminal.Green, doctor.Warn: terminal.Yellow, doctor.Fail: terminal.Red, doctor.Skip: terminal.Dim,
	}
	counts := map[doctor.Status]int{}
	all := []doctor.Finding{}
	doctor.RunChecks(ctx, c, func(f doctor.Finding) {
		counts[f.Status]++
		all = append(all, f)
		if asJSON {
			return
		}
		fmt.Fprintf(e.Stdout, "%s %-22s %s\n",
			paint(colours[f.Status], fmt.Sprintf("%-8s", f.Status)), safetext.OneLine(f.Check), safetext.OneLine(f.Text))
		if f.Fix != "" {
			fmt.Fprintf(e.Stdout, "%-31s -> %s\n", "", safetext.OneLine(f.Fix))
		}
	})
	ok := counts[doctor.Fail] == 0
	return printValue(e, asJSON, map[string]any{"ok": ok, "findings": all}, ok, func() {
		fmt.Fprintf(e.Stdout, "%d ok, %d warnings, %d failed, %d skipped.\n",
			counts[doctor.OK], counts[doctor.Warn], counts[doctor.Fail], counts[doctor.Skip])
	})
}
