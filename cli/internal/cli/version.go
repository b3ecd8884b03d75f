package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/deno"
	"github.com/codeforge-mcp/codeforge/internal/version"
)

func versionCommand(e *Env) *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "print the version"}
	asJSON := jsonFlag(c.Flags())
	c.RunE = func(*cobra.Command, []string) error {
		return printValue(e, *asJSON, map[string]string{
			"version": version.Version, "deno": deno.Version(), "go": runtime.Version(),
			"os": runtime.GOOS, "arch": runtime.GOARCH,
		}, true, func() {
			fmt.Fprintf(e.Stdout, "codeforge %s (%s/%s, %s; for Deno %s)\n",
				version.Version, runtime.GOOS, runtime.GOARCH, runtime.Version(), deno.Version())
		})
	}
	return c
}
