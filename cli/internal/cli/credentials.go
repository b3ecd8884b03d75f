package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/feeder"
	"github.com/codeforge-mcp/codeforge/internal/visible"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

func credentialsCommand() command {
	return command{
		name: "credentials", usage: "credentials",
		summary: "list the credentials that change: what kind, until when, and what went wrong",
		details: `
These are the credentials of apis/ that CodeForge obtains itself: by a login, from a token server, from a secret
manager, or from a program. No value is shown, here or anywhere.

Exit codes: 0 listed; 1 CodeForge does not run, or a credential cannot be used now.`,
		setup: func(fs *flag.FlagSet) action {
			t, asJSON := targetFlags(fs), jsonFlag(fs)
			return func(ctx context.Context, e *Env, args []string) error {
				_, list, err := readCredentials(ctx, e, t)
				if err != nil {
					return err
				}
				return shown(e, *asJSON, list, !slices.ContainsFunc(list, broken), func() { printCredentials(e, list) })
			}
		},
	}
}

// broken reports whether a credential cannot be used until somebody does something.
func broken(c credentialapi.Credential) bool {
	return c.State != credentialapi.StateReady && c.State != credentialapi.StateUnused
}

// readCredentials connects to the proxy and lists what it obtains.
func readCredentials(ctx context.Context, e *Env, t target) (credentialapi.Client, []credentialapi.Credential, error) {
	c, err := t.proxy(ctx, e)
	if err != nil {
		return c, nil, err
	}
	list, err := c.List(ctx)
	return c, list, err
}

func printCredentials(e *Env, list []credentialapi.Credential) {
	if len(list) == 0 {
		fmt.Fprintln(e.Stdout, "No credential of apis/ changes: all are values that config.json or a file gives.")
		return
	}
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0) //nolint:mnd // two spaces between columns
	fmt.Fprintln(w, "NAME\tAPI\tKIND\tSTATE\tVALID UNTIL\tLAST ERROR")
	for _, c := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", visible.Line(c.Name), visible.Line(c.API), visible.Line(c.Kind),
			stateText(c), untilText(c.ValidUntil), cmp.Or(visible.Line(c.LastError), "-"))
	}
	_ = w.Flush() // as other prints
	for _, c := range list {
		switch c.State {
		case credentialapi.StateLogin:
			fmt.Fprintf(e.Stdout, "Log in with: %s login %s\n", e.program(), visible.Line(c.Name))
		case credentialapi.StateSupply:
			fmt.Fprintf(e.Stdout, "Supply %s with: %s secrets\n", visible.Line(c.Name), e.program())
		}
	}
}

func stateText(c credentialapi.Credential) string {
	return strings.ReplaceAll(visible.Line(string(c.State)), "_", " ")
}

func untilText(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func logoutCommand() command {
	return command{
		name: "logout", usage: "logout NAME",
		summary: "forget a login, or whatever else CodeForge obtained for a credential",
		details: `
What is stored is deleted. The provider is not told: to end the access there too, remove CodeForge from the apps of
your account.

Exit codes: 0 forgotten; 1 CodeForge does not run, or it could not be deleted; 2 wrong command line.`,
		setup: func(fs *flag.FlagSet) action {
			t := targetFlags(fs)
			return func(ctx context.Context, e *Env, args []string) error {
				if len(args) != 1 {
					return usageError("logout takes the name of a credential")
				}
				c, _, err := readCredentials(ctx, e, t)
				if err != nil {
					return err
				}
				if err := c.Logout(ctx, args[0]); err != nil {
					return err
				}
				fmt.Fprintf(e.Stdout, "%s is forgotten.\n", visible.Line(args[0]))
				return nil
			}
		},
	}
}

func secretsCommand() command {
	return command{
		name: "secrets", usage: "secrets [--watch]",
		summary: "run the programs of credentials with \"command\", and hand their output to CodeForge",
		details: `
Programs such as op, pass or vault run here, as you, and not in a container: they need your key chain. codeforge up
does this by itself; with Docker, run this on the host. --watch stays, and runs each program again when its output is
about to end.

Which programs there are is read from apis/ on this machine. A program that everybody, or a user of the sandbox, can
write is not run. What programs print is neither shown nor logged.

Exit codes: 0 all were supplied; 1 a program failed, or CodeForge does not run.`,
		setup: func(fs *flag.FlagSet) action {
			t, apis := targetFlags(fs), apisFlag(fs)
			watch := fs.Bool("watch", false, "stay, and supply again when it is time")
			return func(ctx context.Context, e *Env, args []string) error {
				vars, err := readVariables(e)
				if err != nil {
					return err
				}
				c, _, err := readCredentials(ctx, e, t)
				if err != nil {
					return err
				}
				f, s := feeder.New(e.Environ), feeder.Source{APIs: *apis, Getenv: vars.getenv}
				outcomes, err := f.Once(ctx, c, s, true)
				if err != nil {
					return err
				}
				failed := printOutcomes(e, outcomes)
				if *watch {
					f.Keep(ctx, c, s, func(o feeder.Outcome) { printOutcomes(e, []feeder.Outcome{o}) })
					return nil
				}
				if failed {
					return silent(ExitFailed)
				}
				return nil
			}
		},
	}
}

func printOutcomes(e *Env, outcomes []feeder.Outcome) (failed bool) {
	if len(outcomes) == 0 {
		fmt.Fprintln(e.Stdout, `No credential has "command".`)
	}
	for _, o := range outcomes {
		if o.Err == nil {
			fmt.Fprintf(e.Stdout, "%s is supplied.\n", visible.Line(o.Name))
			continue
		}
		failed = true
		fmt.Fprintf(e.Stderr, "%s: %s\n", visible.Line(o.Name), visible.Line(o.Err.Error()))
	}
	return failed
}

var errNoBrowserWay = errors.New("this credential's server offers no login in a browser: use --device")
