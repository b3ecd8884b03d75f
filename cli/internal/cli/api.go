package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

func apiCommand(e *Env) *cobra.Command {
	c := groupCommand("api", "add, change, list, check, try or search the APIs in apis/")
	o := &apiOptions{vars: map[string]string{}}
	o.target = targetFlags(c.PersistentFlags())
	c.PersistentFlags().StringVar(&o.apis, "apis", "apis", "`DIR` of the APIs")
	c.PersistentFlags().BoolVar(&o.json, "json", false, "print JSON")
	update := nameCommand(e, "api update", "read the document again; hosts and credentials stay", o.updateAPI)
	o.documentFlags(update)
	test := nameCommand(e, "api test", "make one harmless request, and explain what happened", o.testAPI)
	test.Use, test.Args = "test [NAME]", cobra.MaximumNArgs(1)
	test.RunE = func(c *cobra.Command, a []string) error { return o.testAll(c.Context(), e, strings.Join(a, "")) }
	test.Flags().StringVar(&o.path, "path", "", "the `PATH` to request (default: / or a path that the rules allow)")
	search := &cobra.Command{
		Use: "search WORDS...", Short: "search operations, tools and skills, as a model does",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, a []string) error {
			return o.searchAPIs(c.Context(), e, strings.Join(a, " "))
		},
	}
	search.Flags().StringVar(&o.api, "api", "", "only in the API of this `NAME`")
	search.Flags().BoolVar(&o.explainHits, "explain", false, "print why each result was found: words, meaning, intent")
	explain := &cobra.Command{
		Use: "explain NAME METHOD PATH", Short: "say which rules and methods decide on a request",
		Args: cobra.ExactArgs(3), ValidArgsFunction: completeNames(e),
		RunE: func(_ *cobra.Command, a []string) error {
			return o.explainRequest(e, a[0], strings.ToUpper(a[1]), a[2])
		},
	}
	edit := nameCommand(e, "api edit", "open config.json in $VISUAL or $EDITOR, and check it", o.editConfig)
	c.AddCommand(o.addCommand(e), update,
		&cobra.Command{
			Use: "list", Short: "list every API, inactive ones included",
			RunE: func(*cobra.Command, []string) error { return o.listAPIs(e) },
		},
		nameCommand(e, "api check", "look for mistakes in one API, without starting CodeForge", o.checkAPI),
		test, search, explain, edit)
	c.AddCommand(o.changeCommands(e, "api", "API")...)
	return c
}

func (o *apiOptions) addCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "add NAME", Short: "write apis/NAME/config.json, mode 0600",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, a []string) error { return o.addAPI(c.Context(), e, a[0]) },
	}
	flags := c.Flags()
	flags.StringSliceVar(&o.domains, "domain", nil, "a host `NAME` of the API, or *.suffix; repeatable")
	flags.StringSliceVar(&o.tokens, "token", nil, "the token `NAME` that code writes, e.g. STRIPE_AUTH_TOKEN; repeatable")
	flags.StringSliceVar(&o.surfaces, "in", nil, "a `SURFACE` where the token may appear: header, header:Name, "+
		"query:name, path, body:field, cookie:name; repeatable (default: header)")
	flags.StringSliceVar(&o.restrict, "restrict", nil, "a `METHOD` to refuse; repeatable")
	flags.StringVar(&o.reference, "reference", "", "`URL` of the API's documentation")
	flags.StringVar(&o.description, "description", "", "one `LINE` that describes the API")
	flags.StringVar(&o.scheme, "scheme", "", "`NAME` of the document's way to authenticate, or none")
	flags.BoolVar(&o.readOnly, "read-only", false, "allow GET and HEAD only")
	flags.BoolVar(&o.askWrites, "ask-writes", false, "wait for codeforge approve, unless a request only reads")
	flags.StringVar(&o.example, "example", "", "use the example of the API of this `NAME`")
	c.MarkFlagsMutuallyExclusive("ask-writes", "read-only", "restrict")
	flags.BoolVar(&o.only, "only-operations", false, "refuse requests that are not an operation of the document")
	o.documentFlags(c)
	// An example has what these flags say.
	for _, name := range []string{"domain", "token", "in", "restrict", "reference", "description", "scheme",
		"only-operations", "openapi", "graphql", "google"} {
		c.MarkFlagsMutuallyExclusive("example", name)
	}
	return c
}

// documentFlags declares the flags that name the document of an API.
func (o *apiOptions) documentFlags(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&o.openapi, "openapi", "", "`FILE|URL|-` of an OpenAPI or Swagger document")
	flags.StringVar(&o.graphql, "graphql", "",
		"`FILE|URL|-` of a schema of GraphQL, or the URL of an endpoint that shows it without a credential")
	flags.StringVar(&o.google, "google", "",
		"`FILE|URL|NAME:VERSION` of a document of Google's discovery service, e.g. drive:v3")
	flags.StringVar(&o.server, "server", "", "`URL` that requests go to, instead of the document's")
	flags.Func("var", "`NAME=VALUE` of a variable in the document's server; repeatable", o.parseVariable)
	c.MarkFlagsMutuallyExclusive("openapi", "graphql", "google")
}

// changeCommands returns the commands of api and mcp that switch an API on or off or remove it.
func (o *apiOptions) changeCommands(e *Env, group, noun string) []*cobra.Command {
	activate := func(on bool) func(context.Context, *Env, string) error {
		return func(ctx context.Context, e *Env, name string) error { return o.setActive(ctx, e, name, on) }
	}
	remove := nameCommand(e, group+" rm", "remove an "+noun+" with its credentials", o.removeAPI)
	remove.Flags().BoolVar(&o.yes, "yes", false, "remove without confirmation")
	return []*cobra.Command{
		nameCommand(e, group+" enable", "switch an "+noun+" on", activate(true)),
		nameCommand(e, group+" disable", "switch an "+noun+" off; its credentials are still scrubbed", activate(false)),
		remove,
	}
}

// nameCommand returns a command of api or mcp, such as "api edit", whose argument is the NAME of an API.
func nameCommand(e *Env, path, short string, run func(context.Context, *Env, string) error) *cobra.Command {
	_, verb, _ := strings.Cut(path, " ")
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: completeNames(e),
		RunE: func(c *cobra.Command, a []string) error { return run(c.Context(), e, a[0]) },
	}
}

type apiOptions struct {
	target                               serverTarget
	apis, reference, description, path   string
	openapi, graphql, google             string
	server, scheme, api                  string
	example                              string
	vars                                 map[string]string
	domains, tokens, surfaces, restrict  []string
	json, readOnly, askWrites, only, yes bool
	explainHits                          bool // --explain
	none                                 bool // --token none
	plain                                bool // a host was given as a URL with http
}

func (o *apiOptions) parseVariable(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return fmt.Errorf("found %q; want NAME=VALUE", s)
	}
	o.vars[name] = value
	return nil
}

// hideSecrets returns the parts of an API that may be shown: no credential values.
func hideSecrets(a *catalog.API) proxyapi.InspectedAPI {
	return proxyapi.InspectedAPI{Active: a.Active, API: proxyapi.API{
		Name: a.Name, Description: a.Description,
		RestrictedMethods: a.Methods.Restricted, AllowedMethods: a.Methods.Allowed,
		Domains: convert.Each(a.Hosts, catalog.HostPattern.String), AllowHTTP: a.AllowHTTP,
		Credentials: convert.Each(a.Credentials, func(c catalog.Credential) proxyapi.Token {
			return proxyapi.Token{Name: c.Name, In: convert.Each(c.Surfaces, catalog.Surface.String)}
		}),
	}}
}

func (o *apiOptions) listAPIs(e *Env) error {
	found, cat := inspectConfig(e, o.apis)
	for _, f := range found {
		if f.File == o.apis {
			return errors.New(f.Text)
		}
	}
	rows := convert.Each(cat.APIs(), hideSecrets)
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
			state, safetext.OneLine(r.Name), safetext.OneLine(strings.Join(r.Domains, ", ")), safetext.OneLine(r.Description))
		for _, t := range r.Credentials {
			fmt.Fprintf(e.Stdout, "        %s in %s\n", t.Name, strings.Join(t.In, ", "))
		}
	}
	for _, f := range found {
		if f.API != "" && f.Severity == "error" {
			fmt.Fprintf(e.Stdout, "%s  %s\n", p(terminal.Red, "broken"), safetext.OneLine(f.Text))
		}
	}
	if len(rows) == 0 {
		fmt.Fprintf(e.Stdout, "There are no APIs in %s; codeforge api add NAME adds one.\n", safetext.OneLine(o.apis))
	}
	return nil
}

func (o *apiOptions) checkAPI(_ context.Context, e *Env, name string) error {
	found, cat := inspectConfig(e, o.apis)
	own := slices.DeleteFunc(found, func(f checkFinding) bool { return f.API != name })
	a := cat.API(name)
	if a == nil && len(own) == 0 {
		return fmt.Errorf("there is no API %q in %s; codeforge api list lists them", name, o.apis)
	}
	if o.json || len(own) > 0 {
		return showFindings(e, own, cat, o.json)
	}
	_, err := fmt.Fprintf(e.Stdout, "%s has no mistakes.\n", safetext.OneLine(name))
	return err
}
