package cli

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/server"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/serverstate"
	"github.com/codeforge-mcp/codeforge/internal/visible"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

func mcpCommand() command {
	return command{
		name: "mcp", usage: "mcp add|import|list|tools|call|test|... [NAME]",
		summary: "add, import, look at, log in at, call and approve MCP servers",
		details: `
  mcp add NAME      writes apis/NAME/config.json for a server: behind --, the command that other programs start it with,
                    or with --url a remote one, with --oauth if one logs in there. A package gets an exact version.
                    Keys become credentials and are prompted for without echo, or read as lines from standard input,
                    where they are not typed
  mcp import FILE   shows the servers of another program's configuration as APIs, and with --write writes them,
                    switched off. FILE may also be claude, claude-desktop, cursor or vscode
  mcp login NAME    logs in at a remote server that was added with --oauth, as codeforge login does
  mcp list          lists every server, with what the running CodeForge knows of it
  mcp tools NAME    lists a server's tools as a model sees them; with --json their definitions
  mcp call NAME TOOL [JSON]
                    calls a tool as code would, in the sandbox. JSON is the arguments, or - for standard input
  mcp test NAME     starts a server anew and says what it needs: hosts, trust in the CA, what the key must look like
  mcp approve NAME  shows which tools are new or changed, and accepts them once you confirm
  mcp restart NAME  ends a server's processes; the next call starts it
  mcp logs NAME     shows what a server printed, and what happened to it
  mcp enable NAME   switches a server on
  mcp disable NAME  switches a server off
  mcp rm NAME       removes a server with its credentials

Exit codes: 0 done; 1 it failed, or something waits for you; 2 wrong command line.`,
		setup: func(fs *flag.FlagSet) action {
			o := mcpOptions{target: target{flags: fs, state: stateFlag(fs)}}
			o.target.url = fs.String("endpoint", "", "`URL` of CodeForge's own MCP endpoint, or docker://CONTAINER, if "+
				"it is not found by itself")
			fs.StringVar(&o.apis, "apis", "apis", "`DIR` of the APIs")
			fs.StringVar(&o.url, "url", "", "add: `URL` of a remote server")
			fs.Func("env", "add: `KEY=VALUE` of its environment; KEY alone prompts for a key; repeatable", add(&o.env))
			fs.Func("header", "add: `\"KEY: VALUE\"` of every request to a remote server; repeatable", add(&o.headers))
			fs.BoolVar(&o.oauth, "oauth", false, "add: the remote server has a login, which it tells of by itself")
			fs.BoolVar(&o.login.device, "device", false, "login: enter a code on another device")
			fs.BoolVar(&o.login.paste, "paste", false, "login: paste the address at which the browser ends")
			fs.BoolVar(&o.login.quiet, "no-browser", false, "login: print the address, and open no browser")
			fs.Var(&o.domains, "domain", "add: a host `NAME` that the server may reach; repeatable")
			fs.StringVar(&o.description, "description", "", "add: one `LINE` that describes the server")
			fs.Var(&o.only, "only", "import: the `NAMES` of these servers only, separated by commas")
			fs.BoolVar(&o.clients, "clients", false, "import: leave CodeForge alone in the file; a copy is kept in apis/.backup")
			fs.BoolVar(&o.write, "write", false, "import, test: write what is shown, without confirmation")
			fs.StringVar(&o.tool, "tool", "", "test: call the tool of this `NAME` too, with the arguments of --arguments")
			fs.StringVar(&o.arguments, "arguments", "{}", "test: `JSON` for the tool")
			fs.BoolVar(&o.yes, "yes", false, "approve, rm: without confirmation")
			fs.BoolVar(&o.json, "json", false, "print JSON")
			return o.run
		},
	}
}

// add is a flag that may be given several times.
func add(to *[]string) func(string) error {
	return func(s string) error {
		*to = append(*to, s)
		return nil
	}
}

// mcpOptions are the flags of mcp.
type mcpOptions struct {
	target                    target
	apis, url, description    string
	tool, arguments           string
	env, headers              []string
	domains, only             words
	clients, write, yes, json bool
	oauth                     bool
	login                     loginOptions
}

func (o *mcpOptions) run(ctx context.Context, e *Env, args []string) error {
	if err := e.needsApis("mcp", args, "logs"); err != nil {
		return err
	}
	return mcpCommand().runVerb([]verbAction{
		{"add", 1, maxWords, func(a []string) error { return o.add(ctx, e, a[0], a[1:]) }},
		{"import", 1, 1, func(a []string) error { return o.importFile(ctx, e, a[0]) }},
		{"login", 1, 1, func(a []string) error { return o.logIn(ctx, e, a[0]) }},
		{"list", 0, 0, func([]string) error { return o.list(ctx, e) }},
		{"tools", 1, 1, func(a []string) error { return o.tools(ctx, e, a[0]) }},
		{"call", 2, 3, func(a []string) error { return o.call(ctx, e, a[0], a[1], a[2:]) }},
		{"test", 1, 1, func(a []string) error { return o.test(ctx, e, a[0]) }},
		{"approve", 1, 1, func(a []string) error { return o.approve(ctx, e, a[0]) }},
		{"restart", 1, 1, func(a []string) error { return o.restart(ctx, e, a[0]) }},
		{"logs", 1, 1, func(a []string) error { return o.logs(ctx, e, a[0]) }},
		{"enable", 1, 1, func(a []string) error { return o.files().activate(ctx, e, a[0], true) }},
		{"disable", 1, 1, func(a []string) error { return o.files().activate(ctx, e, a[0], false) }},
		{"rm", 1, 1, func(a []string) error { return o.files().remove(ctx, e, a[0]) }},
	}, args)
}

// files is the part that every API has.
func (o *mcpOptions) files() *apiOptions {
	return &apiOptions{target: o.target, apis: o.apis, yes: o.yes, json: o.json}
}

// mcpRow is one line of mcp list.
type mcpRow struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	Active bool   `json:"active"`
	// State is that of the running CodeForge, and empty where none runs.
	State   serverstate.State `json:"state,omitempty"`
	Tools   *int              `json:"tools,omitempty"`
	Held    int               `json:"held,omitempty"`
	Calls   int               `json:"calls"`
	Problem string            `json:"problem,omitempty"`
}

// what is how a server is started or reached, in a word.
func what(s *catalog.Server) string {
	switch {
	case s.URL != "":
		return s.URL
	case s.Package != "":
		return s.Package
	}
	return strings.Join(s.Command, " ")
}

func (o *mcpOptions) list(ctx context.Context, e *Env) error {
	found, cat := inspect(e, o.apis)
	rows := []mcpRow{}
	states := map[string]serverstate.Server{}
	if c, err := o.target.config(e); err == nil {
		if place, err := server.Locate(ctx, c); err == nil {
			list, _ := server.Servers(ctx, c, place) // what does not run is listed without a state
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
			Name: a.Name, Server: what(a.Server), Active: a.Active, State: s.State, Tools: s.Tools, Held: s.Held, Calls: s.Calls,
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
			fmt.Fprintf(e.Stdout, "%s  %s\n", p(terminal.Red, "broken "), visible.Line(f.Text))
		}
	}
	if len(rows) == 0 {
		fmt.Fprintf(e.Stdout, "There are no MCP servers in %s; codeforge mcp add NAME -- COMMAND adds one, "+
			"codeforge mcp import FILE those of another program.\n", visible.Line(o.apis))
	}
	return nil
}

func printMCPRow(e *Env, p painter, r mcpRow) {
	state, colour := string(r.State), terminal.Green
	switch {
	case !r.Active:
		state, colour = "off", terminal.Dim
	case state == "":
		state, colour = "on", terminal.Dim
	case r.State == serverstate.Failing:
		colour = terminal.Red
	}
	fmt.Fprintf(e.Stdout, "%s  %-14s %s\n",
		p(colour, fmt.Sprintf("%-8s", state)), visible.Line(r.Name), visible.Line(r.Server))
	if r.Tools != nil {
		fmt.Fprintf(e.Stdout, "          %s\n", count(*r.Tools, "tool"))
	}
	if r.Held > 0 {
		fmt.Fprintf(e.Stdout, "          %s held back: codeforge mcp approve %s shows what changed\n",
			count(r.Held, "tool"), r.Name)
	}
	if r.Problem != "" {
		fmt.Fprintf(e.Stdout, "          last failure: %s\n", visible.Line(r.Problem))
	}
}

// known is a server of the folder of APIs that is active.
func (o *mcpOptions) known(e *Env, name string) (*catalog.API, error) {
	_, cat := inspect(e, o.apis)
	a := cat.API(name)
	switch {
	case a == nil || a.Server == nil:
		var names []string
		for _, a := range cat.APIs() {
			if a.Server != nil {
				names = append(names, a.Name)
			}
		}
		return nil, fmt.Errorf("there is no MCP server %q%s", name, hint(name, "", names, "codeforge mcp list lists them"))
	case !a.Active:
		return nil, fmt.Errorf("%s is switched off: codeforge mcp enable %s", name, name)
	}
	return a, nil
}

// logIn logs in at a remote server.
func (o *mcpOptions) logIn(ctx context.Context, e *Env, name string) error {
	a, err := o.known(e, name)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(a.Credentials, func(c catalog.Credential) bool { return c.Login() != nil })
	if i < 0 {
		return fmt.Errorf("%s has no login in its config.json: codeforge mcp add NAME --oauth --url ADDRESS adds a server "+
			"that has one", name)
	}
	l := o.login
	l.target = o.target
	return l.run(ctx, e, a.Credentials[i].Name)
}

// operator is a client of the running CodeForge's own API.
func (o *mcpOptions) operator(ctx context.Context, e *Env) (operatorapi.Client, error) {
	c, err := o.target.config(e)
	if err != nil {
		return operatorapi.Client{}, err
	}
	op, place, local, err := server.Operator(ctx, c)
	if err == nil && !local {
		err = fmt.Errorf("%s is an MCP endpoint, at which nobody decides about servers: run this where CodeForge runs, or "+
			"name docker://CONTAINER", place.Name())
	}
	return op, err
}

func (o *mcpOptions) restart(ctx context.Context, e *Env, name string) error {
	if _, err := o.known(e, name); err != nil {
		return err
	}
	op, err := o.operator(ctx, e)
	if err == nil {
		err = op.Restart(ctx, name)
	}
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(e.Stdout, map[string]any{"name": name, "restarted": true})
	}
	_, err = fmt.Fprintf(e.Stdout, "%s is stopped; its next call starts it.\n", name)
	return err
}

func (o *mcpOptions) logs(ctx context.Context, e *Env, name string) error {
	op, err := o.operator(ctx, e)
	if err != nil {
		return err
	}
	lines, err := op.Log(ctx, name)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(e.Stdout, lines)
	}
	for _, l := range lines {
		fmt.Fprintf(e.Stdout, "%s  %s\n", l.At.Local().Format("15:04:05"), visible.Line(l.Text))
	}
	if len(lines) == 0 {
		fmt.Fprintf(e.Stdout, "%s has printed nothing since CodeForge was started.\n", name)
	}
	return nil
}

// environment looks up variables of the user's own environment.
func (e *Env) environment(name string) (string, bool) {
	value := e.Getenv(name)
	return value, value != ""
}
