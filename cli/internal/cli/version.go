package cli

import (
	"context"
	"flag"
	"fmt"
	"runtime"

	"github.com/codeforge-mcp/codeforge/cli/internal/deno"
	"github.com/codeforge-mcp/codeforge/internal/version"
)

func versionCommand() command {
	return command{
		name: "version", usage: "version", summary: "print the version",
		setup: func(fs *flag.FlagSet) action {
			asJSON := jsonFlag(fs)
			return func(_ context.Context, e *Env, _ []string) error {
				if *asJSON {
					return printJSON(e.Stdout, map[string]string{
						"version": version.Version, "deno": deno.Version(), "go": runtime.Version(),
						"os": runtime.GOOS, "arch": runtime.GOARCH,
					})
				}
				_, err := fmt.Fprintf(e.Stdout, "codeforge %s (%s/%s, %s; for Deno %s)\n",
					version.Version, runtime.GOOS, runtime.GOARCH, runtime.Version(), deno.Version())
				return err
			}
		},
	}
}
