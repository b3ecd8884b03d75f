// Package google imports documents of Google's discovery service, by writing them as OpenAPI and importing that: the
// bounds are those of package openapi.
package google

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/cli/internal/openapi"
	"github.com/codeforge-mcp/codeforge/cli/internal/tree"
)

// Import imports a document in JSON. In YAML, which none of Google's is in, values may be shared, and what is written
// of them would grow without end.
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
	doc, err := openapi.FromTree(convert(root), o)
	if err != nil {
		return nil, err
	}
	doc.Kind = "Google discovery " + document.Line(root.Str("discoveryVersion"), 20)
	return doc, nil
}

// Address is where the document of an API is, given as NAME:VERSION, e.g. drive:v3. It is empty if the text is nothing
// like that.
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

func str(s string) *tree.Node { return &tree.Node{Kind: tree.String, Text: s} }

func list(items ...*tree.Node) *tree.Node {
	n := &tree.Node{Kind: tree.List}
	for _, i := range items {
		n.Members = append(n.Members, tree.Member{Node: i})
	}
	return n
}

// object is a map; members without a value are left out.
func object(members ...tree.Member) *tree.Node {
	n := &tree.Node{Kind: tree.Map}
	for _, m := range members {
		if m.Node != nil {
			n.Members = append(n.Members, m)
		}
	}
	return n
}

func yes() *tree.Node { return &tree.Node{Kind: tree.Bool, Text: "true"} }

// converter writes a document as OpenAPI.
type converter struct {
	prefix string // of all paths
	paths  []tree.Member
	at     map[string]int
	tags   []string
}

func convert(root *tree.Node) *tree.Node {
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
	var schemas []tree.Member
	for _, m := range root.Get("schemas").Maps() {
		schemas = append(schemas, tree.Member{Key: m.Key, Node: schema(m.Node)})
	}
	security := object()
	if root.At("auth", "oauth2") != nil {
		security.Members = append(security.Members,
			tree.Member{Key: "oauth2", Node: object(tree.Member{Key: "type", Node: str("oauth2")})})
	}
	if root.At("parameters", "key") != nil {
		security.Members = append(security.Members, tree.Member{Key: "key", Node: object(
			tree.Member{Key: "type", Node: str("apiKey")}, tree.Member{Key: "in", Node: str("query")},
			tree.Member{Key: "name", Node: str("key")})})
	}
	var servers *tree.Node
	if server != "" {
		servers = list(object(tree.Member{Key: "url", Node: str(strings.TrimRight(server, "/"))}))
	}
	return object(
		tree.Member{Key: "openapi", Node: str("3.0.0")},
		tree.Member{Key: "info", Node: object(
			tree.Member{Key: "title", Node: str(title)}, tree.Member{Key: "version", Node: root.Get("version")},
			tree.Member{Key: "description", Node: root.Get("description")})},
		tree.Member{Key: "servers", Node: servers},
		tree.Member{Key: "paths", Node: object(c.paths...)},
		tree.Member{Key: "components", Node: object(
			tree.Member{Key: "schemas", Node: object(schemas...)},
			tree.Member{Key: "securitySchemes", Node: security})},
	)
}

// resources converts the methods of resources, and of those in them: the tree's depth is bounded.
func (c *converter) resources(n *tree.Node) {
	for _, m := range n.Get("resources").Maps() {
		c.tags = append(c.tags, m.Key)
		c.methods(m.Node)
		c.resources(m.Node)
		c.tags = c.tags[:len(c.tags)-1]
	}
}

func (c *converter) methods(n *tree.Node) {
	for _, m := range n.Get("methods").Maps() {
		if verb := strings.ToLower(m.Node.Str("httpMethod")); verb != "" {
			path, op := c.method(m.Node)
			i, known := c.at[path]
			if !known {
				i = len(c.paths)
				c.at[path] = i
				c.paths = append(c.paths, tree.Member{Key: path, Node: object()})
			}
			item := c.paths[i].Node
			if item.Get(verb) == nil {
				item.Members = append(item.Members, tree.Member{Key: verb, Node: op})
			}
		}
	}
}

// method converts a method. Where its path has a parameter of several segments, the flat path has their names, all of
// which are strings.
func (c *converter) method(n *tree.Node) (path string, op *tree.Node) {
	path = n.Str("path")
	flat := strings.Contains(path, "{+") && n.Str("flatPath") != ""
	if flat {
		path = n.Str("flatPath")
	}
	path = "/" + strings.TrimLeft(severalSegments.ReplaceAllString(path, "{$1+}"), "/")
	if c.prefix != "" {
		path = "/" + c.prefix + path
	}
	var parameters []*tree.Node
	for _, p := range n.Get("parameters").Maps() {
		in := p.Node.Str("location")
		if in == "path" && flat || in != "path" && in != "query" {
			continue
		}
		parameter := object(tree.Member{Key: "name", Node: str(p.Key)}, tree.Member{Key: "in", Node: str(in)},
			tree.Member{Key: "schema", Node: schema(p.Node)})
		if p.Node.True("required") {
			parameter.Members = append(parameter.Members, tree.Member{Key: "required", Node: yes()})
		}
		parameters = append(parameters, parameter)
	}
	// Of the parameters that all methods take, the one that makes answers small.
	parameters = append(parameters, object(tree.Member{Key: "name", Node: str("fields")},
		tree.Member{Key: "in", Node: str("query")},
		tree.Member{Key: "schema", Node: object(tree.Member{Key: "type", Node: str("string")})}))
	op = object(
		tree.Member{Key: "operationId", Node: n.Get("id")}, tree.Member{Key: "description", Node: n.Get("description")},
		tree.Member{Key: "parameters", Node: list(parameters...)})
	if n.True("deprecated") {
		op.Members = append(op.Members, tree.Member{Key: "deprecated", Node: yes()})
	}
	if len(c.tags) > 0 {
		op.Members = append(op.Members, tree.Member{Key: "tags", Node: list(str(strings.Join(c.tags, ".")))})
	}
	if body := n.Get("request"); body.Str("$ref") != "" {
		content := media(schema(body))
		content.Members = append(content.Members, tree.Member{Key: "required", Node: yes()})
		op.Members = append(op.Members, tree.Member{Key: "requestBody", Node: content})
	}
	answer := object()
	if body := n.Get("response"); body.Str("$ref") != "" {
		answer = media(schema(body))
	}
	op.Members = append(op.Members, tree.Member{Key: "responses", Node: object(tree.Member{Key: "200", Node: answer})})
	return path, op
}

func media(schema *tree.Node) *tree.Node {
	return object(tree.Member{Key: "content", Node: object(
		tree.Member{Key: "application/json", Node: object(tree.Member{Key: "schema", Node: schema})})})
}

// severalSegments is a parameter that stands for several segments of a path: {+name}, which we write as {name+}.
var severalSegments = regexp.MustCompile(`\{\+([^{}]*)\}`)

// schema converts a schema or a parameter. Names in references are those of the document's schemas.
func schema(n *tree.Node) *tree.Node {
	if !n.Is(tree.Map) {
		return object()
	}
	if ref := n.Str("$ref"); ref != "" {
		escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(ref)
		return object(tree.Member{Key: "$ref", Node: str("#/components/schemas/" + escaped)})
	}
	out := object()
	var required []*tree.Node
	for _, m := range n.Members {
		switch m.Key {
		case "type":
			if m.Node != nil && m.Node.Text == "any" {
				continue
			}
		case "properties":
			converted := object()
			for _, p := range m.Node.Maps() {
				converted.Members = append(converted.Members, tree.Member{Key: p.Key, Node: schema(p.Node)})
				if p.Node.True("required") || len(p.Node.At("annotations", "required").Items()) > 0 {
					required = append(required, str(p.Key))
				}
			}
			m.Node = converted
		case "items", "additionalProperties":
			if m.Node.Is(tree.Map) {
				m.Node = schema(m.Node)
			}
		case "enum", "format", "readOnly", "description", "deprecated":
		default:
			continue
		}
		out.Members = append(out.Members, m)
	}
	if len(required) > 0 {
		out.Members = append(out.Members, tree.Member{Key: "required", Node: list(required...)})
	}
	if n.True("repeated") {
		return object(tree.Member{Key: "type", Node: str("array")}, tree.Member{Key: "items", Node: out})
	}
	return out
}
