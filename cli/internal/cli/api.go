package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/visible"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

func apiCommand() command {
	return command{
		name: "api", usage: "api add|list|check|test|search|... [NAME]",
		summary: "add, change, list, check, try or search the APIs in apis/",
		details: `
  api add NAME      writes apis/NAME/config.json, mode 0600. On a terminal it prompts for what the flags leave out, and
                    checks each answer. If there is an example, it asks for the credential only. A credential is never
                    a flag: it is prompted for without echo, or read as one line from standard input. With
                    --openapi, --graphql or --google, operations and types come from a document, and as a rule hosts
                    and the way to authenticate.
  api update NAME   reads the document again; hosts and credentials stay as they are
  api list          lists every API, inactive ones included
  api check NAME    looks for mistakes in one API, without starting anything
  api test [NAME]   makes one harmless request through the running CodeForge and explains what happened; without a
                    name for every active API
  api search WORDS  asks the running CodeForge which operations, tools and skills fit, as a model does
  api explain NAME METHOD PATH  says which of the API's methods, operations and rules decide on a request; NAME CALL
                                TOOL, which decide on a call of an MCP server's tool
  api propose NAME  shows rules that permit what runs did, as the ledger has it, beside those in force; changes nothing
  api edit NAME     opens config.json in $VISUAL or $EDITOR, and checks it afterwards
  api enable NAME   switches an API on
  api disable NAME  switches an API off: its hosts are closed, its credentials still scrubbed
  api rm NAME       removes an API with its credentials

Exit codes: 0 done, or no mistakes; 1 there are mistakes, or the test failed; 2 wrong command line.`,
		setup: func(fs *flag.FlagSet) action {
			o := apiOptions{vars: map[string]string{}}
			o.target = targetFlags(fs)
			fs.StringVar(&o.apis, "apis", "apis", "`DIR` of the APIs")
			fs.Var(&o.domains, "domain", "add: a host `NAME` of the API, or *.suffix; repeatable")
			fs.Var(&o.tokens, "token", "add: the token `NAME` that code writes, e.g. STRIPE_AUTH_TOKEN; repeatable")
			fs.Var(&o.surfaces, "in", "add: a `SURFACE` where the token may appear: header, header:Name, query:name, path, "+
				"body:field; repeatable (default header)")
			fs.Var(&o.restrict, "restrict", "add: a `METHOD` to refuse; repeatable")
			fs.StringVar(&o.reference, "reference", "", "add: `URL` of the API's documentation")
			fs.StringVar(&o.description, "description", "", "add: one `LINE` that describes the API")
			fs.StringVar(&o.openapi, "openapi", "", "add: `FILE|URL|-` of an OpenAPI or Swagger document")
			fs.StringVar(&o.graphql, "graphql", "", "add: `FILE|URL|-` of a schema of GraphQL, or the URL of an endpoint that "+
				"tells it without a credential")
			fs.StringVar(&o.google, "google", "", "add: `FILE|URL|NAME:VERSION` of a document of Google's discovery service, "+
				"e.g. drive:v3")
			fs.StringVar(&o.server, "server", "", "add: `URL` that requests go to, in place of the document's")
			fs.Func("var", "add: `NAME=VALUE` of a variable in the document's server; repeatable", o.variable)
			fs.StringVar(&o.scheme, "scheme", "", "add: `NAME` of the document's way to authenticate, or none")
			fs.BoolVar(&o.readOnly, "read-only", false, "add: allow GET and HEAD only")
			fs.BoolVar(&o.only, "only-operations", false, "add: refuse requests that are no operation of the document")
			fs.StringVar(&o.path, "path", "/", "test: the `PATH` to request")
			fs.StringVar(&o.since, "since", "7d", "propose: what runs did since this `TIME`: 7d, 2h ago, or 2026-11-22")
			fs.StringVar(&o.ofRun, "run", "", "propose: what the run with this `ID` did, or with this prefix of it")
			fs.StringVar(&o.api, "api", "", "search: in the API of this `NAME` only")
			fs.BoolVar(&o.explainHits, "explain", false, "search: print why each result was found: words, meaning, intent")
			fs.BoolVar(&o.yes, "yes", false, "rm: remove without confirmation")
			fs.BoolVar(&o.json, "json", false, "print JSON")
			return o.run
		},
	}
}

// apiOptions are the flags of api.
type apiOptions struct {
	target                              target
	apis, reference, description, path  string
	openapi, graphql, google            string
	server, scheme, api, since, ofRun   string
	vars                                map[string]string
	domains, tokens, surfaces, restrict words
	json, readOnly, only, yes           bool
	explainHits                         bool // --explain
	none                                bool // --token none
}

// variable reads --var.
func (o *apiOptions) variable(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return fmt.Errorf("found %q; want NAME=VALUE", s)
	}
	o.vars[name] = value
	return nil
}

// words is a flag that may be given several times, or with commas.
type words []string

func (w *words) String() string { return strings.Join(*w, ",") }

// Set adds the words of s.
func (w *words) Set(s string) error {
	*w = append(*w, list(s)...)
	return nil
}

// maxWords is how many arguments a question may have.
const maxWords = 100

func (o *apiOptions) run(ctx context.Context, e *Env, args []string) error {
	if err := e.needsApis("api", args, "list", "check", "test", "search"); err != nil {
		return err
	}
	return apiCommand().runVerb([]verbAction{
		{"add", 1, 1, func(a []string) error { return o.add(ctx, e, a[0]) }},
		{"update", 1, 1, func(a []string) error { return o.update(ctx, e, a[0]) }},
		{"list", 0, 0, func([]string) error { return o.list(e) }},
		{"check", 1, 1, func(a []string) error { return o.check(e, a[0]) }},
		{"test", 0, 1, func(a []string) error { return o.testAll(ctx, e, strings.Join(a, "")) }},
		{"search", 1, maxWords, func(a []string) error { return o.search(ctx, e, strings.Join(a, " ")) }},
		{"explain", 3, 3, func(a []string) error { return o.explain(e, a[0], strings.ToUpper(a[1]), a[2]) }},
		{"propose", 1, 1, func(a []string) error { return o.propose(ctx, e, a[0]) }},
		{"edit", 1, 1, func(a []string) error { return o.edit(ctx, e, a[0]) }},
		{"enable", 1, 1, func(a []string) error { return o.activate(ctx, e, a[0], true) }},
		{"disable", 1, 1, func(a []string) error { return o.activate(ctx, e, a[0], false) }},
		{"rm", 1, 1, func(a []string) error { return o.remove(ctx, e, a[0]) }},
	}, args)
}

// public is what of an API may be shown.
func public(a *catalog.API) controlapi.InspectedAPI {
	p := controlapi.InspectedAPI{Active: a.Active, API: controlapi.API{
		Name: a.Name, Description: a.Description,
		RestrictedMethods: a.Methods.Restricted, AllowedMethods: a.Methods.Allowed,
	}}
	for _, h := range a.Hosts {
		p.Domains = append(p.Domains, h.String())
	}
	for _, c := range a.Credentials {
		t := controlapi.Token{Name: c.Name}
		for _, s := range c.Surfaces {
			t.In = append(t.In, s.String())
		}
		p.Credentials = append(p.Credentials, t)
	}
	return p
}

func (o *apiOptions) list(e *Env) error {
	found, cat := inspect(e, o.apis)
	for _, f := range found {
		if f.File == o.apis {
			return errors.New(f.Text)
		}
	}
	rows := []controlapi.InspectedAPI{}
	for _, a := range cat.APIs() {
		rows = append(rows, public(a))
	}
	if o.json {
		return printJSON(e.Stdout, rows)
	}
	p := newPainter(e, e.Stdout)
	for _, r := range rows {
		state := p(terminal.Green, "active")
		if !r.Active {
			state = p(terminal.Dim, "off   ")
		}
		fmt.Fprintf(e.Stdout, "%s  %-14s %s\n        %s\n",
			state, visible.Line(r.Name), visible.Line(strings.Join(r.Domains, ", ")), visible.Line(r.Description))
		for _, t := range r.Credentials {
			fmt.Fprintf(e.Stdout, "        %s in %s\n", t.Name, strings.Join(t.In, ", "))
		}
	}
	for _, f := range found {
		if f.API != "" && f.Severity == "error" {
			fmt.Fprintf(e.Stdout, "%s  %s\n", p(terminal.Red, "broken"), visible.Line(f.Text))
		}
	}
	if len(rows) == 0 {
		fmt.Fprintf(e.Stdout, "There are no APIs in %s; codeforge api add NAME adds one.\n", visible.Line(o.apis))
	}
	return nil
}

func (o *apiOptions) check(e *Env, name string) error {
	found, cat := inspect(e, o.apis)
	var own []finding
	for _, f := range found {
		if f.API == name {
			own = append(own, f)
		}
	}
	a := cat.API(name)
	if a == nil && len(own) == 0 {
		return fmt.Errorf("there is no API %q in %s; codeforge api list lists them", name, o.apis)
	}
	if o.json || len(own) > 0 {
		return showFindings(e, own, cat, o.json)
	}
	_, err := fmt.Fprintf(e.Stdout, "%s has no mistakes.\n", visible.Line(name))
	return err
}
