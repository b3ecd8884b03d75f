package cli

import (
	"context"
	"flag"
	"fmt"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/doctor"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/server"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/statedir"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/visible"
)

func doctorCommand() command {
	return command{
		name: "doctor", usage: "doctor [--offline] [--attack]", summary: "look at everything CodeForge needs here, and say what to do",
		details: `
It changes nothing. Where embedded mode can run, one without any API is started beside everything else, runs a line of
code and ends. To each host of an active API goes one HEAD request without any credential; --offline leaves that out.

--attack mounts attacks on the running CodeForge instead, from inside its sandbox and on its MCP endpoint, and prints a
table of them. They reach no API and use no credential. They cover what needs no hostile server: other ways out than the
proxy, false names, requests that two servers read in two ways, overridden methods, permissions, links, limits, and who
may call. Swapping, scrubbing, redirects, bodies, bad certificates and code that has escaped from Deno are tried by make
attack alone, against servers of its own.

Exit codes: 0 nothing failed (there may be warnings), every attack was held; 1 something failed, or was not held.`,
		setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			state, apis, asJSON := stateFlag(fs), apisFlag(fs), jsonFlag(fs)
			offline := fs.Bool("offline", false, "leave out what needs the network")
			attack := fs.Bool("attack", false, "mount attacks on the running CodeForge")
			bin := fs.String("bin", "", "`DIR` of the other binaries (default: where codeforge is)")
			return func(ctx context.Context, e *Env, args []string) error {
				if len(args) > 0 {
					return usageError("doctor takes no argument, got %q", args[0])
				}
				if *attack {
					return besiege(ctx, e, target{state: state, url: new(string)}, *apis, *asJSON)
				}
				dir, err := statedir.Find(*state)
				if err != nil {
					return err
				}
				c := doctor.Config{State: dir, APIs: *apis, Dotenv: dotenvFile, Bin: *bin, Offline: *offline}
				w, err := readWorld(e)
				if err == nil {
					c.Settings, err = settings.Parse(w.getenv)
				}
				c.SettingsErr, c.Environ, c.Getenv = err, e.Environ, w.getenv
				c.Deno, c.Port = w.getenv("DENO_PATH"), c.Settings.MCPPort
				c.Container = w.getenv("CODEFORGE_CONTAINER") == "1"
				if c.Server, err = (target{state: state, url: new(string)}).config(e); err != nil {
					c.Server = server.Config{State: dir, Fallback: "http://127.0.0.1:8080/mcp"}
				}
				return examine(ctx, e, c, *asJSON)
			}
		},
	}
}

func examine(ctx context.Context, e *Env, c doctor.Config, asJSON bool) error {
	paint := newPainter(e, e.Stdout)
	colours := map[doctor.Status]terminal.Colour{doctor.OK: terminal.Green, doctor.Warn: terminal.Yellow, doctor.Fail: terminal.Red, doctor.Skip: terminal.Dim}
	counts := map[doctor.Status]int{}
	all := []doctor.Finding{}
	doctor.Examine(ctx, c, func(f doctor.Finding) {
		counts[f.Status]++
		all = append(all, f)
		if asJSON {
			return
		}
		fmt.Fprintf(e.Stdout, "%s %-22s %s\n", paint(colours[f.Status], fmt.Sprintf("%-8s", f.Status)), visible.Line(f.Check), visible.Line(f.Text))
		if f.Fix != "" {
			fmt.Fprintf(e.Stdout, "%-31s -> %s\n", "", visible.Line(f.Fix))
		}
	})
	if asJSON {
		if err := printJSON(e.Stdout, map[string]any{"ok": counts[doctor.Fail] == 0, "findings": all}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(e.Stdout, "%d ok, %d warnings, %d failed, %d skipped.\n", counts[doctor.OK], counts[doctor.Warn], counts[doctor.Fail], counts[doctor.Skip])
	}
	if counts[doctor.Fail] > 0 {
		return silent(ExitFailed)
	}
	return nil
}
