// Package google imports documents of Google's discovery service. It converts them to OpenAPI and imports the result,
// so the bounds are those of package openapi.
package google

import (
	"bytes"
	"cmp"
	"regexp"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/cli/internal/openapi"
	"github.com/codeforge-mcp/codeforge/cli/internal/yamltree"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// ImportDiscovery imports a JSON document. It rejects YAML, which Google does not use, because YAML can share values
// and converting them would grow without bound.
func ImportDiscovery(text []byte, o document.Options) (*document.ImportedDocument, error) {
	if !bytes.HasPrefix(bytes.TrimLeft(bytes.TrimPrefix(text, []byte("\ufeff")), " \t\r\n"), []byte("{")) {
		return nil, &document.UnsupportedError{Found: "no JSON", Want: "a document of Google's discovery service in JSON"}
	}
	root, err := yamltree.ParseTree(text, nil)
	if err != nil {
		return nil, err
	}
	if root.TextOf("discoveryVersion") == "" && root.TextOf("kind") != "discovery#restDescription" {
		return nil, &document.UnsupportedError{Found: "no document of Google's discovery service",
			Want: "the JSON at https://NAME.googleapis.com/$discovery/rest?version=VERSION"}
	}
	// Converting reuses the bounds and checks of package openapi.
	doc, err := openapi.FromTree(convertDocument(root), o)
	if err != nil {
		return nil, err
	}
	doc.Kind = "Google discovery " + document.CleanLine(root.TextOf("discoveryVersion"), 20)
	return doc, nil
}

// DocumentURL returns the URL of an API's document for a text like NAME:VERSION, e.g. drive:v3. For any other text it
// returns "".
func DocumentURL(text string) string {
	name, version, ok := strings.Cut(text, ":")
	for _, part := range []string{name, version} {
		ok = ok && part != "" && strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
	}
	if !ok {
		return ""
	}
	return "https://www.googleapis.com/discovery/v1/apis/" + name + "/" + version + "/rest"
}

func stringNode(s string) *jsonread.Node { return &jsonread.Node{Kind: jsonread.String, Text: s} }

func listNode(items ...*jsonread.Node) *jsonread.Node {
	n := &jsonread.Node{Kind: jsonread.List}
	for _, i := range items {
		n.Members = append(n.Members, jsonread.Member{Node: i})
	}
	return n
}

// objectNode returns a map without the members that have no value.
func objectNode(members ...jsonread.Member) *jsonread.Node {
	n := &jsonread.Node{Kind: jsonread.Object}
	for _, m := range members {
		if m.Node != nil {
			n.Members = append(n.Members, m)
		}
	}
	return n
}

func trueNode() *jsonread.Node { return &jsonread.Node{Kind: jsonread.Bool, Text: "true"} }

// discoveryConverter converts a document to OpenAPI.
type discoveryConverter struct {
	prefix string // of all paths
	paths  []jsonread.Member
	at     map[string]int
	tags   []string
}

func convertDocument(root *jsonread.Node) *jsonread.Node {
	server := cmp.Or(root.TextOf("rootUrl"), root.TextOf("baseUrl"))
	c := &discoveryConverter{prefix: strings.Trim(root.TextOf("servicePath"), "/"), at: map[string]int{}}
	if root.TextOf("rootUrl") == "" {
		c.prefix = ""
	}
	c.convertMethods(root)
	c.convertResources(root)
	title := cmp.Or(root.TextOf("title"), root.TextOf("name"))
	schemas := convert.Each(root.GetValue("schemas").ObjectMembers(), func(m jsonread.Member) jsonread.Member {
		return jsonread.Member{Key: m.Key, Node: convertSchema(m.Node)}
	})
	security := objectNode()
	if root.FollowKeys("auth", "oauth2") != nil {
		security.Members = append(security.Members,
			jsonread.Member{Key: "oauth2", Node: objectNode(jsonread.Member{Key: "type", Node: stringNode("oauth2")})})
	}
	if root.FollowKeys("parameters", "key") != nil {
		security.Members = append(security.Members, jsonread.Member{Key: "key", Node: objectNode(
			jsonread.Member{Key: "type", Node: stringNode("apiKey")}, jsonread.Member{Key: "in", Node: stringNode("query")},
			jsonread.Member{Key: "name", Node: stringNode("key")})})
	}
	var servers *jsonread.Node
	if server != "" {
		servers = listNode(objectNode(jsonread.Member{Key: "url", Node: stringNode(strings.TrimRight(server, "/"))}))
	}
	return objectNode(
		jsonread.Member{Key: "openapi", Node: stringNode("3.0.0")},
		jsonread.Member{Key: "info", Node: objectNode(
			jsonread.Member{Key: "title", Node: stringNode(title)},
			jsonread.Member{Key: "version", Node: root.GetValue("version")},
			jsonread.Member{Key: "description", Node: root.GetValue("description")})},
		jsonread.Member{Key: "servers", Node: servers},
		jsonread.Member{Key: "paths", Node: objectNode(c.paths...)},
		jsonread.Member{Key: "components", Node: objectNode(
			jsonread.Member{Key: "schemas", Node: objectNode(schemas...)},
			jsonread.Member{Key: "securitySchemes", Node: security})},
	)
}

// convertResources converts the methods of resources and of their sub-resources. The parser bounds the tree's depth.
func (c *discoveryConverter) convertResources(n *jsonread.Node) {
	for _, m := range n.GetValue("resources").ObjectMembers() {
		c.tags = append(c.tags, m.Key)
		c.convertMethods(m.Node)
		c.convertResources(m.Node)
		c.tags = c.tags[:len(c.tags)-1]
	}
}

func (c *discoveryConverter) convertMethods(n *jsonread.Node) {
	for _, m := range n.GetValue("methods").ObjectMembers() {
		if verb := strings.ToLower(m.Node.TextOf("httpMethod")); verb != "" {
			path, op := c.convertMethod(m.Node)
			i, known := c.at[path]
			if !known {
				i = len(c.paths)
				c.at[path] = i
				c.paths = append(c.paths, jsonread.Member{Key: path, Node: objectNode()})
			}
			item := c.paths[i].Node
			if item.GetValue(verb) == nil {
				item.Members = append(item.Members, jsonread.Member{Key: verb, Node: op})
			}
		}
	}
}

// convertMethod converts a method. If its path has a parameter of several segments, it uses the flat path, which names
// each segment. All of those are strings.
func (c *discoveryConverter) convertMethod(n *jsonread.Node) (path string, op *jsonread.Node) {
	path = n.TextOf("path")
	flat := strings.Contains(path, "{+") && n.TextOf("flatPath") != ""
	if flat {
		path = n.TextOf("flatPath")
	}
	path = "/" + strings.TrimLeft(severalSegments.ReplaceAllString(path, "{$1+}"), "/")
	if c.prefix != "" {
		path = "/" + c.prefix + path
	}
	var parameters []*jsonread.Node
	for _, p := range n.GetValue("parameters").ObjectMembers() {
		in := p.Node.TextOf("location")
		if in == "path" && flat || in != "path" && in != "query" {
			continue
		}
		parameter := objectNode(jsonread.Member{Key: "name", Node: stringNode(p.Key)},
			jsonread.Member{Key: "in", Node: stringNode(in)},
			jsonread.Member{Key: "schema", Node: convertSchema(p.Node)})
		if p.Node.IsTrue("required") {
			parameter.Members = append(parameter.Members, jsonread.Member{Key: "required", Node: trueNode()})
		}
		parameters = append(parameters, parameter)
	}
	// Of the common parameters, only the one that makes responses smaller.
	parameters = append(parameters, objectNode(jsonread.Member{Key: "name", Node: stringNode("fields")},
		jsonread.Member{Key: "in", Node: stringNode("query")},
		jsonread.Member{Key: "schema", Node: objectNode(jsonread.Member{Key: "type", Node: stringNode("string")})}))
	op = objectNode(
		jsonread.Member{Key: "operationId", Node: n.GetValue("id")},
		jsonread.Member{Key: "description", Node: n.GetValue("description")},
		jsonread.Member{Key: "parameters", Node: listNode(parameters...)})
	if n.IsTrue("deprecated") {
		op.Members = append(op.Members, jsonread.Member{Key: "deprecated", Node: trueNode()})
	}
	if len(c.tags) > 0 {
		op.Members = append(op.Members, jsonread.Member{Key: "tags", Node: listNode(stringNode(strings.Join(c.tags, ".")))})
	}
	if body := n.GetValue("request"); body.TextOf("$ref") != "" {
		content := jsonMedia(convertSchema(body))
		content.Members = append(content.Members, jsonread.Member{Key: "required", Node: trueNode()})
		op.Members = append(op.Members, jsonread.Member{Key: "requestBody", Node: content})
	}
	answer := objectNode()
	if body := n.GetValue("response"); body.TextOf("$ref") != "" {
		answer = jsonMedia(convertSchema(body))
	}
	ok := jsonread.Member{Key: "200", Node: answer}
	op.Members = append(op.Members, jsonread.Member{Key: "responses", Node: objectNode(ok)})
	return path, op
}

func jsonMedia(schema *jsonread.Node) *jsonread.Node {
	return objectNode(jsonread.Member{Key: "content", Node: objectNode(
		jsonread.Member{Key: "application/json", Node: objectNode(jsonread.Member{Key: "schema", Node: schema})})})
}

// severalSegments matches a path parameter of several segments: {+name}, which becomes {name+}.
var severalSegments = regexp.MustCompile(`\{\+([^{}]*)\}`)

// convertSchema converts a schema or a parameter. References name schemas of the document.
func convertSchema(n *jsonread.Node) *jsonread.Node {
	if !n.Is(jsonread.Object) {
		return objectNode()
	}
	if ref := n.TextOf("$ref"); ref != "" {
		escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(ref)
		return objectNode(jsonread.Member{Key: "$ref", Node: stringNode("#/components/schemas/" + escaped)})
	}
	out := objectNode()
	var required []*jsonread.Node
	for _, m := range n.Members {
		switch m.Key {
		case "type":
			if m.Node != nil && m.Node.Text == "any" {
				continue
			}
		case "properties":
			converted := objectNode()
			for _, p := range m.Node.ObjectMembers() {
				converted.Members = append(converted.Members, jsonread.Member{Key: p.Key, Node: convertSchema(p.Node)})
				if p.Node.IsTrue("required") || len(p.Node.FollowKeys("annotations", "required").ListItems()) > 0 {
					required = append(required, stringNode(p.Key))
				}
			}
			m.Node = converted
		case "items", "additionalProperties":
			if m.Node.Is(jsonread.Object) {
				m.Node = convertSchema(m.Node)
			}
		case "enum", "format", "readOnly", "description", "deprecated":
		default:
			continue
		}
		out.Members = append(out.Members, m)
	}
	if len(required) > 0 {
		out.Members = append(out.Members, jsonread.Member{Key: "required", Node: listNode(required...)})
	}
	if n.IsTrue("repeated") {
		return objectNode(jsonread.Member{Key: "type", Node: stringNode("array")}, jsonread.Member{Key: "items", Node: out})
	}
	return out
}
