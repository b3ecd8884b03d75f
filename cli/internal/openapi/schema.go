package openapi

import (
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// schema writes a schema as a type.
func (g *generator) schema(n *jsonread.Node, c context) typ {
	g.schemas--
	// A small document can describe a huge type by sharing its parts.
	if g.schemas < 0 || g.work < 0 || c.depth > maxNesting {
		g.cutOff++
		return typ{text: unknown}
	}
	t := g.combined(n, c)
	g.work -= len(t.text) + cost(n)
	if len(t.text) > maxText {
		g.cutOff++
		return typ{text: unknown}
	}
	return t
}

// cost returns the size of a schema without its nested schemas.
func cost(n *jsonread.Node) int {
	sum := len(n.Maps())
	for _, m := range n.Maps() {
		if m.Node != nil {
			sum += len(m.Node.Members)
		}
	}
	return sum
}

// combined writes a schema and its combinations (allOf, oneOf, anyOf).
func (g *generator) combined(n *jsonread.Node, c context) typ {
	switch {
	case n.Is(jsonread.Bool) && n.Text == "false":
		return typ{text: "never"}
	case !n.Is(jsonread.Object):
		return typ{text: unknown}
	}
	nullable := n.True("nullable") || n.True("x-nullable")
	if ref := n.Get("$ref"); ref.Is(jsonread.String) {
		return orNull(g.reference(ref.Text, c), nullable)
	}
	var parts []typ
	for _, m := range n.Get("allOf").Items() {
		if t := g.schema(m.Node, c.beside()); !open(t) && len(parts) < maxAlternatives {
			parts = append(parts, t)
		}
	}
	for _, word := range []string{"oneOf", "anyOf"} {
		if t, ok := g.alternatives(n, word, c); ok {
			parts = append(parts, t)
		}
	}
	base, null := g.base(n, c)
	switch {
	case len(parts) == 0:
		parts = append(parts, base)
	case !open(base) && !primitive(base):
		parts = append([]typ{base}, parts...)
	}
	return orNull(join(parts, " & ", intersection), nullable || null)
}

// open reports whether a type allows anything.
func open(t typ) bool { return t.text == unknown || t.text == anyObject }

const anyObject = "{ [key: string]: unknown }"

func primitive(t typ) bool {
	switch t.text {
	case "string", "number", "boolean", "null":
		return true
	}
	return false
}

func orNull(t typ, nullable bool) typ {
	if !nullable || t.text == unknown || t.text == "null" || strings.HasSuffix(t.text, "| null") && t.op == union {
		return t
	}
	return join([]typ{t, {text: "null"}}, " | ", union)
}

// maxAlternatives bounds the members of a union or intersection.
const maxAlternatives = 1000

// alternatives writes oneOf or anyOf. It skips alternatives that only list required properties.
func (g *generator) alternatives(n *jsonread.Node, word string, c context) (typ, bool) {
	items := n.Get(word).Items()
	if len(items) > maxAlternatives {
		g.cutOff++
		return typ{text: unknown}, true
	}
	tell := g.discriminator(n)
	var parts []typ
	for _, m := range items {
		if onlyRequires(m.Node) {
			continue
		}
		t := g.schema(m.Node, c.beside())
		if literal := tell(m.Node); literal != "" && t.text != unknown {
			t = join([]typ{{text: literal}, t}, " & ", intersection)
		}
		parts = append(parts, t)
	}
	if len(parts) == 0 {
		return typ{}, false
	}
	t := join(parts, " | ", union)
	return t, !open(t)
}

func onlyRequires(n *jsonread.Node) bool {
	return n.Is(jsonread.Object) && !slices.ContainsFunc(n.Members, func(m jsonread.Member) bool {
		return m.Key != "required" && m.Key != "title" && m.Key != "description" && m.Key != "not"
	})
}

// discriminator returns a function for the property that distinguishes an alternative, with the alternative's value.
// The function returns "" if the alternative's schema already has the value.
func (g *generator) discriminator(n *jsonread.Node) func(alternative *jsonread.Node) string {
	d := n.Get("discriminator")
	name := d.Str("propertyName")
	return func(alternative *jsonread.Node) string {
		ref := alternative.Str("$ref")
		if name == "" || ref == "" {
			return ""
		}
		p := g.refs.resolve(g.find(alternative, name, 0))
		if p == nil || p.Str("type") != "string" || p.Get("enum") != nil || p.Get("const") != nil {
			return ""
		}
		last := ref[strings.LastIndexByte(ref, '/')+1:]
		var values []typ
		for _, m := range atMost(d.Get("mapping").Maps(), maxAlternatives) {
			if to := m.Node.Text; to == ref || to == last {
				values = append(values, typ{text: quote(m.Key)})
			}
		}
		if len(values) == 0 {
			values = []typ{{text: quote(last)}}
		}
		return braces([]string{property(name, true, join(values, " | ", union))})
	}
}

// find returns the schema of a property, or nil.
func (g *generator) find(n *jsonread.Node, name string, depth int) *jsonread.Node {
	const deep = 5
	n = g.refs.resolve(n)
	if n == nil || depth > deep {
		return nil
	}
	if p := g.refs.child(n.Get("properties"), name); p != nil {
		return p
	}
	for i, m := range n.Get("allOf").Items() {
		if p := g.find(m.Node, name, depth+1); p != nil || i > deep {
			return p
		}
	}
	return nil
}

// base writes a schema without its combinations, and reports whether it may be null.
func (g *generator) base(n *jsonread.Node, c context) (t typ, null bool) {
	kinds, null := kindsOf(n)
	if v := n.Get("const"); v != nil {
		return literal(v, kinds), null
	}
	if values := n.Get("enum").Items(); len(values) > 0 {
		return enum(values, kinds, null), false
	}
	var parts []typ
	for _, k := range kinds {
		parts = append(parts, g.kind(n, k, c))
	}
	switch {
	case len(parts) > 0:
		return join(parts, " | ", union), null
	case null:
		return typ{text: "null"}, false
	}
	return typ{text: unknown}, false
}

// kindsOf returns the types that a schema allows. If "type" is missing, it derives them from other keywords.
func kindsOf(n *jsonread.Node) (kinds []string, null bool) {
	t := n.Get("type")
	if t.Is(jsonread.String) {
		kinds = []string{t.Text}
	}
	for _, m := range t.Items() {
		if !slices.Contains(kinds, m.Node.Text) && len(kinds) < 8 {
			kinds = append(kinds, m.Node.Text)
		}
	}
	kinds = slices.DeleteFunc(kinds, func(k string) bool {
		null = null || k == "null"
		return k == "null" || k == "any" || k == ""
	})
	if len(kinds) > 0 || null {
		return kinds, null
	}
	switch {
	case n.Get("properties") != nil, n.Get("additionalProperties") != nil, n.Get("patternProperties") != nil:
		return []string{"object"}, false
	case n.Get("items") != nil, n.Get("prefixItems") != nil:
		return []string{"array"}, false
	case n.Get("format").Is(jsonread.String) && n.Str("format") == "binary":
		return []string{"string"}, false
	}
	return nil, false
}

// kind writes one of a schema's types.
func (g *generator) kind(n *jsonread.Node, kind string, c context) typ {
	switch kind {
	case "string":
		if f := n.Str("format"); f == "binary" || n.Str("contentMediaType") == "application/octet-stream" &&
			n.Get("contentEncoding") == nil {
			return typ{text: blob}
		}
		return typ{text: "string"}
	case "integer", "number", "float", "double", "int", "long":
		return typ{text: "number"}
	case "boolean", "bool":
		return typ{text: "boolean"}
	case "file":
		return typ{text: blob}
	case "array":
		return g.array(n, c.in())
	case "object":
		return g.properties(n, c.in())
	}
	return typ{text: unknown}
}

func (g *generator) array(n *jsonread.Node, c context) typ {
	items := n.Get("items")
	tuple := n.Get("prefixItems").Items()
	if items.Is(jsonread.List) {
		tuple, items = items.Items(), n.Get("additionalItems")
	}
	const long = 20
	if len(tuple) == 0 || len(tuple) > long {
		if items == nil || items.Is(jsonread.List) {
			return typ{text: unknown + "[]"}
		}
		return typ{text: listOf(g.schema(items, c))}
	}
	var members []string
	for _, m := range tuple {
		members = append(members, g.schema(m.Node, c).text)
	}
	if !items.Is(jsonread.Bool) || items.Text != "false" {
		rest := typ{text: unknown}
		if items != nil {
			rest = g.schema(items, c)
		}
		members = append(members, "..."+listOf(rest))
	}
	return typ{text: "[" + strings.Join(members, ", ") + "]"}
}

func listOf(t typ) string {
	if t.op != none {
		return "(" + t.text + ")[]"
	}
	return t.text + "[]"
}

// maxProperties bounds the properties of an object.
const maxProperties = 2000

// properties writes an object.
func (g *generator) properties(n *jsonread.Node, c context) typ {
	members := n.Get("properties").Maps()
	if len(members) > maxProperties {
		g.cutOff++
		members = members[:maxProperties]
	}
	required := map[string]bool{}
	for _, m := range n.Get("required").Items() {
		required[m.Node.Text] = true
	}
	var fields []field
	for _, m := range members {
		must := required[m.Key] || m.Node.Str("required") == "true"
		if must {
			p := g.refs.resolve(m.Node)
			// A request need not have a read-only property, and a response has no write-only one.
			must = c.input && !p.True("readOnly") || !c.input && !p.True("writeOnly")
		}
		fields = append(fields, field{name: m.Key, required: must, schema: g.schema(m.Node, c)})
	}
	text := g.object(fields)
	more, ok := g.additional(n, c, len(fields) > 0)
	switch {
	case !ok && text == "":
		return typ{text: anyObject}
	case !ok:
		return typ{text: text}
	case text == "":
		return typ{text: braces([]string{more})}
	}
	return typ{text: strings.TrimSuffix(text, " }") + "; " + more + " }"}
}

// additional writes the properties without a name. Beside named properties they become unknown, because TypeScript
// requires all properties to match the index type.
func (g *generator) additional(n *jsonread.Node, c context, others bool) (string, bool) {
	const index = "[key: string]: "
	add, patterns := n.Get("additionalProperties"), n.Get("patternProperties").Maps()
	switch {
	case len(patterns) == 1 && !others && (add == nil || add.Text == "false"):
		return index + g.schema(patterns[0].Node, c).text, true
	case len(patterns) > 0, add.Is(jsonread.Bool) && add.Text == "true":
		return index + unknown, true
	case add.Is(jsonread.Object) && len(add.Members) == 0:
		return index + unknown, true
	case add.Is(jsonread.Object) && others:
		return index + unknown, true
	case add.Is(jsonread.Object):
		return index + g.schema(add, c).text, true
	}
	return "", false
}

// twins finds the schemas whose type differs between requests and responses. Those have a required property that is
// read-only or write-only, or refer to such a schema.
func twins(root *jsonread.Node, refs *resolver) map[*jsonread.Node]bool {
	out := map[*jsonread.Node]bool{}
	users := map[*jsonread.Node][]*jsonread.Node{}
	left := maxSchemas
	var first []*jsonread.Node
	for _, group := range []*jsonread.Node{root.At("components", "schemas"), root.Get("definitions")} {
		for _, m := range group.Maps() {
			t := twin{refs: refs, left: &left}
			t.walk(m.Node, 0)
			if t.differs {
				first = append(first, m.Node)
			}
			for _, to := range t.uses {
				users[to] = append(users[to], m.Node)
			}
		}
	}
	for len(first) > 0 {
		n := first[len(first)-1]
		first = first[:len(first)-1]
		if !out[n] {
			out[n] = true
			first = append(first, users[n]...)
		}
	}
	return out
}

// twin inspects one schema.
type twin struct {
	refs    *resolver
	left    *int
	differs bool
	uses    []*jsonread.Node
}

func (t *twin) walk(n *jsonread.Node, depth int) {
	if *t.left--; *t.left < 0 || depth > maxNesting*2 || n == nil {
		return
	}
	if ref := n.Get("$ref"); ref.Is(jsonread.String) {
		if to := t.refs.find(ref.Text); to != nil {
			t.uses = append(t.uses, to)
		}
		return
	}
	for _, m := range n.Get("required").Items() {
		p := t.refs.resolve(t.refs.child(n.Get("properties"), m.Node.Text))
		t.differs = t.differs || p.True("readOnly") || p.True("writeOnly")
	}
	for _, m := range n.Members {
		if m.Node != nil && len(m.Node.Members) > 0 {
			t.walk(m.Node, depth+1)
		}
	}
}
