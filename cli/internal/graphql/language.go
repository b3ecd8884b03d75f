package graphql

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/lexer"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/codeforge-mcp/codeforge/cli/internal/document"
)

const (
	// maxTokens bounds a file. The largest public schemas have fewer than 200,000 tokens.
	maxTokens = 2_000_000
	// maxNested bounds the nesting of brackets.
	maxNested = 64
)

func parseLanguage(text string) (*graphSchema, error) {
	if !utf8.ValidString(text) {
		return nil, errors.New("bytes that are not UTF-8")
	}
	source := &ast.Source{Input: strings.TrimPrefix(text, "\ufeff")}
	if err := checkTokens(source); err != nil {
		return nil, err
	}
	// The token limit bounds time and memory for a hostile file.
	doc, err := parser.ParseSchemaWithLimit(source, maxTokens)
	if err != nil {
		return nil, withLine(err)
	}
	s := &graphSchema{types: map[string]*typeDefinition{}}
	for _, d := range append(doc.Schema, doc.SchemaExtension...) {
		for _, root := range d.OperationTypes {
			switch root.Operation {
			case ast.Query:
				s.query = root.Type
			case ast.Mutation:
				s.mutation = root.Type
			case ast.Subscription:
				s.subscription = root.Type
			}
		}
	}
	for _, d := range append(doc.Definitions, doc.Extensions...) {
		if err := s.addDefinition(d); err != nil {
			return nil, err
		}
	}
	return s, s.setRoots()
}

// checkTokens rejects deeply nested brackets. The parser recurses, and Go cannot recover from a stack overflow.
func checkTokens(source *ast.Source) error {
	depth := 0
	for tokens := lexer.New(source); ; {
		token, err := tokens.ReadToken()
		if err != nil {
			return withLine(err)
		}
		switch token.Kind {
		case lexer.EOF:
			return nil
		case lexer.BraceL, lexer.BracketL, lexer.ParenL:
			if depth++; depth > maxNested {
				return fmt.Errorf("line %d: brackets in brackets; want at most %d levels", token.Pos.Line, maxNested)
			}
		case lexer.BraceR, lexer.BracketR, lexer.ParenR:
			depth--
		}
	}
}

// withLine turns a parser error into one for the user.
func withLine(err error) error {
	line, message := 1, err.Error()
	if located, ok := errors.AsType[*gqlerror.Error](err); ok {
		message = located.Message
		if len(located.Locations) > 0 {
			line = located.Locations[0].Line
		}
	}
	message = document.CleanLine(strings.ReplaceAll(message, "<EOF>", "the end"), 160)
	return fmt.Errorf("line %d: %s; want the schema language of GraphQL", line, message)
}

// addDefinition adds a type, or the members that an extension adds to a type.
func (s *graphSchema) addDefinition(from *ast.Definition) error {
	kind := map[ast.DefinitionKind]string{ast.Object: "object", ast.Interface: "object", ast.InputObject: "input",
		ast.Enum: "enum", ast.Union: "union", ast.Scalar: "scalar"}[from.Kind]
	d, err := s.addType(from.Name, kind)
	if err != nil {
		return err
	}
	if from.Description != "" {
		d.description = from.Description
	}
	for _, f := range from.Fields {
		one := fieldDefinition{name: f.Name, typ: f.Type.String(), description: f.Description, input: kind == "input",
			preset: f.DefaultValue != nil, deprecated: isDeprecated(f.Directives)}
		for _, a := range f.Arguments {
			if err := s.checkMember("argument", a.Name); err != nil {
				return err
			}
			one.arguments = append(one.arguments, fieldDefinition{name: a.Name, typ: a.Type.String(), description: a.Description,
				input: true, preset: a.DefaultValue != nil, deprecated: isDeprecated(a.Directives)})
		}
		if err := s.checkMember("field", f.Name); err != nil {
			return err
		}
		d.addField(one)
	}
	members := from.Types
	for _, v := range from.EnumValues {
		if !isDeprecated(v.Directives) {
			members = append(members, v.Name)
		}
	}
	for _, name := range members {
		if err := s.checkMember("value", name); err != nil {
			return err
		}
		d.members = append(d.members, name)
	}
	return nil
}

func isDeprecated(list ast.DirectiveList) bool { return list.ForName("deprecated") != nil }
