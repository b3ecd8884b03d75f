package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

func mcpCommand(e *Env) *cobra.Command {
	c := groupCommand("mcp", "add, import, look at, log in at, call and approve MCP servers")
	flags := c.PersistentFlags()
	o := &mcpOptions{}
	o.target = serverTarget{flags: flags, state: stateFlag(flags)}
	o.target.url = flags.String("endpoint", "",
		"`URL` of CodeForge's own MCP endpoint, or docker://CONTAINER (default: searched)")
	flags.StringVar(&o.apis, "apis", "apis", "`DIR` of the APIs")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	importFile := &cobra.Command{
		Use: "import FILE", Short: "show the servers of another program's file as APIs, or write them",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, a []string) error { return o.importFile(c.Context(), e, a[0]) },
	}
	importFile.Flags().StringSliceVar(&o.only, "only", nil, "only the servers of these `NAMES`, separated by commas")
	importFile.Flags().BoolVar(&o.clients, "clients", false,
		"leave only CodeForge in the file, and a copy of the file in apis/.backup")
	importFile.Flags().BoolVar(&o.write, "write", false, "write what is shown, without confirmation")
	login := nameCommand(e, "mcp login", "log in at a remote server that was added with --oauth", o.logIn)
	o.login.addFlags(login)
	call := &cobra.Command{
		Use: "call NAME TOOL [JSON]", Short: "call a tool as code would, in the sandbox",
		Args: cobra.RangeArgs(2, 3), ValidArgsFunction: completeNames(e),
		RunE: func(c *cobra.Command, a []string) error { return o.callTool(c.Context(), e, a[0], a[1], a[2:]) },
	}
	test := nameCommand(e, "mcp test", "start a server again, call a tool and say what failed", o.testServer)
	test.Flags().StringVar(&o.tool, "tool", "", "also call the tool of this `NAME`, with the arguments of --arguments")
	test.Flags().StringVar(&o.arguments, "arguments", "{}", "`JSON` for the tool")
	test.Flags().BoolVar(&o.write, "write", false, "write what is shown, without confirmation")
	approve := nameCommand(e, "mcp approve", "show new and changed tools, and accept them", o.approveTools)
	approve.Flags().BoolVar(&o.yes, "yes", false, "accept without confirmation")
	c.AddCommand(o.addCommand(e), importFile, login,
		&cobra.Command{
			Use: "list", Short: "list every server, with its state in the running CodeForge",
			RunE: func(c *cobra.Command, _ []string) error { return o.listServers(c.Context(), e) },
		},
		nameCommand(e, "mcp tools", "list a server's tools as a model sees them", o.listTools),
		call, test, approve,
		nameCommand(e, "mcp restart", "end a server's processes; the next call starts it", o.restartServer),
		nameCommand(e, "mcp logs", "show the output of a server, and its starts and stops", o.showServerLog))
	c.AddCommand(o.changeCommands(e, "mcp", "MCP server")...)
	return c
}

func (o *mcpOptions) addCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "add NAME [-- COMMAND...]", Short: "write apis/NAME/config.json for a server",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, a []string) error { return o.addServer(c.Context(), e, a[0], a[1:]) },
	}
	flags := c.Flags()
	flags.StringVar(&o.url, "url", "", "`URL` of a remote server")
	flags.StringArrayVar(&o.env, "env", nil,
		"`KEY=VALUE` of its environment; KEY alone prompts for a key; repeatable")
	flags.StringArrayVar(&o.headers, "header", nil, "`\"KEY: VALUE\"` of every request to a remote server; repeatable")
	flags.BoolVar(&o.oauth, "oauth", false, "the remote server needs a login, and describes it by itself")
	flags.StringSliceVar(&o.domains, "domain", nil, "a host `NAME` that the server may reach; repeatable")
	flags.StringVar(&o.description, "description", "", "one `LINE` that describes the server")
	return c
}

type mcpOptions struct {
	apiOptions
	url, tool, arguments  string
	env, headers, only    []string
	clients, write, oauth bool
	login                 loginOptions
}

// mcpRow is one line of mcp list.
type mcpRow struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	Active bool   `json:"active"`
	// State is the state in the running CodeForge, empty if none runs.
	State   mcpserver.ServerState `json:"state,omitempty"`
	Tools   *int                  `json:"tools,omitempty"`
	Held    int                   `json:"held,omitempty"`
	Calls   int                   `json:"calls"`
	Problem string                `json:"problem,omitempty"`
}

// serverOrigin returns the address, package or command of a server.
func serverOrigin(s *mcpserver.Settings) string {
	switch {
	case s.URL != "":
		return s.URL
	case s.Package != "":
		return s.Package
	}
	return strings.Join(s.Command, " ")
}

func (o *mcpOptions) listServers(ctx context.Context, e *Env) error {
	found, cat := inspectConfig(e, o.apis)
	rows := []mcpRow{}
	states := map[string]mcpserver.Status{}
	if c, err := o.target.newConfig(e); err == nil {
		if place, err := mcpclient.LocateServer(ctx, c); err == nil {
			list, _ := mcpclient.ListServers(ctx, c, place) // without a running CodeForge there are no states
			for _, s := range list {
				states[s.Name] = s
			}
		}
	}
	for _, a := range cat.APIs() {
		if a.Server == nil {
			continue
		}
		s := states[a.Name]
		rows = append(rows, mcpRow{
			Name: a.Name, Server: serverOrigin(a.Server), Active: a.Active, State: s.State, Tools: s.Tools, Held: s.Held,
			Calls:   s.Calls,
			Problem: s.Problem,
		})
	}
	if o.json {
		return printJSON(e.Stdout, rows)
	}
	p := newPainter(e, e.Stdout)
	for _, r := range rows {
		printMCPRow(e, p, r)
	}
	for _, f := range found {
		if f.API != "" && f.Severity == "error" {
			fmt.Fprintf(e.Stdout, "%s  %s\n", p(terminal.Red, "broken "), safetext.OneLine(f.Text))
		}
	}
	if len(rows) == 0 {
		fmt.Fprintf(e.Stdout, "There are no MCP servers in %s; codeforge mcp add NAME -- COMMAND adds one, "+
			"codeforge mcp import FILE those of another program.\n", safetext.OneLine(o.apis))
	}
	return nil
}

func printMCPRow(e *Env, p textPainter, r mcpRow) {
	state, colour := string(r.State), terminal.Green
	switch {
	case !r.Active:
		state, colour = "off", terminal.Dim
	case state == "":
		state, colour = "on", terminal.Dim
	case r.State == mcpserver.Failing:
		colour = terminal.Red
	}
	fmt.Fprintf(e.Stdout, "%s  %-14s %s\n",
		p(colour, fmt.Sprintf("%-8s", state)), safetext.OneLine(r.Name), safetext.OneLine(r.Server))
	if r.Tools != nil {
		fmt.Fprintf(e.Stdout, "          %s\n", countNoun(*r.Tools, "tool"))
	}
	if r.Held > 0 {
		fmt.Fprintf(e.Stdout, "          %s held back: codeforge mcp approve %s shows what changed\n",
			countNoun(r.Held, "tool"), r.Name)
	}
	if r.Problem != "" {
		fmt.Fprintf(e.Stdout, "          last failure: %s\n", safetext.OneLine(r.Problem))
	}
}

// findServer returns an active server of the folder of APIs.
func (o *mcpOptions) findServer(e *Env, name string) (*catalog.API, error) {
	_, cat := inspectConfig(e, o.apis)
	a := cat.API(name)
	switch {
	case a == nil || a.Server == nil:
		var names []string
		for _, a := range cat.APIs() {
			if a.Server != nil {
				names = append(names, a.Name)
			}
		}
		return nil, fmt.Errorf("there is no MCP server %q%s", name,
			nearestHint(name, "", names, "codeforge mcp list lists them"))
	case !a.Active:
		return nil, fmt.Errorf("%s is switched off: codeforge mcp enable %s", name, name)
	}
	return a, nil
}

// logIn logs in at a remote server.
func (o *mcpOptions) logIn(ctx context.Context, e *Env, name string) error {
	a, err := o.findServer(e, name)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(a.Credentials, func(c catalog.Credential) bool { return c.LoginClient() != nil })
	if i < 0 {
		return fmt.Errorf("%s has no login in its config.json: codeforge mcp add NAME --oauth --url ADDRESS adds a server "+
			"that has one", name)
	}
	l := o.login
	l.target, l.json = o.target, o.json
	return l.runLogin(ctx, e, a.Credentials[i].Name)
}

func (o *mcpOptions) restartServer(ctx context.Context, e *Env, name string) error {
	if _, err := o.findServer(e, name); err != nil {
		return err
	}
	op, err := o.target.connectOperator(ctx, e)
	if err == nil {
		err = op.Restart(ctx, name)
	}
	if err != nil {
		return err
	}
	return printValue(e, o.json, map[string]any{"name": name, "restarted": true}, true, func() {
		fmt.Fprintf(e.Stdout, "%s is stopped; its next call starts it.\n", name)
	})
}

func (o *mcpOptions) showServerLog(ctx context.Context, e *Env, name string) error {
	op, err := o.target.connectOperator(ctx, e)
	if err != nil {
		return err
	}
	lines, err := op.Log(ctx, name)
	if err != nil {
		return err
	}
	return printList(e, o.json, lines, name+" has not printed since CodeForge was started.", func(l operatorapi.Line) {
		fmt.Fprintf(e.Stdout, "%s  %s\n", l.At.Local().Format("15:04:05"), safetext.OneLine(l.Text))
	})
}

// lookupVariable looks up a variable of the user's environment.
func (e *Env) lookupVariable(name string) (string, bool) {
	value := e.Getenv(name)
	return value, value != ""
}
