package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/cli/internal/apidir"
	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/cli/internal/google"
	"github.com/codeforge-mcp/codeforge/cli/internal/graphql"
	"github.com/codeforge-mcp/codeforge/cli/internal/openapi"
	"github.com/codeforge-mcp/codeforge/cli/internal/yamltree"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

// documentFlag returns the flag that names the document of an API, and its value. Both are empty if no such flag is
// set.
func (o *apiOptions) documentFlag() (flagName, from string) {
	for _, f := range [][2]string{{"--openapi", o.openapi}, {"--graphql", o.graphql}, {"--google", o.google}} {
		if f[1] != "" {
			return f[0], f[1]
		}
	}
	return "", ""
}

// readDocument reads and imports a document in the language of a flag. Without a flag, the document is OpenAPI's or
// Google's.
func (o *apiOptions) readDocument(ctx context.Context, e *Env, flagName, from string, with document.Options) (
	document.Source, *document.ImportedDocument, error,
) {
	if flagName == "--graphql" {
		source, endpoint, err := document.IntrospectGraphQL(ctx, from, graphql.Question, e.Stdin)
		if err != nil {
			return source, nil, err
		}
		if endpoint {
			with.Base = source.URL
		}
		doc, err := graphql.ImportSchema(source.Text, with)
		return source, doc, nameError(from, err)
	}
	if address := google.DocumentURL(from); flagName == "--google" && address != "" {
		from = address
	}
	source, err := document.ReadSource(ctx, from, e.Stdin)
	if err != nil {
		return source, nil, err
	}
	with.Base = source.URL
	doc, err := importText(flagName, source.Text, with)
	return source, doc, nameError(from, err)
}

// nameError adds the name of a document to an error.
func nameError(from string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", safetext.OneLine(from), err)
	}
	return nil
}

func importText(flagName string, text []byte, with document.Options) (*document.ImportedDocument, error) {
	if flagName == "--google" {
		return google.ImportDiscovery(text, with)
	}
	root, err := yamltree.ParseTree(text, openapi.IsExample)
	if err != nil {
		return nil, err
	}
	if root.TextOf("discoveryVersion") != "" {
		return google.ImportDiscovery(text, with)
	}
	return openapi.FromTree(root, with)
}

// prepareDocument is prepareAPI for a document, which flagName and from name. It prints a summary of the document.
func (o *apiOptions) prepareDocument(ctx context.Context, in *linePrompter, name, flagName, from string) (
	preparedAPI, error,
) {
	e, none := in.e, preparedAPI{}
	if from == "-" && in.terminal {
		return none, usageError("%s - reads the document from standard input, which is a terminal", flagName)
	}
	if len(o.surfaces) > 0 && flagName != "--graphql" {
		return none, usageError("--in does not go with %s, which says where credentials are; --scheme chooses", flagName)
	}
	source, doc, err := o.readWithServer(ctx, *in, name, flagName, from)
	if err != nil {
		return none, err
	}
	out := e.Stdout
	if o.json {
		out = e.Stderr
	}
	printDocument(out, name, doc)
	if source.Name == "-" && len(doc.Scheme.Tokens) > 0 { // the document has used up standard input
		tty, err := os.Open(terminalDevice) // open until the process ends
		if err != nil {
			return none, errors.New("the document came by standard input, so the credential cannot; want a file or a URL, or " +
				"--scheme none")
		}
		with := *e
		with.Stdin = tty
		*in = newPrompter(&with)
	}
	// Hosts are chosen before the credential is typed: it may go to each of them.
	closed, err := o.chooseHosts(ctx, *in, doc)
	if err != nil {
		return none, err
	}
	printEach(out, "  note  ", closed)
	file, err := renderOperations(doc)
	if err != nil {
		return none, err
	}
	entry := o.newEntry(name, doc)
	entry.Operations = &apidir.Operations{Source: source.Name, Only: o.only, File: file}
	return preparedAPI{Entry: entry, Notes: slices.Concat(doc.Notes, closed)}, o.checkEntry(entry)
}

// readWithServer is readDocument for a new API. If the document does not say where requests go, it asks on a terminal.
func (o *apiOptions) readWithServer(ctx context.Context, in linePrompter, name, flagName, from string) (
	document.Source, *document.ImportedDocument, error,
) {
	for {
		source, doc, err := o.readDocument(ctx, in.e, flagName, from, document.Options{
			Name: name, Server: o.server, Vars: o.vars, Scheme: o.scheme, Tokens: o.tokens, In: strings.Join(o.surfaces, ","),
			Methods: o.operationMethods(),
		})
		var missing *document.ServerError
		if !in.terminal || !errors.As(err, &missing) {
			return source, doc, err
		}
		fmt.Fprintln(in.e.Stderr, "Found "+safetext.OneLine(missing.Error()))
		question := "URL of the server, e.g. https://api.example.com/v1: "
		if missing.Variable != "" {
			question = "Value of " + safetext.OneLine(missing.Variable) + ": "
		}
		answer, err := in.askLine(ctx, question, "--server", func(s string) (string, error) { return s, nil })
		if err != nil {
			return source, nil, err
		}
		if missing.Variable != "" && answer != "" {
			o.vars[missing.Variable] = answer
		} else {
			o.server = answer // without an answer, the loop asks again
		}
	}
}

// operationMethods returns the methods that operations may have, or nil for all.
func (o *apiOptions) operationMethods() []string {
	if o.readOnly {
		return readOnly()
	}
	if len(o.restrict) == 0 {
		return nil
	}
	return slices.DeleteFunc(operation.ListMethods(), func(m string) bool {
		return slices.ContainsFunc(o.restrict, func(r string) bool { return strings.EqualFold(m, r) })
	})
}

func (o *apiOptions) newEntry(name string, doc *document.ImportedDocument) apidir.Entry {
	entry := apidir.Entry{
		Name: name, Description: o.description, Domains: doc.Hosts, Reference: o.reference, Restricted: o.restrict,
		AllowHTTP: doc.HTTP,
	}
	entry.Description = cmp.Or(entry.Description, doc.Description, name)
	for _, d := range o.domains {
		if !slices.Contains(entry.Domains, d) {
			entry.Domains = append(entry.Domains, d)
		}
	}
	o.boundMethods(&entry, doc)
	for _, t := range doc.Scheme.Tokens {
		if t.Kind == document.AccessKey {
			_, region, _ := catalog.AWSHost(serverHost(doc.Head.Server))
			entry.Credentials = append(entry.Credentials, apidir.AWSCredentials(t.Name, cmp.Or(region, "us-east-1"))...)
			continue
		}
		entry.Credentials = append(entry.Credentials,
			apidir.EntryCredential{Name: t.Name, Surfaces: []string{t.Place}, Kind: ", " + t.Kind})
	}
	return entry
}

func renderOperations(doc *document.ImportedDocument) ([]byte, error) {
	var b bytes.Buffer
	w, err := operation.NewWriter(&b, doc.Head)
	if err != nil {
		return nil, err
	}
	for _, lines := range [][]operation.Line{doc.Operations, doc.Types} {
		for _, l := range lines {
			if err := w.Write(l); err != nil {
				return nil, err
			}
		}
	}
	return b.Bytes(), w.Close()
}

func printDocument(out io.Writer, name string, doc *document.ImportedDocument) {
	fmt.Fprintf(out, "%s: %s, %s, %s\n", safetext.OneLine(name), safetext.OneLine(doc.Kind),
		countNoun(len(doc.Operations), "operation"), countNoun(len(doc.Types), "type"))
	fmt.Fprintf(out, "  host  %s\n", safetext.OneLine(strings.Join(doc.Hosts, ", ")))
	also := ""
	if len(doc.Other) > 0 {
		also = " (also: " + strings.Join(doc.Other, ", ") + "; choose with --scheme)"
	}
	for _, t := range doc.Scheme.Tokens {
		fmt.Fprintf(out, "  auth  %s -> %s in %s%s\n", safetext.OneLine(doc.Scheme.Name), t.Name, safetext.OneLine(t.Place),
			safetext.OneLine(also))
		also = ""
	}
	if len(doc.Scheme.Tokens) == 0 {
		fmt.Fprintln(out, "  auth  not in the document; --token NAME adds a bearer token if the API wants one")
	}
	printEach(out, "  note  ", doc.Notes)
}

func formatKilobytes(n int) string { return fmt.Sprintf("%d KB", (n+999)/1000) }

// updateAPI reads an API's document again. It changes neither hosts nor credentials nor other fields of config.json.
func (o *apiOptions) updateAPI(ctx context.Context, e *Env, name string) error {
	_, cat := inspectConfig(e, o.apis)
	a := cat.API(name)
	if a == nil {
		return fmt.Errorf("there is no API %q without mistakes in %s; codeforge api check %s shows why", name, o.apis, name)
	}
	flagName, from := o.documentFlag()
	if from == "" && a.Operations != nil && a.Operations.Source != "-" {
		from = a.Operations.Source
	}
	if a.Operations == nil || from == "" {
		return fmt.Errorf("%s was not imported from a file or URL; --openapi, --graphql or --google names its document", name)
	}
	old, had, err := readOperations(filepath.Join(o.apis, name, operation.FileName))
	if err != nil {
		return err
	}
	options := document.Options{
		Name: name, Server: old.Server, Vars: o.vars, Scheme: openapi.None, Methods: listAllowedMethods(a.Methods),
	}
	// The source may be a file: only the old head says that it is GraphQL.
	if old.GraphQL && flagName == "" {
		flagName = "--graphql"
		if len(had) > 0 && had[0].Path != "/" {
			options.Server += had[0].Path
		}
	}
	if o.server != "" {
		options.Server = o.server
	}
	source, doc, err := o.readDocument(ctx, e, flagName, from, options)
	if err != nil {
		return err
	}
	// The user may have renamed tokens, so the imported ones stay.
	doc.Head.Auth = old.Auth
	kept, closed := doc.Operations[:0], map[string]bool{}
	for _, l := range doc.Operations {
		// A new document must not open hosts: their operations are left out.
		if host := serverHost(l.Server); host != "" && !a.CoversHost(host) {
			closed[host] = true
			continue
		}
		kept = append(kept, l)
	}
	doc.Operations, doc.Head.Operations = kept, len(kept)
	if host := serverHost(doc.Head.Server); !a.CoversHost(host) {
		return fmt.Errorf("the server %s is not in the domains of %s: add %s there first",
			safetext.OneLine(doc.Head.Server), name, host)
	}
	file, err := renderOperations(doc)
	if err != nil {
		return err
	}
	if err := apidir.UpdateOperations(o.apis, name, file); err != nil {
		return err
	}
	added, gone := compareOperations(had, doc.Operations, old.GraphQL)
	if o.json {
		return printJSON(e.Stdout, map[string]any{
			"name": name, "operations": len(doc.Operations), "added": added, "removed": gone,
		})
	}
	fmt.Fprintf(e.Stdout, "%s: %s, +%d -%d (%s)\n",
		safetext.OneLine(name), countNoun(len(doc.Operations), "operation"), added, gone, formatKilobytes(len(file)))
	for host := range closed {
		fmt.Fprintf(e.Stdout, "  note  operations at %s were left out: it is not in \"domains\"\n", safetext.OneLine(host))
	}
	if !doc.Head.GraphQL { // a GraphQL schema names no host
		fresh, err := importText(flagName, source.Text, document.Options{Name: name, Base: source.URL, Vars: o.vars})
		if err == nil {
			o.printChanges(e.Stdout, a, old, fresh)
		}
	}
	printEach(e.Stdout, "  note  ", doc.Notes)
	return nil
}

// printChanges prints the hosts and credentials that a document needs and config.json lacks.
func (o *apiOptions) printChanges(out io.Writer, a *catalog.API, old operation.Head, doc *document.ImportedDocument) {
	for _, host := range doc.Hosts {
		if !a.CoversHost(host) {
			fmt.Fprintf(out, "  note  the document names the host %s, which is not in \"domains\" and stays closed\n",
				safetext.OneLine(host))
		}
	}
	for _, t := range doc.Scheme.Tokens {
		known := slices.ContainsFunc(old.Auth, func(x operation.Auth) bool { return strings.EqualFold(x.Place, t.Place) })
		if !known && len(old.Auth) > 0 {
			fmt.Fprintf(out, "  note  config.json was not changed: the document sends its credential in %s, and config.json "+
				"does not\n",
				safetext.OneLine(t.Place))
		}
	}
}

// serverHost returns the host of a server's URL, in the form of config.json. It returns "" for "", and "?" for an
// invalid URL, which no pattern covers.
func serverHost(server string) string {
	if server == "" {
		return ""
	}
	_, host, err := document.ParseServer(server)
	if err != nil {
		return "?"
	}
	return host
}

// listAllowedMethods returns the methods that an API allows, or nil for all.
func listAllowedMethods(m catalog.Methods) []string {
	if m.Allowed == nil && len(m.Restricted) == 0 {
		return nil
	}
	return slices.DeleteFunc(operation.ListMethods(), func(x string) bool {
		return slices.Contains(m.Restricted, x) || m.Allowed != nil && !slices.Contains(m.Allowed, x)
	})
}

func readOperations(path string) (operation.Head, []operation.Line, error) {
	f, err := os.Open(path)
	if err != nil {
		return operation.Head{}, nil, err
	}
	defer f.Close()
	r, err := operation.NewReader(f)
	if err != nil {
		return operation.Head{}, nil, fmt.Errorf("%s: %w", path, err)
	}
	var lines []operation.Line
	for {
		l, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return r.Head(), lines, nil
		case err != nil:
			return operation.Head{}, nil, fmt.Errorf("%s: %w", path, err)
		case l.Method != "":
			lines = append(lines, operation.Line{Method: l.Method, Path: l.Path, ID: l.ID})
		}
	}
}

// compareOperations counts the new and the removed operations. GraphQL's operations share one path and differ by ID.
func compareOperations(before, after []operation.Line, graphQL bool) (added, gone int) {
	have := map[string]int{}
	key := func(l operation.Line) string {
		if graphQL {
			return l.ID
		}
		return l.Method + " " + l.Path
	}
	for _, l := range before {
		have[key(l)]++
	}
	for _, l := range after {
		if have[key(l)]--; have[key(l)] < 0 {
			added++
		}
	}
	for _, n := range have {
		gone += max(n, 0)
	}
	return added, gone
}
