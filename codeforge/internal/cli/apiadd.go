package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/secret"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/apidir"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/document"
	"github.com/codeforge-mcp/codeforge/internal/visible"
)

// add writes an API: from a document, from the example of its name, or from flags and answers.
func (o *apiOptions) add(ctx context.Context, e *Env, name string) error {
	if err := apidir.Free(o.apis, name); err != nil {
		return err
	}
	if flagName, from, err := o.described(); err != nil {
		return err
	} else if from != "" {
		return o.addDocument(ctx, e, name, flagName, from)
	}
	for flagName, given := range map[string]bool{
		"--server": o.server != "", "--scheme": o.scheme != "", "--var": len(o.vars) > 0, "--only-operations": o.only,
	} {
		if given {
			return usageError("%s goes with --openapi, --graphql or --google", flagName)
		}
	}
	if o.plain() {
		text, tokens, err := apidir.Example(o.apis, name)
		if err != nil {
			return err
		}
		if text != nil {
			return o.addExample(e, name, text, tokens)
		}
	}
	entry, err := o.ask(e, name)
	if err != nil {
		return err
	}
	return o.finish(e, newPrompter(e), entry)
}

// plain reports whether no flag says what the API is.
func (o *apiOptions) plain() bool {
	return len(o.domains)+len(o.tokens)+len(o.surfaces)+len(o.restrict) == 0 && o.description == "" && o.reference == "" &&
		!o.readOnly
}

// addExample uses the example of an API as its config.json.
func (o *apiOptions) addExample(e *Env, name string, text []byte, tokens []string) error {
	fmt.Fprintf(e.Stderr, "apis/%s has an example, which becomes its config.json.\n", visible.Line(name))
	in, values := newPrompter(e), map[string]secret.Value{}
	for _, token := range tokens {
		value, err := in.secret("Credential for " + visible.Line(token) + " (not shown): ")
		if err != nil {
			return err
		}
		values[token] = value
	}
	path, warnings, err := apidir.AddExample(o.apis, name, text, values)
	return o.wrote(e, name, path, warnings, err)
}

// ask prompts for what the flags leave out, and checks each answer at once.
func (o *apiOptions) ask(e *Env, name string) (apidir.Entry, error) {
	in := newPrompter(e)
	entry := apidir.Entry{
		Name: name, Description: o.description, Domains: o.domains, Reference: o.reference, Restricted: o.restrict,
	}
	if o.readOnly {
		entry.Allowed = readOnly()
	}
	if len(entry.Domains) == 0 {
		const question = "Host name(s) of the API, or a URL of it, e.g. api.stripe.com: "
		text, err := in.line(question, "--domain", func(s string) (string, error) {
			hosts, err := hostsOf(s)
			return strings.Join(hosts, ","), err
		})
		if err != nil {
			return entry, err
		}
		if entry.Domains = list(text); in.terminal {
			fmt.Fprintf(e.Stderr, "  hosts: %s\n", visible.Line(strings.Join(entry.Domains, ", ")))
		}
	}
	if in.terminal {
		if err := o.askMore(in, &entry); err != nil {
			return entry, err
		}
	}
	for _, token := range o.tokens {
		entry.Credentials = append(entry.Credentials, apidir.Credential{Name: token, Surfaces: o.surfaces})
	}
	if entry.Description == "" {
		entry.Description = name
	}
	return entry, nil
}

// askMore prompts for what has a default.
func (o *apiOptions) askMore(in prompter, entry *apidir.Entry) error {
	var err error
	if entry.Description == "" {
		entry.Description, err = in.line("What it is for, in a line that the model reads ["+entry.Name+"]: ", "--description",
			func(s string) (string, error) { return s, nil })
		if err != nil {
			return err
		}
	}
	if len(o.tokens) == 0 {
		usual := defaultToken(entry.Name)
		text, err := in.line("Token name that code writes ["+usual+"], or none: ", "--token", func(s string) (string, error) {
			switch {
			case s == "":
				return usual, nil
			case s != "none" && slices.ContainsFunc(list(s), func(t string) bool { return !catalog.ValidTokenName(t) }):
				return "", errors.New("found no token name; want 5 to 64 of A-Z, 0-9 and _, starting with a letter")
			}
			return s, nil
		})
		if err != nil {
			return err
		}
		if text != "none" {
			o.tokens = list(text)
		}
	}
	if len(o.surfaces) == 0 && len(o.tokens) > 0 {
		text, err := in.line("Where requests carry it: header, header:X-Api-Key, query:key, path or body:field [header]: ",
			"--in", func(s string) (string, error) {
				for _, surface := range list(s) {
					if _, err := catalog.ParseSurface(surface); err != nil {
						return "", fmt.Errorf("%q: %w; want e.g. header, header:X-Api-Key or query:key", surface, err)
					}
				}
				return s, nil
			})
		if err != nil {
			return err
		}
		o.surfaces = list(text)
	}
	if len(entry.Restricted) == 0 && entry.Allowed == nil {
		text, err := in.line("Methods to refuse, e.g. POST,PUT,PATCH,DELETE [none]: ", "--restrict",
			func(s string) (string, error) {
				if s == "none" {
					s = ""
				}
				return s, apidir.Check(o.apis, apidir.Entry{Name: entry.Name, Description: entry.Name, Domains: entry.Domains,
					Restricted: list(s)})
			})
		if err != nil {
			return err
		}
		entry.Restricted = list(text)
	}
	return nil
}

// hostsOf are the hosts of a list of names and URLs.
func hostsOf(s string) ([]string, error) {
	var out []string
	for _, text := range list(s) {
		if u, err := url.Parse(text); err == nil && u.Host != "" {
			if text = u.Host; u.Port() == "443" || u.Port() == "80" {
				text = u.Hostname()
			}
		} else {
			text, _, _ = strings.Cut(text, "/")
		}
		p, err := catalog.ParseHostPattern(text)
		if err != nil {
			return nil, fmt.Errorf("found %q, which is %w; want a host name like api.example.com", text, err)
		}
		if !slices.Contains(out, p.String()) {
			out = append(out, p.String())
		}
	}
	if len(out) == 0 {
		return nil, errors.New("found nothing; want a host name like api.example.com")
	}
	return out, nil
}

// readOnly are the methods of --read-only.
func readOnly() []string { return []string{"GET", "HEAD"} }

// finish checks an entry before its credentials are typed, asks for them, and writes it.
func (o *apiOptions) finish(e *Env, in prompter, entry apidir.Entry) error {
	trial := entry
	trial.Credentials = slices.Clone(entry.Credentials)
	for i := range trial.Credentials {
		trial.Credentials[i].Value = secret.New(fmt.Sprintf("not-typed-yet-%d", i))
	}
	if err := apidir.Check(o.apis, trial); err != nil {
		return err
	}
	for i := range entry.Credentials {
		c := &entry.Credentials[i]
		value, err := in.secret("Credential for " + visible.Line(c.Name) + c.Kind + " (not shown): ")
		if err != nil {
			return err
		}
		c.Value = value
	}
	path, warnings, err := apidir.Add(o.apis, entry)
	return o.wrote(e, entry.Name, path, warnings, err)
}

// wrote says what was written.
func (o *apiOptions) wrote(e *Env, name, path string, warnings catalog.Problems, err error) error {
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
func defaultToken(api string) string { return document.TokenName(api, "AUTH_TOKEN") }
