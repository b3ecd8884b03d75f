package cli

import (
	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
)

func stdioCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "stdio", Short: "speak MCP on standard input and output",
	}
	t := targetFlags(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := t.newConfig(e)
		if err != nil {
			return err
		}
		return mcpclient.ServeStdio(cmd.Context(), c, e.Stdin, e.Stdout, e.Stderr)
	}
	return c
}
