package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/credentialfeeder"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

func credentialsCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "credentials", Short: "list the credentials that change, with their last error",
	}
	t, asJSON := targetFlags(c.Flags()), jsonFlag(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		_, list, err := readCredentials(c.Context(), e, t)
		if err != nil {
			return err
		}
		return printValue(e, *asJSON, list, !slices.ContainsFunc(list, needsPerson), func() { printCredentials(e, list) })
	}
	return c
}

// needsPerson reports whether a credential needs a person's action before it can be used.
func needsPerson(c credentialapi.Credential) bool {
	return c.State != credentialapi.StateReady && c.State != credentialapi.StateUnused
}

// readCredentials connects to the proxy and lists the credentials that it obtains.
func readCredentials(ctx context.Context, e *Env, t serverTarget) (credentialapi.Client, []credentialapi.Credential,
	error) {
	c, err := t.connectProxy(ctx, e)
	if err != nil {
		return c, nil, err
	}
	list, err := c.ListCredentials(ctx)
	return c, list, err
}

func printCredentials(e *Env, list []credentialapi.Credential) {
	if len(list) == 0 {
		fmt.Fprintln(e.Stdout, "CodeForge obtains no credential itself: config.json or a file has each value.")
		return
	}
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0) //nolint:mnd // two spaces between columns
	fmt.Fprintln(w, "NAME\tAPI\tKIND\tSTATE\tVALID UNTIL\tLAST ERROR")
	for _, c := range list {
		state := strings.ReplaceAll(safetext.OneLine(string(c.State)), "_", " ")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", safetext.OneLine(c.Name), safetext.OneLine(c.API),
			safetext.OneLine(c.Kind), state, describeExpiry(c.ValidUntil), cmp.Or(safetext.OneLine(c.LastError), "-"))
	}
	_ = w.Flush() // ignored like errors of other prints
	for _, c := range list {
		switch c.State {
		case credentialapi.StateLogin:
			fmt.Fprintf(e.Stdout, "Log in with: %s login %s\n", e.programName(), safetext.OneLine(c.Name))
		case credentialapi.StateSupply:
			fmt.Fprintf(e.Stdout, "Supply %s with: %s secrets\n", safetext.OneLine(c.Name), e.programName())
		}
	}
}

func describeExpiry(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func logoutCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "logout NAME", Short: "forget a login, or another value that CodeForge obtained",
		Args: cobra.ExactArgs(1),
	}
	t := targetFlags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		client, _, err := readCredentials(c.Context(), e, t)
		if err != nil {
			return err
		}
		if err := client.ForgetLogin(c.Context(), args[0]); err != nil {
			return err
		}
		fmt.Fprintf(e.Stdout, "%s is forgotten.\n", safetext.OneLine(args[0]))
		return nil
	}
	return c
}

func secretsCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "secrets", Short: "run the programs of credentials with \"command\" for CodeForge",
	}
	t, apis := targetFlags(c.Flags()), apisFlag(c.Flags())
	watch := c.Flags().Bool("watch", false, "stay, and run each program again in time")
	c.RunE = func(c *cobra.Command, _ []string) error {
		vars, err := readVariables(e)
		if err != nil {
			return err
		}
		client, _, err := readCredentials(c.Context(), e, t)
		if err != nil {
			return err
		}
		f, s := credentialfeeder.New(e.Environ), credentialfeeder.Source{APIs: *apis, Getenv: vars.getenv}
		outcomes, err := f.SupplyOnce(c.Context(), client, s, true)
		if err != nil {
			return err
		}
		failed := printOutcomes(e, outcomes)
		if *watch {
			f.KeepSupplying(c.Context(), client, s, func(o credentialfeeder.Outcome) {
				printOutcomes(e, []credentialfeeder.Outcome{o})
			})
			return nil
		}
		if failed {
			return silentError(ExitFailed)
		}
		return nil
	}
	return c
}

func printOutcomes(e *Env, outcomes []credentialfeeder.Outcome) (failed bool) {
	if len(outcomes) == 0 {
		fmt.Fprintln(e.Stdout, `No credential has "command".`)
	}
	for _, o := range outcomes {
		if o.Err == nil {
			fmt.Fprintf(e.Stdout, "%s is supplied.\n", safetext.OneLine(o.Name))
			continue
		}
		failed = true
		fmt.Fprintf(e.Stderr, "%s: %s\n", safetext.OneLine(o.Name), safetext.OneLine(o.Err.Error()))
	}
	return failed
}

var errNoBrowserWay = errors.New("this credential's server offers no login in a browser: use --device")
