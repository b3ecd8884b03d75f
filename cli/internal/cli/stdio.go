package cli

import (
	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
)

func stdioCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "stdio", Short: "speak MCP on standard input and output",
		Long: `
stdio is for clients that start a program. It connects to the CodeForge of the
state directory, or at the URL. It does not start CodeForge.

Exit codes: 0 the client or the server closed the connection; 1 there is no
server.`,
		Example: exampleText("codeforge stdio", "docker exec -i codeforge-mcp-server-1 codeforge stdio"),
	}
	t := targetFlags(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := t.newConfig(e)
		if err != nil {
			return err
		}
		return mcpclient.ServeStdio(cmd.Context(), c, e.Stdin, e.Stdout)
	}
	return c
}
