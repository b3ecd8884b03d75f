package graphql

import (
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// Question is the introspection query for Import. It follows types to a depth of seven, enough for the nested lists of
// real schemas.
const Question = `query IntrospectionQuery { __schema { queryType { name } mutationType { name } ` +
	`subscriptionType { name } types { kind name description ` +
	`fields(includeDeprecated: true) { name description args { ...V } type { ...T } isDeprecated } ` +
	`inputFields { ...V } enumValues(includeDeprecated: true) { name isDeprecated } possibleTypes { name } } } } ` +
	`fragment V on __InputValue { name description type { ...T } defaultValue } ` +
	`fragment T on __Type { kind name ofType { kind name ofType { kind name ofType { kind name ` +
	`ofType { kind name ofType { kind name ofType { kind name ofType { kind name } } } } } } } }`

// introspection parses the response to an introspection.
func introspection(root *jsonread.Node) (*schema, error) {
	from := root.Get("__schema")
	if from == nil {
		from = root.At("data", "__schema")
	}
	if from == nil {
		if first := root.Get("errors").Items(); len(first) > 0 {
			message := document.Line(first[0].Node.Str("message"), 120)
			return nil, &document.Refused{Found: "errors instead of a schema: " + message,
				Want: "the answer to an introspection, or a file in the schema language"}
		}
		return nil, &document.Refused{Found: "JSON without __schema", Want: "the answer to an introspection of GraphQL"}
	}
	s := &schema{types: map[string]*definition{}, query: from.At("queryType").Str("name"),
		mutation: from.At("mutationType").Str("name"), subscription: from.At("subscriptionType").Str("name")}
	for _, t := range from.Get("types").Items() {
		name := t.Node.Str("name")
		if strings.HasPrefix(name, "__") { // part of the introspection
			continue
		}
		kind := map[string]string{"OBJECT": "object", "INTERFACE": "object", "INPUT_OBJECT": "input", "ENUM": "enum",
			"UNION": "union", "SCALAR": "scalar"}[t.Node.Str("kind")]
		if kind == "" {
			return nil, fmt.Errorf("the type %s of the kind %s", document.Line(name, 60), document.Line(t.Node.Str("kind"), 60))
		}
		d, err := s.add(name, kind)
		if err != nil {
			return nil, err
		}
		d.description = t.Node.Str("description")
		if err := s.body(d, t.Node); err != nil {
			return nil, fmt.Errorf("the type %s: %w", name, err)
		}
	}
	return s, s.roots()
}

// body parses the members of a type.
func (s *schema) body(d *definition, n *jsonread.Node) error {
	for _, list := range []string{"fields", "inputFields"} {
		for _, m := range n.Get(list).Items() {
			f, err := s.field(m.Node, list == "inputFields")
			if err != nil {
				return err
			}
			names := map[string]bool{}
			for _, a := range m.Node.Get("args").Items() {
				argument, err := s.field(a.Node, true)
				if err != nil {
					return err
				}
				if !names[argument.name] {
					names[argument.name] = true
					f.arguments = append(f.arguments, argument)
				}
			}
			d.put(f)
		}
	}
	list := n.Get("enumValues").Items()
	if d.kind == "union" {
		list = n.Get("possibleTypes").Items()
	}
	for _, m := range list {
		if d.kind != "enum" && d.kind != "union" {
			break
		}
		name := m.Node.Str("name")
		if err := s.checkMember("value", name); err != nil {
			return err
		}
		if !m.Node.True("isDeprecated") {
			d.members = append(d.members, name)
		}
	}
	return nil
}

func (s *schema) field(n *jsonread.Node, input bool) (field, error) {
	f := field{name: n.Str("name"), description: n.Str("description"), input: input, deprecated: n.True("isDeprecated"),
		preset: n.Get("defaultValue").Is(jsonread.String)}
	err := s.checkMember("field", f.name)
	if err == nil {
		f.typ, err = reference(n.Get("type"))
	}
	return f, err
}

// maxWrapped bounds the lists and exclamation marks around a type.
const maxWrapped = 30

// reference returns a type in the syntax of the schema language.
func reference(n *jsonread.Node) (string, error) {
	before, after := "", ""
	for range maxWrapped {
		switch n.Str("kind") {
		case "NON_NULL":
			after = "!" + after
		case "LIST":
			before, after = before+"[", "]"+after
		default:
			if name := n.Str("name"); identifier(name) {
				return before + name + after, nil
			}
			return "", fmt.Errorf("the type %s; want a name", document.Line(n.Str("name"), 60))
		}
		n = n.Get("ofType")
	}
	return "", fmt.Errorf("a type of more than %d lists", maxWrapped)
}
