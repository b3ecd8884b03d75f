package cli

import (
	"context"
	"flag"
	"fmt"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/server"
)

func consoleCommand() command {
	return command{
		name: "console", usage: "console",
		summary: "open the web console in a browser",
		details: `
Prints an address that works once, within a minute, and opens it if this machine has a screen. Whoever opens it sees
what runs, and can stop it, for 12 hours or until it is ended in the console.

With Docker: docker compose exec mcp-server codeforge console

Exit codes: 0 printed; 1 CodeForge does not run.`,
		setup: func(fs *flag.FlagSet) action {
			t, asJSON := targetFlags(fs), jsonFlag(fs)
			quiet := fs.Bool("print", false, "only print the address")
			return func(ctx context.Context, e *Env, args []string) error {
				conf, err := t.config(e)
				if err != nil {
					return err
				}
				op, place, ok, err := server.Operator(ctx, conf)
				if err != nil {
					return err
				}
				if !ok {
					return fmt.Errorf("%s gives no way in: run this where CodeForge runs, or sign in with MCP_AUTH_TOKEN", place.URL)
				}
				login, err := op.Console(ctx)
				if err != nil {
					return err
				}
				if *asJSON {
					return printJSON(e.Stdout, map[string]string{"address": login.Address()})
				}
				fmt.Fprintln(e.Stdout, login.Address())
				if !*quiet && e.Stdout.IsTerminal() && openBrowser(ctx, e, login.Address()) {
					fmt.Fprintln(e.Stderr, "It opens in your browser. It works once, within a minute.")
				}
				return nil
			}
		},
	}
}
