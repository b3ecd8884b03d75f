package cli

import (
	"context"
	"flag"

	"github.com/codeforge-mcp/codeforge/cli/internal/server"
)

func stdioCommand() command {
	return command{
		name: "stdio", usage: "stdio", summary: "speak MCP on standard input and output, for clients that start a program",
		details: "It connects to the CodeForge of the state directory, or at the URL; it does not start one.\n\n" +
			"Exit codes: 0 the client or the server closed the connection; 1 there is no server.",
		setup: func(fs *flag.FlagSet) action {
			t := targetFlags(fs)
			return func(ctx context.Context, e *Env, args []string) error {
				c, err := t.config(e)
				if err != nil {
					return err
				}
				return server.Stdio(ctx, c, e.Stdin, e.Stdout)
			}
		},
	}
}
