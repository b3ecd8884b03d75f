// Package google imports documents of Google's discovery service. It converts them to OpenAPI and imports the result,
// so the bounds are those of package openapi.
package google

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/cli/internal/openapi"
	"github.com/codeforge-mcp/codeforge/cli/internal/tree"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// Import imports a JSON document. It rejects YAML, which Google does not use, because YAML can share values and
// converting them would grow without bound.
func Import(text []byte, o document.Options) (*document.Document, error) {
	if !bytes.HasPrefix(bytes.TrimLeft(bytes.TrimPrefix(text, []byte("\ufeff")), " \t\r\n"), []byte("{")) {
		return nil, &document.Refused{Found: "no JSON", Want: "a document of Google's discovery service in JSON"}
	}
	root, err := tree.Parse(text, nil)
	if err != nil {
		return nil, err
	}
	if root.Str("discoveryVersion") == "" && root.Str("kind") != "discovery#restDescription" {
		return nil, &document.Refused{Found: "no document of Google's discovery service",
			Want: "the JSON at https://NAME.googleapis.com/$discovery/rest?version=VERSION"}
	}
	// Converting reuses the bounds and checks of package openapi.
	doc, err := openapi.FromTree(convert(root), o)
	if err != nil {
		return nil, err
	}
	doc.Kind = "Google discovery " + document.Line(root.Str("discoveryVersion"), 20)
	return doc, nil
}

// Address returns the URL of an API's document for a text like NAME:VERSION, e.g. drive:v3. For any other text it
// returns "".
func Address(text string) string {
	name, version, ok := strings.Cut(text, ":")
	for _, part := range []string{name, version} {
		ok = ok && part != "" && strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
	}
	if !ok {
		return ""
	}
	return "https://www.googleapis.com/discovery/v1/apis/" + name + "/" + version + "/rest"
}

func str(s string) *jsonread.Node { return &jsonread.Node{Kind: jsonread.String, Text: s} }

func list(items ...*jsonread.Node) *jsonread.Node {
	n := &jsonread.Node{Kind: jsonread.List}
	for _, i := range items {
		n.Members = append(n.Members, jsonread.Member{Node: i})
	}
	return n
}

// object returns a map without the members that have no value.
func object(members ...jsonread.Member) *jsonread.Node {
	n := &jsonread.Node{Kind: jsonread.Object}
	for _, m := range members {
		if m.Node != nil {
			n.Members = append(n.Members, m)
		}
	}
	return n
}

func yes() *jsonread.Node { return &jsonread.Node{Kind: jsonread.Bool, Text: "true"} }

// converter converts a document to OpenAPI.
type converter struct {
	prefix string // of all paths
	paths  []jsonread.Member
	at     map[string]int
	tags   []string
}

func convert(root *jsonread.Node) *jsonread.Node {
	server := root.Str("rootUrl")
	if server == "" {
		server = root.Str("baseUrl")
	}
	c := &converter{prefix: strings.Trim(root.Str("servicePath"), "/"), at: map[string]int{}}
	if root.Str("rootUrl") == "" {
		c.prefix = ""
	}
	c.methods(root)
	c.resources(root)
	title := root.Str("title")
	if title == "" {
		title = root.Str("name")
	}
	var schemas []jsonread.Member
	for _, m := range root.Get("schemas").Maps() {
		schemas = append(schemas, jsonread.Member{Key: m.Key, Node: schema(m.Node)})
	}
	security := object()
	if root.At("auth", "oauth2") != nil {
		security.Members = append(security.Members,
			jsonread.Member{Key: "oauth2", Node: object(jsonread.Member{Key: "type", Node: str("oauth2")})})
	}
	if root.At("parameters", "key") != nil {
		security.Members = append(security.Members, jsonread.Member{Key: "key", Node: object(
			jsonread.Member{Key: "type", Node: str("apiKey")}, jsonread.Member{Key: "in", Node: str("query")},
			jsonread.Member{Key: "name", Node: str("key")})})
	}
	var servers *jsonread.Node
	if server != "" {
		servers = list(object(jsonread.Member{Key: "url", Node: str(strings.TrimRight(server, "/"))}))
	}
	return object(
		jsonread.Member{Key: "openapi", Node: str("3.0.0")},
		jsonread.Member{Key: "info", Node: object(
			jsonread.Member{Key: "title", Node: str(title)}, jsonread.Member{Key: "version", Node: root.Get("version")},
			jsonread.Member{Key: "description", Node: root.Get("description")})},
		jsonread.Member{Key: "servers", Node: servers},
		jsonread.Member{Key: "paths", Node: object(c.paths...)},
		jsonread.Member{Key: "components", Node: object(
			jsonread.Member{Key: "schemas", Node: object(schemas...)},
			jsonread.Member{Key: "securitySchemes", Node: security})},
	)
}

// resources converts the methods of resources and of their sub-resources. The parser bounds the tree's depth.
func (c *converter) resources(n *jsonread.Node) {
	for _, m := range n.Get("resources").Maps() {
		c.tags = append(c.tags, m.Key)
		c.methods(m.Node)
		c.resources(m.Node)
		c.tags = c.tags[:len(c.tags)-1]
	}
}

func (c *converter) methods(n *jsonread.Node) {
	for _, m := range n.Get("methods").Maps() {
		if verb := strings.ToLower(m.Node.Str("httpMethod")); verb != "" {
			path, op := c.method(m.Node)
			i, known := c.at[path]
			if !known {
				i = len(c.paths)
				c.at[path] = i
				c.paths = append(c.paths, jsonread.Member{Key: path, Node: object()})
			}
			item := c.paths[i].Node
			if item.Get(verb) == nil {
				item.Members = append(item.Members, jsonread.Member{Key: verb, Node: op})
			}
		}
	}
}

// method converts a method. If its path has a parameter of several segments, it uses the flat path, which names each
// segment. All of those are strings.
func (c *converter) method(n *jsonread.Node) (path string, op *jsonread.Node) {
	path = n.Str("path")
	flat := strings.Contains(path, "{+") && n.Str("flatPath") != ""
	if flat {
		path = n.Str("flatPath")
	}
	path = "/" + strings.TrimLeft(severalSegments.ReplaceAllString(path, "{$1+}"), "/")
	if c.prefix != "" {
		path = "/" + c.prefix + path
	}
	var parameters []*jsonread.Node
	for _, p := range n.Get("parameters").Maps() {
		in := p.Node.Str("location")
		if in == "path" && flat || in != "path" && in != "query" {
			continue
		}
		parameter := object(jsonread.Member{Key: "name", Node: str(p.Key)}, jsonread.Member{Key: "in", Node: str(in)},
			jsonread.Member{Key: "schema", Node: schema(p.Node)})
		if p.Node.True("required") {
			parameter.Members = append(parameter.Members, jsonread.Member{Key: "required", Node: yes()})
		}
		parameters = append(parameters, parameter)
	}
	// Of the common parameters, only the one that makes responses smaller.
	parameters = append(parameters, object(jsonread.Member{Key: "name", Node: str("fields")},
		jsonread.Member{Key: "in", Node: str("query")},
		jsonread.Member{Key: "schema", Node: object(jsonread.Member{Key: "type", Node: str("string")})}))
	op = object(
		jsonread.Member{Key: "operationId", Node: n.Get("id")},
		jsonread.Member{Key: "description", Node: n.Get("description")},
		jsonread.Member{Key: "parameters", Node: list(parameters...)})
	if n.True("deprecated") {
		op.Members = append(op.Members, jsonread.Member{Key: "deprecated", Node: yes()})
	}
	if len(c.tags) > 0 {
		op.Members = append(op.Members, jsonread.Member{Key: "tags", Node: list(str(strings.Join(c.tags, ".")))})
	}
	if body := n.Get("request"); body.Str("$ref") != "" {
		content := media(schema(body))
		content.Members = append(content.Members, jsonread.Member{Key: "required", Node: yes()})
		op.Members = append(op.Members, jsonread.Member{Key: "requestBody", Node: content})
	}
	answer := object()
	if body := n.Get("response"); body.Str("$ref") != "" {
		answer = media(schema(body))
	}
	ok := jsonread.Member{Key: "200", Node: answer}
	op.Members = append(op.Members, jsonread.Member{Key: "responses", Node: object(ok)})
	return path, op
}

func media(schema *jsonread.Node) *jsonread.Node {
	return object(jsonread.Member{Key: "content", Node: object(
		jsonread.Member{Key: "application/json", Node: object(jsonread.Member{Key: "schema", Node: schema})})})
}

// severalSegments matches a path parameter of several segments: {+name}, which becomes {name+}.
var severalSegments = regexp.MustCompile(`\{\+([^{}]*)\}`)

// schema converts a schema or a parameter. References name schemas of the document.
func schema(n *jsonread.Node) *jsonread.Node {
	if !n.Is(jsonread.Object) {
		return object()
	}
	if ref := n.Str("$ref"); ref != "" {
		escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(ref)
		return object(jsonread.Member{Key: "$ref", Node: str("#/components/schemas/" + escaped)})
	}
	out := object()
	var required []*jsonread.Node
	for _, m := range n.Members {
		switch m.Key {
		case "type":
			if m.Node != nil && m.Node.Text == "any" {
				continue
			}
		case "properties":
			converted := object()
			for _, p := range m.Node.Maps() {
				converted.Members = append(converted.Members, jsonread.Member{Key: p.Key, Node: schema(p.Node)})
				if p.Node.True("required") || len(p.Node.At("annotations", "required").Items()) > 0 {
					required = append(required, str(p.Key))
				}
			}
			m.Node = converted
		case "items", "additionalProperties":
			if m.Node.Is(jsonread.Object) {
				m.Node = schema(m.Node)
			}
		case "enum", "format", "readOnly", "description", "deprecated":
		default:
			continue
		}
		out.Members = append(out.Members, m)
	}
	if len(required) > 0 {
		out.Members = append(out.Members, jsonread.Member{Key: "required", Node: list(required...)})
	}
	if n.True("repeated") {
		return object(jsonread.Member{Key: "type", Node: str("array")}, jsonread.Member{Key: "items", Node: out})
	}
	return out
}
