package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/clients"
	"github.com/codeforge-mcp/codeforge/cli/internal/jsonfile"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

func connectCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "connect [CLIENT]", Short: "show how MCP clients connect, or configure one of them",
		Args: cobra.MaximumNArgs(1), ValidArgs: slices.Concat(clients.ListNames(), hostedNames()),
	}
	o := connectOptions{target: targetFlags(c.Flags())}
	c.Flags().BoolVar(&o.write, "write", false, "write without confirmation")
	c.Flags().BoolVar(&o.http, "http", false, "connect over HTTP even if a token is required")
	c.Flags().StringVar(&o.file, "file", "", "the client's configuration `FILE`, if it is not in its usual place")
	c.Flags().StringVar(&o.tenant, "tenant", "", "for the tenant of this `NAME`")
	c.Flags().BoolVar(&o.json, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		return o.showConnection(c.Context(), e, strings.Join(args, ""))
	}
	return c
}

type connectOptions struct {
	target            serverTarget
	write, http, json bool
	file, tenant      string
}

func (o connectOptions) showConnection(ctx context.Context, e *Env, name string) error {
	if h, ok := findHosted(name); ok {
		return o.showHosted(ctx, e, h)
	}
	client, known := clients.FindClient(name)
	if name != "" && !known {
		all := slices.Concat(clients.ListNames(), hostedNames())
		return usageError("unknown client %q%s", name, suggestName(name, "", all))
	}
	c, err := o.target.newConfig(e)
	if err != nil {
		return err
	}
	a, err := readAccess(ctx, e, c)
	if err != nil {
		return err
	}
	if o.tenant != "" {
		op, err := o.target.connectOperator(ctx, e)
		if err != nil {
			return err
		}
		if _, err := chooseTenant(ctx, op, o.tenant); err != nil {
			return err
		}
		// codeforge stdio would connect as the operator.
		a.tenant, o.http = o.tenant, true
	}
	if name != "" {
		return o.configureClient(ctx, e, client, a)
	}
	if o.json {
		lines := map[string]string{}
		for _, one := range clients.ListClients() {
			lines[one.Name] = one.OneLineConfig(a.clientAccess(e))
		}
		return printJSON(e.Stdout, map[string]any{"url": a.url, "token": a.token, "clients": lines})
	}
	printConnect(e, a)
	return nil
}

// readAccess asks the running CodeForge for its address.
func readAccess(ctx context.Context, e *Env, c mcpclient.Config) (endpointAccess, error) {
	s := readState(ctx, e, c)
	switch {
	case !s.Running:
		return endpointAccess{}, errors.New(s.Problem)
	case s.Up != nil:
		return accessOf(*s.Up), nil
	case s.About != nil:
		return endpointAccess{url: s.URL, token: s.About.Token, container: s.Container}, nil
	}
	return endpointAccess{url: s.URL, token: !c.Token.IsEmpty()}, nil
}

type connectOutput struct {
	Client  string `json:"client"`
	File    string `json:"file"`
	Changed bool   `json:"changed"`
	Written bool   `json:"written"`
	Backup  string `json:"backup,omitempty"`
}

// configureClient shows the change of a client's file, and makes it.
func (o connectOptions) configureClient(ctx context.Context, e *Env, client clients.Client, a endpointAccess) error {
	if e.isInContainer() {
		fmt.Fprintf(e.Stdout, "%s\n", client.OneLineConfig(a.clientAccess(e)))
		return nil // the file is on the host
	}
	path := o.file
	if path == "" {
		var err error
		if path, err = findConfigFile(e, client); err != nil {
			return err
		}
	}
	before, err := clients.ReadConfig(path)
	if err != nil {
		return err
	}
	after, err := client.AddCodeForge(before, a.clientAccess(e), o.http)
	if errors.Is(err, jsonfile.ErrNotJSON) || errors.Is(err, clients.ErrCannotEdit) {
		return fmt.Errorf("%s: %w: the file was not changed. Add the entry yourself:\n%s", path, err,
			client.OneLineConfig(a.clientAccess(e)))
	}
	if err != nil {
		return err
	}
	result := connectOutput{Client: client.Name, File: path, Changed: string(before) != string(after)}
	if result.Changed && !o.json {
		fmt.Fprintf(e.Stdout, "%s\n", safetext.OneLine(path))
		printDiff(e, string(before), string(after))
	}
	if result.Changed {
		if err := requireWrite(ctx, e, o.write); err != nil {
			return err
		}
		if result.Backup, err = clients.ReplaceConfig(path, before, after, time.Now()); err != nil {
			return err
		}
		result.Written = true
	}
	return printValue(e, o.json, result, true, func() { printConnected(e, client, a, o.http, result) })
}

// printDiff shows the different lines.
func printDiff(e *Env, before, after string) {
	paint := newPainter(e, e.Stdout)
	for _, line := range clients.DiffLines(before, after) {
		text := safetext.OneLine(line)
		switch line[0] {
		case '+':
			text = paint(terminal.Green, text)
		case '-':
			text = paint(terminal.Red, text)
		}
		fmt.Fprintf(e.Stdout, "  %s\n", text)
	}
}

func printConnected(e *Env, client clients.Client, a endpointAccess, http bool, r connectOutput) {
	if !r.Changed {
		fmt.Fprintf(e.Stdout, "%s is connected already: %s\n", client.Title, safetext.OneLine(r.File))
		return
	}
	fmt.Fprintf(e.Stdout, "Wrote %s.", safetext.OneLine(r.File))
	if r.Backup != "" {
		fmt.Fprintf(e.Stdout, " The old file is in %s.", safetext.OneLine(r.Backup))
	}
	fmt.Fprintln(e.Stdout)
	if a.token && http {
		fmt.Fprintf(e.Stdout, "%s takes the token from %s in its own environment, or asks for it.\n", client.Title,
			clients.TokenSetting)
	}
	if client.Note != "" {
		fmt.Fprintln(e.Stdout, client.Note)
	}
}

// findConfigFile returns the path at which a client keeps its configuration on this system.
func findConfigFile(e *Env, client clients.Client) (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding your home folder: %w; name the file itself", err)
	}
	work, err := os.Getwd()
	if err != nil {
		return "", err
	}
	appData := cmp.Or(e.Getenv("APPDATA"), filepath.Join(home, "AppData", "Roaming"))
	return client.ConfigPath(clients.System{OS: runtime.GOOS, Home: home, Work: work, AppData: appData}), nil
}
