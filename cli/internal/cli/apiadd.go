package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/cli/internal/apidir"
	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// preparedAPI is an API that lacks only its credentials. With an Example, which becomes the config.json, its Entry has
// only the name and the credentials. Notes are the consequences that the user should know.
type preparedAPI struct {
	Entry   apidir.Entry
	Example []byte
	Notes   []string
}

// addAPI writes an API: from a document, from the example of its name, or from flags and answers.
func (o *apiOptions) addAPI(ctx context.Context, e *Env, name string) error {
	in := newPrompter(e)
	a, err := o.prepareAPI(ctx, &in, name)
	if err != nil {
		return err
	}
	for i := range a.Entry.Credentials {
		c := &a.Entry.Credentials[i]
		if c.Value, err = in.askSecret(ctx, "Credential for "+safetext.OneLine(c.Name)+c.Kind+" (not shown): "); err != nil {
			return err
		}
	}
	path, warnings, err := o.writeAPI(a)
	return o.printResult(ctx, e, a.Entry, path, warnings, err)
}

// prepareAPI finds everything about an API except its credentials, and checks it. It asks for missing flags if in is a
// terminal. If a document uses up standard input, in becomes the terminal.
func (o *apiOptions) prepareAPI(ctx context.Context, in *linePrompter, name string) (preparedAPI, error) {
	e, none := in.e, preparedAPI{}
	if strings.ContainsAny(name, ":.") {
		// The user has probably given a host instead of a name.
		if hosts, err := hostsOf(name); err == nil {
			return none, usageError("%q is a host, and an API has a name too: codeforge api add NAME --domain %s",
				name, strings.Join(hosts, ","))
		}
	}
	if err := apidir.CheckFree(o.apis, name); err != nil {
		return none, err
	}
	if flagName, from := o.documentFlag(); from != "" {
		return o.prepareDocument(ctx, in, name, flagName, from)
	}
	for flagName, given := range map[string]bool{
		"--server": o.server != "", "--scheme": o.scheme != "", "--var": len(o.vars) > 0, "--only-operations": o.only,
	} {
		if given {
			return none, usageError("%s goes with --openapi, --graphql or --google", flagName)
		}
	}
	if o.example != "" || o.hasNoDescription() {
		text, credentials, err := apidir.ReadExample(o.apis, cmp.Or(o.example, name))
		if err != nil {
			return none, err
		}
		if text != nil {
			return o.prepareExample(e, name, text, credentials)
		}
	}
	if o.example != "" {
		return none, fmt.Errorf("%s has no example of %q that could become the config.json of %s", o.apis, o.example, name)
	}
	entry, err := o.askMissing(ctx, *in, name)
	if err != nil {
		return none, err
	}
	return preparedAPI{Entry: entry}, o.checkEntry(entry)
}

func (o *apiOptions) hasNoDescription() bool {
	return len(o.domains)+len(o.tokens)+len(o.surfaces)+len(o.restrict) == 0 && o.description == "" && o.reference == ""
}

// prepareExample makes an example the config.json of an API. The token names of another API's example change, because a
// token name belongs to one API: for the API github-work, GITHUB_AUTH_TOKEN becomes GITHUB_WORK_AUTH_TOKEN.
func (o *apiOptions) prepareExample(e *Env, name string, text []byte, credentials []apidir.EntryCredential) (
	preparedAPI, error,
) {
	fmt.Fprintf(e.Stderr, "apis/%s has an example, which becomes the config.json of %s.\n",
		safetext.OneLine(cmp.Or(o.example, name)), safetext.OneLine(name))
	var err error
	if o.readOnly || o.askWrites {
		text, err = apidir.BoundExample(text, readOnly(), o.askWrites)
	}
	for i := range credentials {
		c := &credentials[i]
		if o.example == "" || o.example == name {
			break
		}
		to := document.TokenName(name, strings.TrimPrefix(c.Name, document.TokenName(o.example, "")))
		text = regexp.MustCompile(`\b`+regexp.QuoteMeta(c.Name)+`\b`).ReplaceAll(text, []byte(to))
		c.Name = to
	}
	return preparedAPI{Entry: apidir.Entry{Name: name, Credentials: credentials}, Example: text}, err
}

// askMissing prompts for everything that the flags omit, and checks each answer at once.
func (o *apiOptions) askMissing(ctx context.Context, in linePrompter, name string) (apidir.Entry, error) {
	e := in.e
	entry := apidir.Entry{
		Name: name, Description: o.description, Domains: o.domains, Reference: o.reference, Restricted: o.restrict,
	}
	o.boundMethods(&entry, nil)
	if err := o.checkFlags(&entry); err != nil {
		return entry, err
	}
	if len(entry.Domains) == 0 {
		const question = "Host name(s) of the API, or a URL of it, e.g. api.stripe.com: "
		text, err := in.askLine(ctx, question, "--domain", func(s string) (string, error) {
			hosts, err := hostsOf(s)
			o.plain = strings.Contains(s, "http://")
			return strings.Join(hosts, ","), err
		})
		if err != nil {
			return entry, err
		}
		if entry.Domains = splitList(text); in.terminal {
			fmt.Fprintf(e.Stderr, "  hosts: %s\n", safetext.OneLine(strings.Join(entry.Domains, ", ")))
		}
	}
	if in.terminal {
		if err := o.askMore(ctx, in, &entry); err != nil {
			return entry, err
		}
	} else if len(o.tokens) == 0 && !o.none {
		fmt.Fprintln(e.Stderr, "The API gets no credential: no --token names one.")
	}
	for _, token := range o.tokens {
		entry.Credentials = append(entry.Credentials, apidir.EntryCredential{Name: token, Surfaces: o.surfaces})
	}
	entry.Description = cmp.Or(entry.Description, name)
	return entry, nil
}

// checkFlags checks the flags before the first question, so that a mistake in a flag does not waste the user's answers.
func (o *apiOptions) checkFlags(entry *apidir.Entry) error {
	var err error
	if len(entry.Domains) > 0 {
		o.plain = strings.Contains(strings.Join(entry.Domains, ","), "http://")
		if entry.Domains, err = hostsOf(strings.Join(entry.Domains, ",")); err != nil {
			return usageError("--domain: %w", err)
		}
	}
	if len(o.tokens) > 0 {
		text, err := tokensOf(strings.Join(o.tokens, ","))
		if err != nil {
			return usageError("--token: %w", err)
		}
		o.tokens, o.none = splitList(text), text == ""
	}
	if _, err := surfacesOf(strings.Join(o.surfaces, ",")); err != nil {
		return usageError("--in: %w", err)
	}
	return nil
}

// tokensOf checks a list of token names. The word "none" becomes an empty list.
func tokensOf(s string) (string, error) {
	if s == "none" {
		return "", nil
	}
	if slices.ContainsFunc(splitList(s), func(t string) bool { return !catalog.ValidTokenName(t) }) {
		return "", errors.New("found no token name; want 5 to 64 of A-Z, 0-9 and _, starting with a letter")
	}
	return s, nil
}

// surfacesOf checks a list of surfaces.
func surfacesOf(s string) (string, error) {
	for _, surface := range splitList(s) {
		if _, err := catalog.ParseSurface(surface); err != nil {
			return "", fmt.Errorf("%q: %w; want e.g. header, header:X-Api-Key, query:key or cookie:session", surface, err)
		}
	}
	return s, nil
}

// askMore prompts for the fields that have a default.
func (o *apiOptions) askMore(ctx context.Context, in linePrompter, entry *apidir.Entry) error {
	var err error
	if entry.Description == "" {
		const question = "Description, in one line that the model reads ["
		entry.Description, err = in.askLine(ctx, question+entry.Name+"]: ", "--description",
			func(s string) (string, error) { return s, nil })
		if err != nil {
			return err
		}
	}
	if len(o.tokens) == 0 && !o.none {
		usual := document.TokenName(entry.Name, "AUTH_TOKEN")
		question := "Token name that code writes [" + usual + "], or none: "
		text, err := in.askLine(ctx, question, "--token", func(s string) (string, error) {
			if s == "" {
				return usual, nil
			}
			return tokensOf(s)
		})
		if err != nil {
			return err
		}
		o.tokens = splitList(text)
	}
	if len(o.surfaces) == 0 && len(o.tokens) > 0 {
		const question = "Place of the credential: header, header:X-Api-Key, query:key, path or body:field [header]: "
		text, err := in.askLine(ctx, question, "--in", surfacesOf)
		if err != nil {
			return err
		}
		o.surfaces = splitList(text)
	}
	if len(entry.Restricted) == 0 && entry.Allowed == nil && entry.Rules == nil {
		text, err := in.askLine(ctx, "Methods to refuse, e.g. POST,PUT,PATCH,DELETE [none]: ", "--restrict",
			func(s string) (string, error) {
				if s == "none" {
					s = ""
				}
				return s, answerProblem(apidir.CheckEntry(o.apis, apidir.Entry{Name: entry.Name, Description: entry.Name,
					Domains: entry.Domains, Restricted: splitList(s)}))
			})
		if err != nil {
			return err
		}
		entry.Restricted = splitList(text)
	}
	return nil
}

// answerProblem returns the problem of an answer without its file and field, which the user has not seen.
func answerProblem(err error) error {
	var bad *apidir.InvalidError
	if !errors.As(err, &bad) {
		return err
	}
	p := bad.Problems[0]
	p.File, p.Field = "", ""
	return errors.New("found " + p.String())
}

// hostsOf returns the hosts in a list of names and URLs.
func hostsOf(s string) ([]string, error) {
	var out []string
	for _, text := range splitList(s) {
		if u, err := url.Parse(text); err == nil && u.Host != "" {
			// A name without a port already means these two.
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
		return nil, errors.New("no host name; want one like api.example.com")
	}
	return out, nil
}

func readOnly() []string { return []string{"GET", "HEAD"} }

// boundMethods applies --read-only or --ask-writes to an entry. All operations of a GraphQL document are POST requests
// to one path, so a rule lets queries pass.
func (o *apiOptions) boundMethods(entry *apidir.Entry, doc *document.ImportedDocument) {
	switch {
	case o.readOnly:
		entry.Allowed = readOnly()
	case o.askWrites:
		if doc != nil && doc.Head.GraphQL && len(doc.Operations) > 0 {
			entry.Rules = append(entry.Rules, apidir.Rule{GraphQL: "query", Path: doc.Operations[0].Path, Then: "allow"})
		}
		entry.Rules = append(entry.Rules, apidir.Rule{Methods: readOnly(), Then: "allow"}, apidir.Rule{Then: "approve"})
	}
}

// checkEntry checks an entry before its credentials are known, so that no credential is typed in vain.
func (o *apiOptions) checkEntry(entry apidir.Entry) error {
	entry.Credentials = slices.Clone(entry.Credentials)
	for i := range entry.Credentials {
		// CheckEntry loads the entry, so each credential needs a valid value that differs from the others.
		entry.Credentials[i].Value = secret.New(fmt.Sprintf("not-typed-yet-%d", i))
	}
	return apidir.CheckEntry(o.apis, entry)
}

// writeAPI writes an API whose credentials have their values.
func (o *apiOptions) writeAPI(a preparedAPI) (path string, warnings catalog.Problems, err error) {
	if a.Example != nil {
		return apidir.AddExample(o.apis, a.Entry.Name, a.Example, a.Entry.Credentials)
	}
	return apidir.AddAPI(o.apis, a.Entry)
}

// printResult prints the path of a written API and the next step.
func (o *apiOptions) printResult(ctx context.Context, e *Env, entry apidir.Entry, path string,
	warnings catalog.Problems, err error) error {
	if err != nil {
		return err
	}
	printEach(e.Stderr, "warning: ", convert.Each(warnings, catalog.Problem.String))
	state := o.waitForLoad(ctx, e, entry.Name, true)
	if o.json {
		return printJSON(e.Stdout, map[string]any{"name": entry.Name, "file": path})
	}
	fmt.Fprintln(e.Stdout, describeAdded(entry.Name, path, state))
	if ops := entry.Operations; ops != nil {
		fmt.Fprintf(e.Stdout, "Wrote %s (%s) beside it.\n",
			safetext.OneLine(filepath.Join(filepath.Dir(path), operation.FileName)), formatKilobytes(len(ops.File)))
	}
	if o.plain {
		fmt.Fprint(e.Stdout, "The API permits only https. To permit http, add \"allow_http\": true to the file. If the "+
			"service runs on this\nmachine or network, also add its address, e.g. \"allow_private\": [\"127.0.0.1/32\"].\n")
	}
	return nil
}

// describeAdded returns a sentence with the written file and the next step.
func describeAdded(name, path string, state loadEffect) string {
	return fmt.Sprintf("Wrote %s (mode 0600). %s; codeforge api test %s tries it.", safetext.OneLine(path), state, name)
}
