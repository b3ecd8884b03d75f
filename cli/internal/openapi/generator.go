package openapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

const (
	unknown = "unknown"
	blob    = "Blob"
)

// Bounds of a generator's output.
const (
	// maxText bounds one type, in bytes. Longer types become unknown.
	maxText = 48 << 10
	// maxNesting bounds the nesting of types without a name.
	maxNesting = 30
	// maxSchemas bounds the schemas that are read. maxWork bounds the bytes written; a type inside another counts again,
	// because shared values multiply.
	maxSchemas = 3_000_000
	maxWork    = 512 << 20
	// maxTypes bounds the types with a name.
	maxTypes = 100_000
)

type tsType struct {
	text string
	op   typeOperator
}

// typeOperator is the operator between a type's parts.
type typeOperator uint8

const (
	none typeOperator = iota
	intersection
	union
)

// schemaContext describes the place of a schema.
type schemaContext struct {
	// input is true for data that code sends. There, read-only properties are optional.
	input bool
	// depth counts the unnamed types around the schema.
	depth int
	// guarded is true inside an object or list. Only there may a type refer to itself.
	guarded bool
}

func (c schemaContext) enterSchema() schemaContext { return schemaContext{c.input, c.depth + 1, true} }
func (c schemaContext) stayInSchema() schemaContext {
	return schemaContext{c.input, c.depth + 1, c.guarded}
}

type namedType struct {
	name  string
	node  *jsonread.Node
	input bool
	text  string
	// bare are the named types that it consists of outside of any object or list.
	bare []*namedType
	// banned are those types in bare that would lead back to it.
	banned []*namedType
}

// typeGenerator writes schemas as TypeScript.
type typeGenerator struct {
	refs   *refResolver
	naming typeNaming
	twins  map[*jsonread.Node]bool // schemas whose type differs between requests and responses
	byNode map[typeKey]*namedType
	queue  []*namedType
	all    []*namedType
	// current is the named type that is being written.
	current *namedType
	schemas int
	work    int
	cutOff  int
}

type typeKey struct {
	node  *jsonread.Node
	input bool
}

func newGenerator(root *jsonread.Node, refs *refResolver) *typeGenerator {
	return &typeGenerator{refs: refs, naming: newNaming(), twins: inputVariants(root, refs),
		byNode:  map[typeKey]*namedType{},
		schemas: maxSchemas, work: maxWork}
}

func (g *typeGenerator) typeOfReference(ref string, c schemaContext) tsType {
	n := g.refs.findTarget(ref)
	if n == nil {
		return tsType{text: unknown}
	}
	k := typeKey{n, c.input && g.twins[n]}
	t := g.byNode[k]
	if t == nil {
		if len(g.all) >= maxTypes {
			return tsType{text: unknown}
		}
		t = &namedType{name: g.naming.nameType(ref, k.input), node: n, input: c.input}
		g.byNode[k] = t
		g.all = append(g.all, t)
		// The type is written later: writing it here would recurse for every reference.
		g.queue = append(g.queue, t)
	}
	// Outside an object or list, TypeScript expands the type at once: untie needs these edges to find cycles.
	if !c.guarded && g.current != nil {
		if slices.Contains(g.current.banned, t) {
			return tsType{text: unknown}
		}
		g.current.bare = append(g.current.bare, t)
	}
	return tsType{text: t.name}
}

func (g *typeGenerator) writeTypes() []operation.Line {
	for len(g.queue) > 0 {
		t := g.queue[0]
		g.queue = g.queue[1:]
		g.writeType(t)
	}
	g.breakAliasCycles()
	out := make([]operation.Line, 0, len(g.all))
	for _, t := range g.all {
		l := operation.Line{Type: t.name, TS: t.text}
		if _, err := operation.MarshalLine(l); err != nil {
			l.TS = unknown
			g.cutOff++
		}
		out = append(out, l)
	}
	return out
}

func (g *typeGenerator) writeType(t *namedType) {
	g.current, t.bare = t, nil
	t.text = g.writeSchema(t.node, schemaContext{input: t.input}).text
	g.current = nil
}

// breakAliasCycles rewrites types that consist of themselves, like type A = B | null and type B = A, which TypeScript
// rejects.
func (g *typeGenerator) breakAliasCycles() {
	state := map[*namedType]int{} // 1: on the current path, 2: done
	var ways [][2]*namedType      // an explicit stack, because chains may be long
	for _, start := range g.all {
		if state[start] != 0 {
			continue
		}
		type step struct {
			t    *namedType
			next int
		}
		stack := []step{{t: start}}
		state[start] = 1
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if top.next == len(top.t.bare) {
				state[top.t] = 2
				stack = stack[:len(stack)-1]
				continue
			}
			next := top.t.bare[top.next]
			top.next++
			switch state[next] {
			case 0:
				state[next] = 1
				stack = append(stack, step{t: next})
			// The next type is on the current path, so this edge closes a cycle.
			case 1:
				ways = append(ways, [2]*namedType{top.t, next})
			}
		}
	}
	again := map[*namedType]bool{}
	for _, w := range ways {
		w[0].banned = append(w[0].banned, w[1])
		again[w[0]] = true
	}
	for _, t := range g.all {
		// The banned references become unknown this time.
		if again[t] {
			g.writeType(t)
		}
	}
}

// writeObject writes fields as an object, the required ones first. Without fields it returns "".
func (g *typeGenerator) writeObject(fields []formField) string {
	if len(fields) == 0 {
		return ""
	}
	var members []string
	seen := map[string]bool{}
	for _, required := range []bool{true, false} {
		for _, f := range fields {
			if f.required == required && !seen[f.name] {
				seen[f.name] = true
				members = append(members, writeProperty(f.name, required, f.schema))
			}
		}
	}
	return wrapInBraces(members)
}

func writeProperty(name string, required bool, t tsType) string {
	if required {
		return propertyName(name) + ": " + t.text
	}
	return propertyName(name) + "?: " + t.text
}

func wrapInBraces(members []string) string {
	return "{ " + strings.Join(members, "; ") + " }"
}

// joinTypes combines types with an operator, without duplicates.
func joinTypes(parts []tsType, with string, op typeOperator) tsType {
	var texts []string
	seen := map[string]bool{}
	for _, p := range parts {
		text := p.text
		// & binds more tightly than | in TypeScript.
		if op == intersection && p.op == union {
			text = "(" + text + ")"
		}
		if !seen[text] {
			seen[text] = true
			texts = append(texts, text)
		}
	}
	if len(texts) == 1 {
		return parts[0]
	}
	// In TypeScript, unknown in a union absorbs all other members.
	if op == union && seen[unknown] {
		return tsType{text: unknown}
	}
	return tsType{strings.Join(texts, with), op}
}

type typeNaming struct {
	used     map[string]bool
	reserved map[string]bool
	// next is the next number for a name that is already taken.
	next map[string]int
}

func newNaming() typeNaming {
	n := typeNaming{map[string]bool{}, map[string]bool{}, map[string]int{}}
	for _, word := range strings.Fields(reserved) {
		n.reserved[word] = true
	}
	return n
}

// nameType makes an identifier from the end of a reference.
func (n typeNaming) nameType(ref string, input bool) string {
	parts := strings.Split(strings.TrimPrefix(ref, "#/"), "/")
	last := parts[len(parts)-1]
	const components = 3 // components/schemas/Name
	if len(parts) > components && !strings.HasPrefix(ref, "#/definitions/") || isGeneric(last) {
		last = strings.Join(parts[max(0, len(parts)-4):], "_")
	}
	return n.makeUnique(makeIdentifier(last), input)
}

// isGeneric reports whether the end of a reference is a word without meaning.
func isGeneric(s string) bool {
	return s == "schema" || s == "items" || s == "" || strings.Trim(s, "0123456789") == ""
}

func (n typeNaming) makeUnique(base string, input bool) string {
	if input {
		base += "Input"
	}
	if n.reserved[base] {
		base += "_"
	}
	name := base
	for n.used[name] {
		n.next[base]++
		name = fmt.Sprintf("%s_%d", base, n.next[base]+1)
	}
	n.used[name] = true
	return name
}
