// Package graphql imports GraphQL schemas: the response to an introspection, or a file in the schema language.
//
// Threat: a schema is text of an unknown author (see package document). Contract: reading one takes time and memory in
// proportion to its length, at any depth of nesting. Every name in it is checked.
package graphql

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/cli/internal/tree"
)

// Import imports a schema. Requests go to Options.Server or, if that is empty, to Options.Base.
func Import(text []byte, o document.Options) (*document.Document, error) {
	s, err := read(text)
	if err != nil {
		return nil, err
	}
	doc := &document.Document{Kind: "GraphQL"}
	doc.Head.GraphQL = true
	path, err := endpoint(doc, o)
	if err != nil {
		return nil, err
	}
	doc.Description = "GraphQL at " + doc.Hosts[0]
	if d := s.types[s.query]; d != nil && d.description != "" && len(d.description) > len("The query root of GraphQL") {
		doc.Head.Title = document.Sentence(d.description, operation.MaxTitle)
	}
	if err := authentication(doc, o); err != nil {
		return nil, err
	}
	if o.Methods != nil && !contains(o.Methods, "POST") {
		return nil, &document.Refused{Found: "GraphQL without POST, by which it reads too",
			Want: "no --read-only, and a credential that may only read"}
	}
	s.operations(doc, path)
	s.definitions(doc)
	if s.subscription != "" && s.types[s.subscription] != nil {
		doc.Note("subscriptions were left out: they need a WebSocket")
	}
	if err := doc.Finish(); err != nil {
		return nil, &document.Refused{Found: "a schema without a query", Want: "the whole schema, with its root types"}
	}
	return doc, nil
}

// read parses a schema in either form.
func read(text []byte) (*schema, error) {
	const enough = 1 << 10
	start := strings.TrimPrefix(string(text[:min(len(text), enough)]), "\ufeff")
	if !strings.HasPrefix(strings.TrimLeft(start, " \t\r\n"), "{") {
		return parse(string(text))
	}
	root, err := tree.Parse(text, nil)
	if err != nil {
		return nil, err
	}
	return introspection(root)
}

// endpoint returns the path of all operations, and sets the server and its host.
func endpoint(doc *document.Document, o document.Options) (path string, err error) {
	text := o.Server
	if text == "" && o.Base != nil {
		text = o.Base.String()
	}
	if text == "" {
		return "", &document.Refused{Found: "no endpoint in a schema",
			Want: "--server https://..., the whole URL that requests go to"}
	}
	server, host, err := document.CheckServer(text)
	if err != nil {
		return "", &document.Refused{Found: "--server: " + err.Error(), Want: "a URL like https://api.example.com/graphql"}
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	if doc.HTTP = u.Scheme == "http"; doc.HTTP && o.Server == "" {
		return "", &document.Refused{Found: server + ", which is plain HTTP",
			Want: "--server http://... beside it, to let requests cross the network in clear text"}
	}
	path = u.EscapedPath()
	if path == "" {
		path = "/"
	}
	if err := operation.CheckPath(path); err != nil {
		return "", &document.Refused{Found: err.Error(), Want: "--server with another path"}
	}
	doc.Head.Server = u.Scheme + "://" + u.Host
	doc.AddHost(host)
	return path, nil
}

// authentication sets the scheme from the user's flags, because schemas do not describe authentication.
func authentication(doc *document.Document, o document.Options) error {
	if o.Scheme != "" && o.Scheme != "none" {
		return &document.Refused{Found: "--scheme " + document.Line(o.Scheme, 60),
			Want: "--token NAME, and --in header:NAME if it is not a bearer token: a schema does not say how to authenticate"}
	}
	if len(o.Tokens) == 0 || o.Scheme == "none" {
		return nil
	}
	way := document.Bearer("bearer")
	if header, ok := strings.CutPrefix(o.In, "header:"); ok {
		way = document.Header("header", header, "")
	} else if o.In != "" && o.In != "header" {
		return &document.Refused{Found: "--in " + document.Line(o.In, 60), Want: "header:NAME"}
	}
	if way.Why != "" {
		return &document.Refused{Found: way.Why, Want: "--in header:NAME with another name"}
	}
	var err error
	doc.Scheme, err = way.Scheme(o.Name, o.Tokens)
	return err
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if strings.EqualFold(x, s) {
			return true
		}
	}
	return false
}

// operations writes a line for each field of the root types.
func (s *schema) operations(doc *document.Document, path string) {
	for _, root := range []struct{ kind, name string }{{"query", s.query}, {"mutation", s.mutation}} {
		d := s.types[root.name]
		if d == nil {
			continue
		}
		for _, f := range d.fields {
			const long = 160
			l := operation.Line{Method: "POST", Path: path, ID: root.kind + " " + f.name, Tags: []string{root.kind},
				Summary: document.Sentence(f.description, long), Query: object(f.arguments), Answer: f.typ,
				Deprecated: f.deprecated}
			l.Words = document.Words(l.Summary, f.description)
			if len(l.ID) > operation.MaxID {
				continue
			}
			if _, err := operation.Marshal(l); err != nil {
				l.Query = ""
				doc.Note("arguments that are too long were left out")
			}
			doc.Operations = append(doc.Operations, l)
		}
	}
}

// definitions writes a line for each type except the roots.
func (s *schema) definitions(doc *document.Document) {
	cut := 0
	for _, name := range s.order {
		d := s.types[name]
		if name == s.query || name == s.mutation || name == s.subscription || len(name) > operation.MaxType {
			continue
		}
		l := operation.Line{Type: name, TS: d.text()}
		if l.TS == "" {
			continue
		}
		if _, err := operation.Marshal(l); err != nil {
			l.TS = "{}"
			cut++
		}
		doc.Types = append(doc.Types, l)
	}
	if cut > 0 {
		doc.Note("%d types were too large to write out, and are {}", cut)
	}
}

// text returns the content of a type: fields in braces, the values of an enum or the types of a union. It is empty for
// scalars.
func (d *definition) text() string {
	switch d.kind {
	case "enum", "union":
		return strings.Join(d.members, " | ")
	case "scalar":
		return ""
	}
	return object(d.fields)
}

// object writes fields. Required fields of an input come first.
func object(fields []field) string {
	var parts []string
	for _, required := range []bool{true, false} {
		for _, f := range fields {
			if (f.input && strings.HasSuffix(f.typ, "!") && !f.preset || !f.input) == required && (f.input || !f.deprecated) {
				parts = append(parts, f.text())
			}
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "{ " + strings.Join(parts, "; ") + " }"
}

func (f field) text() string {
	var arguments []string
	for _, a := range f.arguments {
		arguments = append(arguments, a.name+": "+a.typ)
	}
	if len(arguments) > 0 {
		return f.name + "(" + strings.Join(arguments, ", ") + "): " + f.typ
	}
	return f.name + ": " + f.typ
}

// schema is a parsed schema.
type schema struct {
	query, mutation, subscription string
	types                         map[string]*definition
	order                         []string
	size                          int
}

// definition is a type.
type definition struct {
	kind        string // object, input, enum, union or scalar; an interface is an object
	description string
	fields      []field
	members     []string        // values of an enum, or types of a union
	seen        map[string]bool // names of fields
}

// field is a field, an argument or an input field.
type field struct {
	name, typ, description    string
	arguments                 []field
	input, preset, deprecated bool
}

// maxTypes bounds the types. maxSize bounds the fields, arguments and values of all types together.
const (
	maxTypes = 100_000
	maxSize  = 1_000_000
)

var errLarge = fmt.Errorf("more than %d types, or than %d fields and values", maxTypes, maxSize)

// add returns the type of a name. It adds the type if it is new.
func (s *schema) add(name, kind string) (*definition, error) {
	if !identifier(name) {
		return nil, fmt.Errorf("the type name %s; want letters, digits and _", document.Line(name, 60))
	}
	d := s.types[name]
	if d == nil {
		if len(s.order) == maxTypes {
			return nil, errLarge
		}
		d = &definition{kind: kind, seen: map[string]bool{}}
		s.types[name] = d
		s.order = append(s.order, name)
	}
	return d, nil
}

// checkMember counts a field, argument or value, and rejects an invalid name.
func (s *schema) checkMember(what, name string) error {
	if s.size++; s.size > maxSize {
		return errLarge
	}
	if !identifier(name) {
		return fmt.Errorf("the %s %s; want a name", what, document.Line(name, 60))
	}
	return nil
}

// put adds a field, unless the type has a field of that name.
func (d *definition) put(f field) {
	if !d.seen[f.name] {
		d.seen[f.name] = true
		d.fields = append(d.fields, f)
	}
}

// roots sets the usual names for missing root types.
func (s *schema) roots() error {
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

// identifier reports whether a text is a GraphQL name of at most 200 bytes.
func identifier(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !letter(c) && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	const longest = 200
	return s != "" && len(s) <= longest
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' }
