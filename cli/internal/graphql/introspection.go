package graphql

import (
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// Question is the introspection query for ImportSchema. It follows types to a depth of seven, enough for the nested
// lists of real schemas.
const Question = `query IntrospectionQuery { __schema { queryType { name } mutationType { name } ` +
	`subscriptionType { name } types { kind name description ` +
	`fields(includeDeprecated: true) { name description args { ...V } type { ...T } isDeprecated } ` +
	`inputFields { ...V } enumValues(includeDeprecated: true) { name isDeprecated } possibleTypes { name } } } } ` +
	`fragment V on __InputValue { name description type { ...T } defaultValue } ` +
	`fragment T on __Type { kind name ofType { kind name ofType { kind name ofType { kind name ` +
	`ofType { kind name ofType { kind name ofType { kind name ofType { kind name } } } } } } } }`

func parseIntrospection(root *jsonread.Node) (*graphSchema, error) {
	from := root.GetValue("__schema")
	if from == nil {
		from = root.FollowKeys("data", "__schema")
	}
	if from == nil {
		if first := root.GetValue("errors").ListItems(); len(first) > 0 {
			message := document.CleanLine(first[0].Node.TextOf("message"), 120)
			return nil, &document.UnsupportedError{Found: "errors instead of a schema: " + message,
				Want: "the answer to an introspection, or a file in the schema language"}
		}
		return nil, &document.UnsupportedError{Found: "JSON without __schema",
			Want: "the answer to an introspection of GraphQL"}
	}
	s := &graphSchema{types: map[string]*typeDefinition{}, query: from.FollowKeys("queryType").TextOf("name"),
		mutation:     from.FollowKeys("mutationType").TextOf("name"),
		subscription: from.FollowKeys("subscriptionType").TextOf("name")}
	for _, t := range from.GetValue("types").ListItems() {
		name := t.Node.TextOf("name")
		if strings.HasPrefix(name, "__") { // part of the introspection
			continue
		}
		kind := map[string]string{"OBJECT": "object", "INTERFACE": "object", "INPUT_OBJECT": "input", "ENUM": "enum",
			"UNION": "union", "SCALAR": "scalar"}[t.Node.TextOf("kind")]
		if kind == "" {
			return nil, fmt.Errorf("the type %s of the kind %s", document.CleanLine(name, 60),
				document.CleanLine(t.Node.TextOf("kind"), 60))
		}
		d, err := s.addType(name, kind)
		if err != nil {
			return nil, err
		}
		d.description = t.Node.TextOf("description")
		if err := s.parseBody(d, t.Node); err != nil {
			return nil, fmt.Errorf("the type %s: %w", name, err)
		}
	}
	return s, s.setRoots()
}

func (s *graphSchema) parseBody(d *typeDefinition, n *jsonread.Node) error {
	for _, list := range []string{"fields", "inputFields"} {
		for _, m := range n.GetValue(list).ListItems() {
			f, err := s.parseField(m.Node, list == "inputFields")
			if err != nil {
				return err
			}
			names := map[string]bool{}
			for _, a := range m.Node.GetValue("args").ListItems() {
				argument, err := s.parseField(a.Node, true)
				if err != nil {
					return err
				}
				if !names[argument.name] {
					names[argument.name] = true
					f.arguments = append(f.arguments, argument)
				}
			}
			d.addField(f)
		}
	}
	list := n.GetValue("enumValues").ListItems()
	if d.kind == "union" {
		list = n.GetValue("possibleTypes").ListItems()
	}
	for _, m := range list {
		if d.kind != "enum" && d.kind != "union" {
			break
		}
		name := m.Node.TextOf("name")
		if err := s.checkMember("value", name); err != nil {
			return err
		}
		if !m.Node.IsTrue("isDeprecated") {
			d.members = append(d.members, name)
		}
	}
	return nil
}

func (s *graphSchema) parseField(n *jsonread.Node, input bool) (fieldDefinition, error) {
	f := fieldDefinition{name: n.TextOf("name"), description: n.TextOf("description"), input: input,
		deprecated: n.IsTrue("isDeprecated"),
		preset:     n.GetValue("defaultValue").Is(jsonread.String)}
	err := s.checkMember("field", f.name)
	if err == nil {
		f.typ, err = typeReference(n.GetValue("type"))
	}
	return f, err
}

// maxWrapped bounds the lists and exclamation marks around a type.
const maxWrapped = 30

// typeReference returns a type in the syntax of the schema language.
func typeReference(n *jsonread.Node) (string, error) {
	before, after := "", ""
	for range maxWrapped {
		switch n.TextOf("kind") {
		case "NON_NULL":
			after = "!" + after
		case "LIST":
			before, after = before+"[", "]"+after
		default:
			if name := n.TextOf("name"); isName(name) {
				return before + name + after, nil
			}
			return "", fmt.Errorf("the type %s; want a name", document.CleanLine(n.TextOf("name"), 60))
		}
		n = n.GetValue("ofType")
	}
	return "", fmt.Errorf("a type of more than %d lists", maxWrapped)
}
