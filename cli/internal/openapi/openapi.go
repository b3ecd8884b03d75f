// Package openapi imports descriptions of APIs: OpenAPI 3.0 to 3.2, and Swagger 2.
//
// It reads the parts that a caller needs: references, parameters, schemas, servers and security. It validates nothing
// else. It never follows references to other files or addresses. The work is bounded for any document, because it
// writes shared or repeated values only a limited number of times.
package openapi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// Skip leaves out examples, which are most of many documents. In a map with names as keys, such a key is a name and
// stays.
func Skip(around, key string) bool {
	switch key {
	case "example", "examples", "x-examples", "x-example", "externalDocs", "x-codeSamples", "x-code-samples",
		"x-readme", "links", "callbacks", "webhooks":
		return !ofNames(around)
	}
	return false
}

// ofNames reports whether the keys of a map are names that the author chose.
func ofNames(key string) bool {
	switch key {
	case "properties", "patternProperties", "schemas", "definitions", "$defs", "parameters", "responses", "headers",
		"securitySchemes", "securityDefinitions", "requestBodies", "pathItems", "paths", "mapping", "variables", "content",
		"dependentSchemas":
		return true
	}
	return false
}

// importer is one import.
type importer struct {
	root *jsonread.Node
	o    document.Options
	out  *document.Document
	refs *resolver
	gen  *generator
	// tags are the descriptions of the document's tags.
	tags map[string]string
	// swagger is true for version 2.
	swagger bool
}

// FromTree imports a parsed document.
func FromTree(root *jsonread.Node, o document.Options) (*document.Document, error) {
	im := &importer{root: root, o: o, out: &document.Document{}, refs: newResolver(root)}
	if err := im.version(); err != nil {
		return nil, err
	}
	im.gen = newGenerator(root, im.refs)
	info := root.Get("info")
	im.out.Head.Title = document.Line(info.Str("title"), operation.MaxTitle)
	im.out.Head.Version = document.Line(info.Str("version"), operation.MaxVersion)
	im.out.Description = describe(im.out.Head.Title, info.Str("description"))
	if err := im.security(); err != nil {
		return nil, err
	}
	if err := im.servers(); err != nil {
		return nil, err
	}
	im.tags = map[string]string{}
	for _, t := range root.Get("tags").Items() {
		im.tags[t.Node.Str("name")] = t.Node.Str("description")
	}
	im.operations()
	im.out.Types = im.gen.types()
	if im.refs.outside > 0 {
		im.out.Note("%d references to other files or addresses were left out; bundle the document to "+
			"import them", im.refs.outside)
	}
	if im.gen.cutOff > 0 {
		im.out.Note("%d types were too large or too intricate to write out, and are unknown", im.gen.cutOff)
	}
	if err := im.out.Finish(); err != nil {
		return nil, im.empty(err)
	}
	return im.out, nil
}

// maxDescription bounds the description in config.json, which list_apis shows, in bytes.
const maxDescription = 200

// describe returns one line about an API.
func describe(title, description string) string {
	first := document.Sentence(description, maxDescription)
	switch {
	case first == "" || strings.Contains(title, first):
		return document.Line(title, maxDescription)
	case title == "" || strings.Contains(first, title) || len(title)+len(first)+2 > maxDescription:
		if title != "" && len(first) > maxDescription/2 {
			return document.Line(title, maxDescription)
		}
		return first
	}
	return title + ": " + first
}

// version detects the language of the document.
func (im *importer) version() error {
	v3, v2 := im.root.Str("openapi"), im.root.Str("swagger")
	switch {
	case strings.HasPrefix(v3, "3."):
		im.out.Kind = "OpenAPI " + document.Line(v3, 20)
	case strings.HasPrefix(v2, "2"):
		im.out.Kind, im.swagger = "Swagger "+document.Line(v2, 20), true
	case im.root.Str("swaggerVersion") != "":
		return &document.Refused{Found: "Swagger " + document.Line(im.root.Str("swaggerVersion"), 20),
			Want: "OpenAPI 3 or Swagger 2; swagger-converter of npm converts older documents"}
	case im.root.Str("discoveryVersion") != "" || im.root.Str("kind") == "discovery#restDescription":
		return &document.Refused{Found: "a document of Google's discovery service",
			Want: "an OpenAPI 3 or Swagger 2 document"}
	case im.root.Str("asyncapi") != "":
		return &document.Refused{Found: "an AsyncAPI document", Want: "OpenAPI 3 or Swagger 2"}
	case im.root.Get("info").Str("_postman_id") != "" || im.root.Get("item").Is(jsonread.List):
		return &document.Refused{Found: "a document like a Postman collection",
			Want: "OpenAPI 3 or Swagger 2; postman-to-openapi of npm converts it"}
	case v3 != "" || v2 != "":
		return &document.Refused{Found: "version " + document.Line(v3+v2, 20), Want: "OpenAPI 3 or Swagger 2"}
	default:
		return &document.Refused{Found: `neither "openapi" nor "swagger" at the top`, Want: "OpenAPI 3 or Swagger 2"}
	}
	return nil
}

// empty explains why a document has no operations.
func (im *importer) empty(err error) error {
	if !errors.Is(err, document.ErrNoOperations) {
		return err
	}
	switch {
	case im.refs.outside > 0:
		return &document.Refused{Found: "no operations: the paths are in other files",
			Want: "one document: `npx @redocly/cli bundle` makes one"}
	case len(im.root.Get("paths").Maps()) == 0:
		return &document.Refused{Found: "no paths", Want: "a document with operations"}
	case im.o.Methods != nil:
		return &document.Refused{Found: fmt.Sprintf("no operation with %s", strings.Join(im.o.Methods, ", ")),
			Want: "a document with some, or other methods (--read-only, allowed_methods, restricted_methods)"}
	}
	return &document.Refused{Found: "paths without a usable operation", Want: "a document with operations"}
}
