package openapi

import (
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

func (g *typeGenerator) writeSchema(n *jsonread.Node, c schemaContext) tsType {
	g.schemas--
	// A small document can describe a huge type by sharing its parts.
	if g.schemas < 0 || g.work < 0 || c.depth > maxNesting {
		g.cutOff++
		return tsType{text: unknown}
	}
	t := g.writeCombined(n, c)
	g.work -= len(t.text) + schemaSize(n)
	if len(t.text) > maxText {
		g.cutOff++
		return tsType{text: unknown}
	}
	return t
}

// schemaSize returns the size of a schema without its nested schemas.
func schemaSize(n *jsonread.Node) int {
	sum := len(n.ObjectMembers())
	for _, m := range n.ObjectMembers() {
		if m.Node != nil {
			sum += len(m.Node.Members)
		}
	}
	return sum
}

// writeCombined writes a schema and its combinations (allOf, oneOf, anyOf).
func (g *typeGenerator) writeCombined(n *jsonread.Node, c schemaContext) tsType {
	switch {
	case n.Is(jsonread.Bool) && n.Text == "false":
		return tsType{text: "never"}
	case !n.Is(jsonread.Object):
		return tsType{text: unknown}
	}
	nullable := n.IsTrue("nullable") || n.IsTrue("x-nullable")
	// OpenAPI 3.0, Reference Object: keywords beside $ref are ignored.
	if ref := n.GetValue("$ref"); ref.Is(jsonread.String) {
		return addNull(g.typeOfReference(ref.Text, c), nullable)
	}
	var parts []tsType
	for _, m := range n.GetValue("allOf").ListItems() {
		if t := g.writeSchema(m.Node, c.stayInSchema()); !isOpen(t) && len(parts) < maxAlternatives {
			parts = append(parts, t)
		}
	}
	for _, word := range []string{"oneOf", "anyOf"} {
		if t, ok := g.writeAlternatives(n, word, c); ok {
			parts = append(parts, t)
		}
	}
	base, null := g.writeBase(n, c)
	switch {
	case len(parts) == 0:
		parts = append(parts, base)
	case !isOpen(base) && !isPrimitive(base):
		parts = append([]tsType{base}, parts...)
	}
	return addNull(joinTypes(parts, " & ", intersection), nullable || null)
}

// isOpen reports whether a type allows anything.
func isOpen(t tsType) bool { return t.text == unknown || t.text == anyObject }

const anyObject = "{ [key: string]: unknown }"

func isPrimitive(t tsType) bool {
	switch t.text {
	case "string", "number", "boolean", "null":
		return true
	}
	return false
}

func addNull(t tsType, nullable bool) tsType {
	if !nullable || t.text == unknown || t.text == "null" || strings.HasSuffix(t.text, "| null") && t.op == union {
		return t
	}
	return joinTypes([]tsType{t, {text: "null"}}, " | ", union)
}

// maxAlternatives bounds the members of a union or intersection.
const maxAlternatives = 1000

// writeAlternatives writes oneOf or anyOf. It skips alternatives that only list required properties.
func (g *typeGenerator) writeAlternatives(n *jsonread.Node, word string, c schemaContext) (tsType, bool) {
	items := n.GetValue(word).ListItems()
	if len(items) > maxAlternatives {
		g.cutOff++
		return tsType{text: unknown}, true
	}
	tell := g.newDiscriminator(n)
	var parts []tsType
	for _, m := range items {
		if hasOnlyRequired(m.Node) {
			continue
		}
		t := g.writeSchema(m.Node, c.stayInSchema())
		if literal := tell(m.Node); literal != "" && t.text != unknown {
			t = joinTypes([]tsType{{text: literal}, t}, " & ", intersection)
		}
		parts = append(parts, t)
	}
	if len(parts) == 0 {
		return tsType{}, false
	}
	t := joinTypes(parts, " | ", union)
	return t, !isOpen(t)
}

func hasOnlyRequired(n *jsonread.Node) bool {
	return n.Is(jsonread.Object) && !slices.ContainsFunc(n.Members, func(m jsonread.Member) bool {
		return m.Key != "required" && m.Key != "title" && m.Key != "description" && m.Key != "not"
	})
}

// newDiscriminator returns a function for the property that distinguishes an alternative, with the alternative's value.
// The function returns "" if the alternative's schema already has the value.
func (g *typeGenerator) newDiscriminator(n *jsonread.Node) func(alternative *jsonread.Node) string {
	d := n.GetValue("discriminator")
	name := d.TextOf("propertyName")
	return func(alternative *jsonread.Node) string {
		ref := alternative.TextOf("$ref")
		if name == "" || ref == "" {
			return ""
		}
		p := g.refs.followRefs(g.findProperty(alternative, name, 0))
		if p == nil || p.TextOf("type") != "string" || p.GetValue("enum") != nil || p.GetValue("const") != nil {
			return ""
		}
		last := ref[strings.LastIndexByte(ref, '/')+1:]
		var values []tsType
		mapping := takeAtMost(d.GetValue("mapping").ObjectMembers(), maxAlternatives)
		g.work -= len(mapping) // each alternative searches all of it
		for _, m := range mapping {
			if to := m.Node.Text; to == ref || to == last {
				values = append(values, tsType{text: quoteString(m.Key)})
			}
		}
		if len(values) == 0 {
			// OpenAPI, Discriminator Object: without a mapping, the value is the name of the schema.
			values = []tsType{{text: quoteString(last)}}
		}
		return wrapInBraces([]string{writeProperty(name, true, joinTypes(values, " | ", union))})
	}
}

// findProperty returns the schema of a property, or nil.
func (g *typeGenerator) findProperty(n *jsonread.Node, name string, depth int) *jsonread.Node {
	const deep = 5
	g.schemas-- // many alternatives can share a tree of allOf
	n = g.refs.followRefs(n)
	if n == nil || depth > deep || g.schemas < 0 {
		return nil
	}
	if p := g.refs.childNode(n.GetValue("properties"), name); p != nil {
		return p
	}
	for i, m := range n.GetValue("allOf").ListItems() {
		if p := g.findProperty(m.Node, name, depth+1); p != nil || i > deep {
			return p
		}
	}
	return nil
}

// writeBase writes a schema without its combinations, and reports whether it may be null.
func (g *typeGenerator) writeBase(n *jsonread.Node, c schemaContext) (t tsType, null bool) {
	kinds, null := kindsOf(n)
	if v := n.GetValue("const"); v != nil {
		return writeLiteral(v, kinds), null
	}
	if values := n.GetValue("enum").ListItems(); len(values) > 0 {
		return writeEnum(values, kinds, null), false
	}
	parts := convert.Each(kinds, func(k string) tsType { return g.writeKind(n, k, c) })
	switch {
	case len(parts) > 0:
		return joinTypes(parts, " | ", union), null
	case null:
		return tsType{text: "null"}, false
	}
	return tsType{text: unknown}, false
}

// kindsOf returns the types that a schema allows. If "type" is missing, it derives them from other keywords.
func kindsOf(n *jsonread.Node) (kinds []string, null bool) {
	t := n.GetValue("type")
	if t.Is(jsonread.String) {
		kinds = []string{t.Text}
	}
	for _, m := range t.ListItems() {
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
	case n.GetValue("properties") != nil, n.GetValue("additionalProperties") != nil,
		n.GetValue("patternProperties") != nil:
		return []string{"object"}, false
	case n.GetValue("items") != nil, n.GetValue("prefixItems") != nil:
		return []string{"array"}, false
	case n.GetValue("format").Is(jsonread.String) && n.TextOf("format") == "binary":
		return []string{"string"}, false
	}
	return nil, false
}

func (g *typeGenerator) writeKind(n *jsonread.Node, kind string, c schemaContext) tsType {
	switch kind {
	case "string":
		if f := n.TextOf("format"); f == "binary" || n.TextOf("contentMediaType") == "application/octet-stream" &&
			n.GetValue("contentEncoding") == nil {
			return tsType{text: blob}
		}
		return tsType{text: "string"}
	case "integer", "number", "float", "double", "int", "long":
		return tsType{text: "number"}
	case "boolean", "bool":
		return tsType{text: "boolean"}
	case "file":
		return tsType{text: blob}
	case "array":
		return g.writeArray(n, c.enterSchema())
	case "object":
		return g.writeProperties(n, c.enterSchema())
	}
	return tsType{text: unknown}
}

func (g *typeGenerator) writeArray(n *jsonread.Node, c schemaContext) tsType {
	items := n.GetValue("items")
	tuple := n.GetValue("prefixItems").ListItems()
	// Before JSON Schema 2020-12, a list in items described a tuple.
	if items.Is(jsonread.List) {
		tuple, items = items.ListItems(), n.GetValue("additionalItems")
	}
	const long = 20
	if len(tuple) == 0 || len(tuple) > long {
		if items == nil || items.Is(jsonread.List) {
			return tsType{text: unknown + "[]"}
		}
		return tsType{text: listOf(g.writeSchema(items, c))}
	}
	members := convert.Each(tuple, func(m jsonread.Member) string { return g.writeSchema(m.Node, c).text })
	// JSON Schema allows further items, unless the schema forbids them.
	if !items.Is(jsonread.Bool) || items.Text != "false" {
		rest := tsType{text: unknown}
		if items != nil {
			rest = g.writeSchema(items, c)
		}
		members = append(members, "..."+listOf(rest))
	}
	return tsType{text: "[" + strings.Join(members, ", ") + "]"}
}

func listOf(t tsType) string {
	if t.op != none {
		return "(" + t.text + ")[]"
	}
	return t.text + "[]"
}

// maxProperties bounds the properties of an object.
const maxProperties = 2000

func (g *typeGenerator) writeProperties(n *jsonread.Node, c schemaContext) tsType {
	members := n.GetValue("properties").ObjectMembers()
	if len(members) > maxProperties {
		g.cutOff++
		members = members[:maxProperties]
	}
	required := map[string]bool{}
	for _, m := range n.GetValue("required").ListItems() {
		required[m.Node.Text] = true
	}
	var fields []formField
	for _, m := range members {
		must := required[m.Key] || m.Node.TextOf("required") == "true"
		if must {
			p := g.refs.followRefs(m.Node)
			// A request need not have a read-only property, and a response has no write-only one.
			must = c.input && !p.IsTrue("readOnly") || !c.input && !p.IsTrue("writeOnly")
		}
		fields = append(fields, formField{name: m.Key, required: must, schema: g.writeSchema(m.Node, c)})
	}
	text := g.writeObject(fields)
	more, ok := g.writeAdditional(n, c, len(fields) > 0)
	switch {
	case !ok && text == "":
		return tsType{text: anyObject}
	case !ok:
		return tsType{text: text}
	case text == "":
		return tsType{text: wrapInBraces([]string{more})}
	}
	return tsType{text: strings.TrimSuffix(text, " }") + "; " + more + " }"}
}

// writeAdditional writes the properties without a name. Beside named properties they become unknown, because TypeScript
// requires all properties to match the index type.
func (g *typeGenerator) writeAdditional(n *jsonread.Node, c schemaContext, others bool) (string, bool) {
	const index = "[key: string]: "
	add, patterns := n.GetValue("additionalProperties"), n.GetValue("patternProperties").ObjectMembers()
	switch {
	case len(patterns) == 1 && !others && (add == nil || add.Text == "false"):
		return index + g.writeSchema(patterns[0].Node, c).text, true
	case len(patterns) > 0, add.Is(jsonread.Bool) && add.Text == "true":
		return index + unknown, true
	case add.Is(jsonread.Object) && len(add.Members) == 0:
		return index + unknown, true
	case add.Is(jsonread.Object) && others:
		return index + unknown, true
	case add.Is(jsonread.Object):
		return index + g.writeSchema(add, c).text, true
	}
	return "", false
}

// inputVariants finds the schemas whose type differs between requests and responses. Those have a required property
// that is read-only or write-only, or refer to such a schema.
func inputVariants(root *jsonread.Node, refs *refResolver) map[*jsonread.Node]bool {
	out := map[*jsonread.Node]bool{}
	users := map[*jsonread.Node][]*jsonread.Node{}
	left := maxSchemas
	var first []*jsonread.Node
	for _, group := range []*jsonread.Node{root.FollowKeys("components", "schemas"), root.GetValue("definitions")} {
		for _, m := range group.ObjectMembers() {
			t := variantFinder{refs: refs, left: &left}
			t.walkSchema(m.Node, 0)
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

// variantFinder inspects one schema.
type variantFinder struct {
	refs    *refResolver
	left    *int
	differs bool
	uses    []*jsonread.Node
}

func (t *variantFinder) walkSchema(n *jsonread.Node, depth int) {
	if *t.left--; *t.left < 0 || depth > maxNesting*2 || n == nil {
		return
	}
	if ref := n.GetValue("$ref"); ref.Is(jsonread.String) {
		if to := t.refs.findTarget(ref.Text); to != nil {
			t.uses = append(t.uses, to)
		}
		return
	}
	for _, m := range n.GetValue("required").ListItems() {
		p := t.refs.followRefs(t.refs.childNode(n.GetValue("properties"), m.Node.Text))
		t.differs = t.differs || p.IsTrue("readOnly") || p.IsTrue("writeOnly")
	}
	for _, m := range n.Members {
		if m.Node != nil && len(m.Node.Members) > 0 {
			t.walkSchema(m.Node, depth+1)
		}
	}
}
