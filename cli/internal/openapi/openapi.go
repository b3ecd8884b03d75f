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

// IsExample leaves out examples, which are most of many documents. In a map with names as keys, such a key is a name
// and stays.
func IsExample(around, key string) bool {
	switch key {
	case "example", "examples", "x-examples", "x-example", "externalDocs", "x-codeSamples", "x-code-samples",
		"x-readme", "links", "callbacks", "webhooks":
		return !hasNamedMembers(around)
	}
	return false
}

// hasNamedMembers reports whether the keys of a map are names that the author chose.
func hasNamedMembers(key string) bool {
	switch key {
	case "properties", "patternProperties", "schemas", "definitions", "$defs", "parameters", "responses", "headers",
		"securitySchemes", "securityDefinitions", "requestBodies", "pathItems", "paths", "mapping", "variables", "content",
		"dependentSchemas":
		return true
	}
	return false
}

type docImporter struct {
	root *jsonread.Node
	o    document.Options
	out  *document.ImportedDocument
	refs *refResolver
	gen  *typeGenerator
	// tags are the descriptions of the document's tags.
	tags map[string]string
	// words and servers hold the results for the operations and lists of servers, which many paths may share.
	words   map[*jsonread.Node]operation.Line
	servers map[*jsonread.Node]chosenServer
	// swagger is true for version 2.
	swagger bool
}

// FromTree imports a parsed document.
func FromTree(root *jsonread.Node, o document.Options) (*document.ImportedDocument, error) {
	refs := &refResolver{
		root: root, known: map[string]*jsonread.Node{}, index: map[*jsonread.Node]map[string]*jsonread.Node{},
	}
	im := &docImporter{root: root, o: o, out: &document.ImportedDocument{}, refs: refs,
		words: map[*jsonread.Node]operation.Line{}, servers: map[*jsonread.Node]chosenServer{}}
	if err := im.detectVersion(); err != nil {
		return nil, err
	}
	im.gen = newGenerator(root, im.refs)
	info := root.GetValue("info")
	im.out.Head.Title = document.CleanLine(info.TextOf("title"), operation.MaxTitle)
	im.out.Head.Version = document.CleanLine(info.TextOf("version"), operation.MaxVersion)
	im.out.Description = describeAPI(im.out.Head.Title, info.TextOf("description"))
	if err := im.chooseScheme(); err != nil {
		return nil, err
	}
	if err := im.chooseServer(); err != nil {
		return nil, err
	}
	im.tags = map[string]string{}
	for _, t := range root.GetValue("tags").ListItems() {
		im.tags[t.Node.TextOf("name")] = t.Node.TextOf("description")
	}
	im.writeOperations()
	im.out.Types = im.gen.writeTypes()
	if im.refs.outside > 0 {
		im.out.AddNote("%d references to other files or addresses were left out; bundle the document to "+
			"import them", im.refs.outside)
	}
	if im.gen.cutOff > 0 {
		im.out.AddNote("%d types were too large or too intricate to write out, and are unknown", im.gen.cutOff)
	}
	if err := im.out.Finish(); err != nil {
		return nil, im.explainEmpty(err)
	}
	return im.out, nil
}

// maxDescription bounds the description in config.json, which list_apis shows, in bytes.
const maxDescription = 200

// describeAPI returns one line about an API.
func describeAPI(title, description string) string {
	first := document.FirstSentence(description, maxDescription)
	switch {
	case first == "" || strings.Contains(title, first):
		return document.CleanLine(title, maxDescription)
	case title == "" || strings.Contains(first, title) || len(title)+len(first)+2 > maxDescription:
		if title != "" && len(first) > maxDescription/2 {
			return document.CleanLine(title, maxDescription)
		}
		return first
	}
	return title + ": " + first
}

// detectVersion detects the language of the document.
func (im *docImporter) detectVersion() error {
	v3, v2 := im.root.TextOf("openapi"), im.root.TextOf("swagger")
	switch {
	case strings.HasPrefix(v3, "3."):
		im.out.Kind = "OpenAPI " + document.CleanLine(v3, 20)
	case strings.HasPrefix(v2, "2"):
		im.out.Kind, im.swagger = "Swagger "+document.CleanLine(v2, 20), true
	case im.root.TextOf("swaggerVersion") != "":
		return &document.UnsupportedError{Found: "Swagger " + document.CleanLine(im.root.TextOf("swaggerVersion"), 20),
			Want: "OpenAPI 3 or Swagger 2; swagger-converter of npm converts older documents"}
	case im.root.TextOf("discoveryVersion") != "" || im.root.TextOf("kind") == "discovery#restDescription":
		return &document.UnsupportedError{Found: "a document of Google's discovery service",
			Want: "an OpenAPI 3 or Swagger 2 document"}
	case im.root.TextOf("asyncapi") != "":
		return &document.UnsupportedError{Found: "an AsyncAPI document", Want: "OpenAPI 3 or Swagger 2"}
	case im.root.GetValue("info").TextOf("_postman_id") != "" || im.root.GetValue("item").Is(jsonread.List):
		return &document.UnsupportedError{Found: "a document like a Postman collection",
			Want: "OpenAPI 3 or Swagger 2; postman-to-openapi of npm converts it"}
	case v3 != "" || v2 != "":
		return &document.UnsupportedError{Found: "version " + document.CleanLine(v3+v2, 20), Want: "OpenAPI 3 or Swagger 2"}
	default:
		return &document.UnsupportedError{Found: `neither "openapi" nor "swagger" at the top`, Want: "OpenAPI 3 or Swagger 2"}
	}
	return nil
}

// explainEmpty explains why a document has no operations.
func (im *docImporter) explainEmpty(err error) error {
	if !errors.Is(err, document.ErrNoOperations) {
		return err
	}
	switch {
	case im.refs.outside > 0:
		return &document.UnsupportedError{Found: "no operations: the paths are in other files",
			Want: "one document: `npx @redocly/cli bundle` makes one"}
	case len(im.root.GetValue("paths").ObjectMembers()) == 0:
		return &document.UnsupportedError{Found: "no paths", Want: "a document with operations"}
	case im.o.Methods != nil:
		return &document.UnsupportedError{Found: fmt.Sprintf("no operation with %s", strings.Join(im.o.Methods, ", ")),
			Want: "a document with some, or other methods (--read-only, allowed_methods, restricted_methods)"}
	}
	return &document.UnsupportedError{Found: "paths without a usable operation", Want: "a document with operations"}
}
