// Package graphql imports GraphQL schemas: the response to an introspection, or a file in the schema language.
//
// Threat: a schema is text of an unknown author (see package document). Contract: reading one takes time and memory in
// proportion to its length, at any depth of nesting. Every name in it is checked.
package graphql

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/cli/internal/yamltree"
	"github.com/codeforge-mcp/codeforge/internal/convert"
)

// ImportSchema imports a schema. Requests go to Options.Server or, if that is empty, to Options.Base.
func ImportSchema(text []byte, o document.Options) (*document.ImportedDocument, error) {
	s, err := parseSchema(text)
	if err != nil {
		return nil, err
	}
	doc := &document.ImportedDocument{Kind: "GraphQL"}
	doc.Head.GraphQL = true
	path, err := setEndpoint(doc, o)
	if err != nil {
		return nil, err
	}
	doc.Description = "GraphQL at " + doc.Hosts[0]
	if d := s.types[s.query]; d != nil && d.description != "" && len(d.description) > len("The query root of GraphQL") {
		doc.Head.Title = document.FirstSentence(d.description, operation.MaxTitle)
	}
	if err := setScheme(doc, o); err != nil {
		return nil, err
	}
	if o.Methods != nil && !hasString(o.Methods, "POST") {
		return nil, &document.UnsupportedError{Found: "GraphQL without POST, by which it reads too",
			Want: "no --read-only, and a credential that may only read"}
	}
	s.writeOperations(doc, path)
	s.writeDefinitions(doc)
	if s.subscription != "" && s.types[s.subscription] != nil {
		doc.AddNote("subscriptions were left out: they need a WebSocket")
	}
	if err := doc.Finish(); err != nil {
		return nil, &document.UnsupportedError{Found: "a schema without a query",
			Want: "the whole schema, with its root types"}
	}
	return doc, nil
}

// parseSchema parses a schema in either form.
func parseSchema(text []byte) (*graphSchema, error) {
	const enough = 1 << 10
	start := strings.TrimPrefix(string(text[:min(len(text), enough)]), "\ufeff")
	if !strings.HasPrefix(strings.TrimLeft(start, " \t\r\n"), "{") {
		return parseLanguage(string(text))
	}
	root, err := yamltree.ParseTree(text, nil)
	if err != nil {
		return nil, err
	}
	return parseIntrospection(root)
}

// setEndpoint returns the path of all operations, and sets the server and its host.
func setEndpoint(doc *document.ImportedDocument, o document.Options) (path string, err error) {
	text := o.Server
	if text == "" && o.Base != nil {
		text = o.Base.String()
	}
	if text == "" {
		return "", &document.UnsupportedError{Found: "no endpoint in a schema",
			Want: "--server https://..., the whole URL that requests go to"}
	}
	server, host, err := document.ParseServer(text)
	if err != nil {
		return "", &document.UnsupportedError{Found: "--server: " + err.Error(),
			Want: "a URL like https://api.example.com/graphql"}
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	if doc.HTTP = u.Scheme == "http"; doc.HTTP && o.Server == "" {
		return "", &document.UnsupportedError{Found: server + ", which is plain HTTP",
			Want: "--server http://... beside it, to let requests cross the network in clear text"}
	}
	path = u.EscapedPath()
	path = cmp.Or(path, "/")
	if err := operation.CheckPath(path); err != nil {
		return "", &document.UnsupportedError{Found: err.Error(), Want: "--server with another path"}
	}
	doc.Head.Server = u.Scheme + "://" + u.Host
	doc.AddHost(host)
	return path, nil
}

// setScheme sets the scheme from the user's flags, because schemas do not describe authentication.
func setScheme(doc *document.ImportedDocument, o document.Options) error {
	if o.Scheme != "" && o.Scheme != "none" {
		return &document.UnsupportedError{Found: "--scheme " + document.CleanLine(o.Scheme, 60),
			Want: "--token NAME, and --in header:NAME if it is not a bearer token: a schema does not say how to authenticate"}
	}
	if len(o.Tokens) == 0 || o.Scheme == "none" {
		return nil
	}
	way := document.BearerWay("bearer")
	if header, ok := strings.CutPrefix(o.In, "header:"); ok {
		way = document.HeaderWay("header", header, "")
	} else if o.In != "" && o.In != "header" {
		return &document.UnsupportedError{Found: "--in " + document.CleanLine(o.In, 60), Want: "header:NAME"}
	}
	if way.Why != "" {
		return &document.UnsupportedError{Found: way.Why, Want: "--in header:NAME with another name"}
	}
	var err error
	doc.Scheme, err = way.NameTokens(o.Name, o.Tokens)
	return err
}

func hasString(list []string, s string) bool {
	return slices.ContainsFunc(list, func(x string) bool { return strings.EqualFold(x, s) })
}

// writeOperations writes a line for each field of the root types.
func (s *graphSchema) writeOperations(doc *document.ImportedDocument, path string) {
	for _, root := range []struct{ kind, name string }{{"query", s.query}, {"mutation", s.mutation}} {
		d := s.types[root.name]
		if d == nil {
			continue
		}
		for _, f := range d.fields {
			const long = 160
			l := operation.Line{Method: "POST", Path: path, ID: root.kind + " " + f.name, Tags: []string{root.kind},
				Summary: document.FirstSentence(f.description, long), Query: objectText(f.arguments), Answer: f.typ,
				Deprecated: f.deprecated}
			l.Words = document.SearchWords(l.Summary, f.description)
			if len(l.ID) > operation.MaxID {
				continue
			}
			if _, err := operation.MarshalLine(l); err != nil {
				l.Query = ""
				doc.AddNote("arguments that are too long were left out")
			}
			doc.Operations = append(doc.Operations, l)
		}
	}
}

// writeDefinitions writes a line for each type except the roots.
func (s *graphSchema) writeDefinitions(doc *document.ImportedDocument) {
	cut := 0
	for _, name := range s.order {
		d := s.types[name]
		if name == s.query || name == s.mutation || name == s.subscription || len(name) > operation.MaxType {
			continue
		}
		l := operation.Line{Type: name, TS: d.typeText()}
		if l.TS == "" {
			continue
		}
		if _, err := operation.MarshalLine(l); err != nil {
			l.TS = "{}"
			cut++
		}
		doc.Types = append(doc.Types, l)
	}
	if cut > 0 {
		doc.AddNote("%d types were too large to write out, and are {}", cut)
	}
}

// typeText returns the content of a type: fields in braces, the values of an enum or the types of a union. It is empty
// for scalars.
func (d *typeDefinition) typeText() string {
	switch d.kind {
	case "enum", "union":
		return strings.Join(d.members, " | ")
	case "scalar":
		return ""
	}
	return objectText(d.fields)
}

// objectText writes fields. Required fields of an input come first.
func objectText(fields []fieldDefinition) string {
	var parts []string
	for _, required := range []bool{true, false} {
		for _, f := range fields {
			if (f.input && strings.HasSuffix(f.typ, "!") && !f.preset || !f.input) == required && (f.input || !f.deprecated) {
				parts = append(parts, f.fieldText())
			}
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "{ " + strings.Join(parts, "; ") + " }"
}

func (f fieldDefinition) fieldText() string {
	arguments := convert.Each(f.arguments, func(a fieldDefinition) string { return a.name + ": " + a.typ })
	if len(arguments) > 0 {
		return f.name + "(" + strings.Join(arguments, ", ") + "): " + f.typ
	}
	return f.name + ": " + f.typ
}

type graphSchema struct {
	query, mutation, subscription string
	types                         map[string]*typeDefinition
	order                         []string
	size                          int
}

type typeDefinition struct {
	kind        string // object, input, enum, union or scalar; an interface is an object
	description string
	fields      []fieldDefinition
	members     []string        // values of an enum, or types of a union
	seen        map[string]bool // names of fields
}

// fieldDefinition is a field, an argument or an input field.
type fieldDefinition struct {
	name, typ, description    string
	arguments                 []fieldDefinition
	input, preset, deprecated bool
}

// maxTypes bounds the types. maxSize bounds the fields, arguments and values of all types together.
const (
	maxTypes = 100_000
	maxSize  = 1_000_000
)

var errLarge = fmt.Errorf("more than %d types, or than %d fields and values", maxTypes, maxSize)

// addType returns the type of a name. It adds the type if it is new.
func (s *graphSchema) addType(name, kind string) (*typeDefinition, error) {
	if !isName(name) {
		return nil, fmt.Errorf("the type name %s; want letters, digits and _", document.CleanLine(name, 60))
	}
	d := s.types[name]
	if d == nil {
		if len(s.order) == maxTypes {
			return nil, errLarge
		}
		d = &typeDefinition{kind: kind, seen: map[string]bool{}}
		s.types[name] = d
		s.order = append(s.order, name)
	}
	return d, nil
}

// checkMember counts a field, argument or value, and rejects an invalid name.
func (s *graphSchema) checkMember(what, name string) error {
	if s.size++; s.size > maxSize {
		return errLarge
	}
	if !isName(name) {
		return fmt.Errorf("the %s %s; want a name", what, document.CleanLine(name, 60))
	}
	return nil
}

// addField adds a field, unless the type has a field with this name already.
func (d *typeDefinition) addField(f fieldDefinition) {
	if !d.seen[f.name] {
		d.seen[f.name] = true
		d.fields = append(d.fields, f)
	}
}

// setRoots sets the usual names for missing root types.
func (s *graphSchema) setRoots() error {
	for _, r := range []struct {
		name  *string
		usual string
	}{{&s.query, "Query"}, {&s.mutation, "Mutation"}, {&s.subscription, "Subscription"}} {
		if *r.name == "" && s.types[r.usual] != nil {
			*r.name = r.usual
		}
	}
	if s.types[s.query] == nil && s.types[s.mutation] == nil {
		return errors.New("no query and no mutation in the schema; want a whole schema of GraphQL")
	}
	return nil
}

// isName reports whether a text is a GraphQL name of at most 200 bytes.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !isLetter(c) && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	const longest = 200
	return s != "" && len(s) <= longest
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' }
