package cli

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/secret"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/apidir"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/visible"
)

func apiCommand() command {
	return command{
		name: "api", usage: "api add|list|check|test|search [NAME]",
		summary: "add, list, check, try or search the APIs in apis/",
		details: `
  api add NAME    writes apis/NAME/config.json, mode 0600. On a terminal it prompts for what the flags leave out. The
                  credential is never a flag: it is prompted for without echo, or read as one line from standard input.
  api list        lists every API, inactive ones included
  api check NAME  looks for mistakes in one API, without starting anything
  api test NAME   makes one harmless request through the running CodeForge and explains what happened
  api search WORDS  asks the running CodeForge which operations, tools and skills fit, as a model does

Exit codes: 0 done, or no mistakes; 1 there are mistakes, or the test failed; 2 wrong command line.`,
		setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			var o apiOptions
			o.target = targetFlags(fs)
			fs.StringVar(&o.apis, "apis", "apis", "`DIR` of the APIs")
			fs.Var(&o.domains, "domain", "add: a host `NAME` of the API, or *.suffix; repeatable")
			fs.Var(&o.tokens, "token", "add: the token `NAME` that code writes, e.g. STRIPE_AUTH_TOKEN; repeatable")
			fs.Var(&o.surfaces, "in", "add: a `SURFACE` where the token may appear: header, header:Name, query:name, path, "+
				"body:field; repeatable (default header)")
			fs.Var(&o.restrict, "restrict", "add: a `METHOD` to refuse; repeatable")
			fs.StringVar(&o.reference, "reference", "", "add: `URL` of the API's documentation")
			fs.StringVar(&o.description, "description", "", "add: one `LINE` that describes the API")
			fs.StringVar(&o.path, "path", "/", "test: the `PATH` to request")
			fs.StringVar(&o.api, "api", "", "search: in the API of this `NAME` only")
			fs.BoolVar(&o.json, "json", false, "print JSON")
			return o.run
		},
	}
}

// apiOptions are the flags of api.
type apiOptions struct {
	target                              target
	apis, reference, description, path  string
	api                                 string
	domains, tokens, surfaces, restrict words
	json                                bool
}

// words is a flag that may be given several times, or with commas.
type words []string

func (w *words) String() string { return strings.Join(*w, ",") }

// Set adds the words of s.
func (w *words) Set(s string) error {
	*w = append(*w, list(s)...)
	return nil
}

func (o *apiOptions) run(ctx context.Context, e *Env, args []string) error {
	if len(args) == 0 {
		return usageError("api: add, list, check, test or search?")
	}
	verb, rest := args[0], args[1:]
	if verb == "search" && len(rest) > 0 {
		return o.search(ctx, e, strings.Join(rest, " "))
	}
	want := 1
	if verb == "list" {
		want = 0
	}
	if len(rest) != want {
		return usageError("api %s takes %s, got %d", verb, count(want, "name"), len(rest))
	}
	switch verb {
	case "add":
		return o.add(e, rest[0])
	case "list":
		return o.list(e)
	case "check":
		return o.check(e, rest[0])
	case "test":
		return o.test(ctx, e, rest[0])
	}
	return usageError("api %q: want add, list, check, test or search", verb)
}

// add prompts for what is missing and writes the API.
func (o *apiOptions) add(e *Env, name string) error {
	in := prompter{e: e, terminal: term.IsTerminal(int(e.Stdin.Fd())), lines: bufio.NewReader(e.Stdin)}
	entry := apidir.Entry{
		Name: name, Description: o.description, Domains: o.domains, Reference: o.reference, Restricted: o.restrict,
	}
	var err error
	if len(entry.Domains) == 0 {
		var text string
		if text, err = in.line("Host name(s) of the API, e.g. api.stripe.com: ", "--domain"); err != nil {
			return err
		}
		entry.Domains = list(text)
	}
	if len(o.tokens) == 0 && in.terminal {
		text, err := in.line("Token name that code writes ["+defaultToken(name)+"]: ", "--token")
		if err != nil {
			return err
		}
		if text == "" {
			text = defaultToken(name)
		}
		o.tokens = list(text)
	}
	for _, token := range o.tokens {
		value, err := in.secret("Credential for " + token + " (not shown): ")
		if err != nil {
			return err
		}
		entry.Credentials = append(entry.Credentials, apidir.Credential{Name: token, Value: value, Surfaces: o.surfaces})
	}
	if entry.Description == "" {
		entry.Description = name
	}
	path, warnings, err := apidir.Add(o.apis, entry)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintf(e.Stderr, "warning: %s\n", visible.Line(w.String()))
	}
	if o.json {
		return printJSON(e.Stdout, map[string]any{"name": name, "file": path})
	}
	fmt.Fprintf(e.Stdout, "Wrote %s (mode 0600). A running CodeForge loads it by itself; "+
		"codeforge api test %s tries it.\n", visible.Line(path), name)
	return nil
}

// defaultToken is the usual token name of an API.
func defaultToken(api string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, api)
	return name + "_AUTH_TOKEN"
}

// prompter prompts on a terminal, and otherwise reads lines from standard input.
type prompter struct {
	e        *Env
	terminal bool
	lines    *bufio.Reader
}

// line prompts for one line; without a terminal the flag is required.
func (p prompter) line(question, flagName string) (string, error) {
	if !p.terminal {
		return "", usageError("%s is missing, and standard input is not a terminal to prompt on", flagName)
	}
	fmt.Fprint(p.e.Stderr, question)
	line, err := p.lines.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	return strings.TrimSpace(line), nil
}

// secret reads a credential without showing it.
func (p prompter) secret(question string) (secret.Value, error) {
	var text string
	if p.terminal {
		fmt.Fprint(p.e.Stderr, question)
		data, err := term.ReadPassword(int(p.e.Stdin.Fd()))
		fmt.Fprintln(p.e.Stderr)
		if err != nil {
			return secret.Value{}, fmt.Errorf("reading the credential: %w", err)
		}
		text = string(data)
	} else {
		line, err := p.lines.ReadString('\n')
		if err != nil && (!errors.Is(err, io.EOF) || line == "") {
			return secret.Value{}, errors.New("reading the credential: standard input has no more lines")
		}
		text = line
	}
	return secret.New(strings.TrimSpace(text)), nil
}

// apiRow is one line of api list.
type apiRow struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Domains     []string `json:"domains"`
	Tokens      []token  `json:"credentials"`
	Restricted  []string `json:"restricted_methods,omitempty"`
	Allowed     []string `json:"allowed_methods,omitempty"`
	Active      bool     `json:"active"`
}

type token struct {
	Name string   `json:"name"`
	In   []string `json:"in"`
}

func row(a *catalog.API) apiRow {
	r := apiRow{
		Name: a.Name, Description: a.Description, Active: a.Active,
		Restricted: a.Methods.Restricted, Allowed: a.Methods.Allowed,
	}
	for _, h := range a.Hosts {
		r.Domains = append(r.Domains, h.String())
	}
	for _, c := range a.Credentials {
		t := token{Name: c.Name}
		for _, s := range c.Surfaces {
			t.In = append(t.In, s.String())
		}
		r.Tokens = append(r.Tokens, t)
	}
	return r
}

func (o *apiOptions) list(e *Env) error {
	found, cat := inspect(e, o.apis)
	for _, f := range found {
		if f.File == o.apis {
			return errors.New(f.Text)
		}
	}
	rows := []apiRow{}
	for _, a := range cat.APIs() {
		rows = append(rows, row(a))
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
		var tokens []string
		for _, t := range r.Tokens {
			tokens = append(tokens, t.Name+" in "+strings.Join(t.In, ", "))
		}
		fmt.Fprintf(e.Stdout, "%s  %-14s %s\n        %s\n",
			state, visible.Line(r.Name), visible.Line(strings.Join(r.Domains, ", ")), visible.Line(r.Description))
		for _, t := range tokens {
			fmt.Fprintf(e.Stdout, "        %s\n", t)
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
