package cli

import (
	"context"
	"fmt"
	"html"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
)

func consoleCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "console", Short: "open the web console in a browser",
	}
	t, asJSON := targetFlags(c.Flags()), jsonFlag(c.Flags())
	quiet := c.Flags().Bool("print", false, "only print the address")
	c.RunE = func(c *cobra.Command, _ []string) error {
		conf, err := t.newConfig(e)
		if err != nil {
			return err
		}
		op, place, ok, err := mcpclient.ConnectOperator(c.Context(), conf)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%s cannot sign you in: run this where CodeForge runs, or sign in with MCP_AUTH_TOKEN", place.URL)
		}
		login, err := op.Console(c.Context())
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(e.Stdout, map[string]string{"address": login.Address()})
		}
		fmt.Fprintln(e.Stdout, login.Address())
		// A script reads the address from stdout and opens it itself.
		if !*quiet && e.Stdout.IsTerminal() && openPage(c.Context(), e, login.Address()) {
			fmt.Fprintln(e.Stderr, "It opens in your browser. It works once, within a minute.")
		}
		return nil
	}
	return c
}

// openPage opens an address in the user's browser. Every user of the machine can read a program's arguments, so the
// address must not be one. Instead openPage opens a file that redirects there and that only the user can read. It
// reports whether a browser was started.
func openPage(ctx context.Context, e *Env, address string) bool {
	dir, err := os.UserCacheDir()
	if err != nil {
		return false
	}
	path := filepath.Join(dir, "codeforge", "console.html")
	page := `<!doctype html><meta http-equiv="refresh" content="0; url=` + html.EscapeString(address) + `">`
	if os.MkdirAll(filepath.Dir(path), 0o700) != nil || atomicfile.Write(path, []byte(page), 0o600) != nil {
		return false
	}
	if !openBrowser(ctx, e, path) {
		_ = os.Remove(path) // the code in it works for a minute
		return false
	}
	return true
}
