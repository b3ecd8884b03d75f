package apidoc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runner"
)

// declarationWriter builds the text that declares a client.
type declarationWriter struct {
	doc        *Document
	call       string
	types      strings.Builder
	operations strings.Builder
	queue      []string
	n          int
}

func (c *declarationWriter) declareOperation(l operation.Line, key string) {
	var input []string
	needed := false
	part := func(name, ts string, required bool) {
		if ts == "" {
			return
		}
		// Each part gets a name, because the compiler shows names and not structures.
		alias := c.aliasFor(name)
		fmt.Fprintf(&c.types, "type %s = %s;\n", alias, ts)
		mark := "?"
		if required {
			mark, needed = "", true
		}
		input = append(input, name+mark+": "+alias)
	}
	path, query := c.declarePath(l), c.declareWireType(mergeObjects(l.Query, c.doc.Head.Common), l.Styles)
	part("path", path, path != "")
	part("query", query, hasRequired(query))
	headers, must := c.declareHeaders(l.Headers)
	part("headers", headers, must)
	body := l.Body
	if body != "" {
		if l.BodyMedia == "application/x-www-form-urlencoded" || l.BodyMedia == "multipart/form-data" {
			body = c.declareWireType(body, nil)
		} else {
			body = c.useType(body)
		}
	}
	part("body", body, !l.BodyOptional)
	input = append(input, "signal?: any")
	answer := "any"
	if l.Answer != "" {
		answer = c.useType(l.Answer)
	}
	mark := "?"
	if needed {
		mark = ""
	}
	fmt.Fprintf(&c.types, "type %s = { %s };\ntype %s = %s;\n", c.aliasFor("input"), strings.Join(input, "; "),
		c.aliasFor("answer"), answer)
	fmt.Fprintf(&c.operations, "  %s: { input: [input%s: %s]; answer: %s };\n", runner.QuoteLiteral(key), mark,
		c.aliasFor("input"), c.aliasFor("answer"))
	c.n++
}

// declareOpen declares an operation with any input and answer.
func (c *declarationWriter) declareOpen(key string) {
	fmt.Fprintf(&c.operations, "  %s: { input: [input?: any]; answer: any };\n", runner.QuoteLiteral(key))
}

// aliasFor returns the name for a part of the present operation. The compiler shows it in errors.
func (c *declarationWriter) aliasFor(part string) string {
	return fmt.Sprintf("%s%s$%d$%s", declared, part, c.n, c.call)
}

// useType returns a type for the declarations, with any for unknown parts. It queues the types that the type names.
func (c *declarationWriter) useType(ts string) string {
	// Queued and not written at once: types may refer to each other.
	c.queue = append(c.queue, c.doc.typesNamedBy(ts)...)
	return widenType(ts)
}

func (c *declarationWriter) declarePath(l operation.Line) string {
	given := map[string]string{}
	list, _ := objectMembers(l.Params)
	for _, m := range list {
		if name, ts, ok := splitMember(m); ok {
			given[name] = ts
		}
	}
	var out []string
	seen := map[string]bool{}
	for _, m := range inPath.FindAllStringSubmatch(l.Path, -1) {
		name := strings.TrimSuffix(m[1], "+")
		if seen[name] {
			continue
		}
		seen[name] = true
		ts := given[name]
		ts = cmp.Or(ts, "string")
		out = append(out, runner.QuoteLiteral(name)+": "+c.wireValueType(ts))
	}
	if len(out) == 0 {
		return ""
	}
	return "{ " + strings.Join(out, "; ") + " }"
}

// declareWireType declares a type that is sent as text: a number may be a string, and a list of one may be a single
// value.
func (c *declarationWriter) declareWireType(ts string, styles map[string]string) string {
	list, ok := objectMembers(ts)
	if !ok {
		return c.useType(ts)
	}
	for i, m := range list {
		name, t, ok := splitMember(m)
		if !ok {
			list[i] = c.useType(m)
			continue
		}
		one, isList := strings.CutSuffix(t, "[]")
		wide := c.wireValueType(t)
		if isList && wide == widenType(t) { // a list of items other than words and numbers
			wide = c.useType(t)
		}
		if isList && styles != nil && styles[name] == "" {
			wide += " | " + c.wireValueType(one)
		}
		list[i] = strings.TrimSuffix(m, t) + wide
	}
	return "{ " + strings.Join(list, "; ") + " }"
}

// wireValueType returns the type of a value that is sent as text.
func (c *declarationWriter) wireValueType(ts string) string {
	switch ts {
	case "string":
		return "string | number | boolean"
	case "number":
		return "number | `${number}`"
	case "boolean":
		return `boolean | "true" | "false"`
	case "string[]":
		return "(string | number)[]"
	case "number[]":
		return "(number | `${number}`)[]"
	}
	return c.useType(ts)
}

// declareHeaders declares headers. Further headers are always allowed. must reports whether a header is required.
func (c *declarationWriter) declareHeaders(ts string) (declared string, must bool) {
	out := []string{"[name: string]: any"}
	list, _ := objectMembers(ts)
	for _, m := range list {
		name, _, ok := splitMember(m)
		if !ok || countOptional(m) == 1 {
			continue
		}
		switch strings.ToLower(name) {
		case "user-agent", "host", "content-length", "accept-encoding", "connection", "content-encoding", "date", "cookie":
			continue
		}
		must = true
		out = append(out, runner.QuoteLiteral(name)+": any")
	}
	return "{ " + strings.Join(out, "; ") + " }", must
}

// mergeObjects returns an object type with the properties of both.
func mergeObjects(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	first, ok1 := objectMembers(a)
	second, ok2 := objectMembers(b)
	if !ok1 || !ok2 {
		return a
	}
	known := fieldNames(a)
	for _, m := range second {
		if name, _, ok := splitMember(m); !ok || !slices.Contains(known, name) {
			first = append(first, m)
		}
	}
	return "{ " + strings.Join(first, "; ") + " }"
}

// hasRequired reports whether an object has a required property.
func hasRequired(ts string) bool {
	list, _ := objectMembers(ts)
	return slices.ContainsFunc(list, func(m string) bool {
		return countOptional(m) == 0 && !strings.HasPrefix(m, "[")
	})
}

func (c *declarationWriter) renderText() string {
	shown := map[string]bool{}
	var named strings.Builder
	for len(c.queue) > 0 {
		name := c.queue[0]
		c.queue = c.queue[1:]
		if shown[name] {
			continue
		}
		shown[name] = true
		t, _ := c.doc.Type(name)
		ts := t.TS
		// The bound leaves the name declared, so that other types stay valid.
		if c.types.Len()+named.Len()+len(ts) > maxDeclared {
			ts = "any"
		}
		fmt.Fprintf(&named, "type %s = %s;\n", name, c.useType(ts))
	}
	var b strings.Builder
	b.WriteString("export {};\n") // this makes the file a module with local declarations
	b.WriteString(named.String())
	b.WriteString(c.types.String())
	fmt.Fprintf(&b, "interface %soperations {\n%s}\n", declared, c.operations.String())
	b.WriteString(strings.NewReplacer("OPERATIONS", declared+"operations", "ITEM", declared+"item",
		"CLIENT", declared+"client", "FAILED", declared+"failed", "CALL", c.call).Replace(clientTypes))
	return b.String()
}

// widenType returns a type with any in place of unknown, so that code may use such values.
func widenType(ts string) string {
	if !strings.Contains(ts, "unknown") {
		return ts
	}
	var b strings.Builder
	quoted := false
	for i := 0; i < len(ts); {
		c := ts[i]
		if quoted || !isLetter(c) {
			if c == '\\' && quoted && i+1 < len(ts) {
				b.WriteByte(c)
				i++
				c = ts[i]
			} else if c == '"' {
				quoted = !quoted
			}
			b.WriteByte(c)
			i++
			continue
		}
		from := i
		for i < len(ts) && (isLetter(ts[i]) || '0' <= ts[i] && ts[i] <= '9') {
			i++
		}
		word := ts[from:i]
		if word == "unknown" && !strings.HasPrefix(strings.TrimPrefix(ts[i:], "?"), ":") {
			word = "any"
		}
		b.WriteString(word)
	}
	return b.String()
}
