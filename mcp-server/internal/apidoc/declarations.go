package apidoc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runner"
)

// declarations builds the text that declares a client.
type declarations struct {
	doc        *Doc
	call       string
	types      strings.Builder
	operations strings.Builder
	queue      []string
	n          int
}

// operation declares one operation.
func (c *declarations) operation(l operation.Line, key string) {
	var input []string
	needed := false
	part := func(name, ts string, required bool) {
		if ts == "" {
			return
		}
		// Each part gets a name, because the compiler shows names and not structures.
		alias := c.alias(name)
		fmt.Fprintf(&c.types, "type %s = %s;\n", alias, ts)
		mark := "?"
		if required {
			mark, needed = "", true
		}
		input = append(input, name+mark+": "+alias)
	}
	path, query := c.path(l), c.wire(merged(l.Query, c.doc.Head.Common), l.Styles)
	part("path", path, path != "")
	part("query", query, anyRequired(query))
	headers, must := c.headers(l.Headers)
	part("headers", headers, must)
	body := l.Body
	if body != "" {
		if l.BodyMedia == "application/x-www-form-urlencoded" || l.BodyMedia == "multipart/form-data" {
			body = c.wire(body, nil)
		} else {
			body = c.use(body)
		}
	}
	part("body", body, !l.BodyOptional)
	input = append(input, "signal?: any")
	answer := "any"
	if l.Answer != "" {
		answer = c.use(l.Answer)
	}
	mark := "?"
	if needed {
		mark = ""
	}
	fmt.Fprintf(&c.types, "type %s = { %s };\ntype %s = %s;\n", c.alias("input"), strings.Join(input, "; "),
		c.alias("answer"), answer)
	fmt.Fprintf(&c.operations, "  %s: { input: [input%s: %s]; answer: %s };\n", runner.Literal(key), mark,
		c.alias("input"), c.alias("answer"))
	c.n++
}

// open declares an operation with any input and answer.
func (c *declarations) open(key string) {
	fmt.Fprintf(&c.operations, "  %s: { input: [input?: any]; answer: any };\n", runner.Literal(key))
}

// alias returns the name for a part of the present operation. The compiler shows it in errors.
func (c *declarations) alias(part string) string {
	return fmt.Sprintf("%s%s$%d$%s", declared, part, c.n, c.call)
}

// use returns a type for the declarations, with any for unknown parts. It queues the types that the type names.
func (c *declarations) use(ts string) string {
	// Queued and not written at once: types may refer to each other.
	c.queue = append(c.queue, c.doc.named(ts)...)
	return lenient(ts)
}

// path declares the path's parameters.
func (c *declarations) path(l operation.Line) string {
	given := map[string]string{}
	list, _ := members(l.Params)
	for _, m := range list {
		if name, ts, ok := property(m); ok {
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
		if ts == "" {
			ts = "string"
		}
		out = append(out, runner.Literal(name)+": "+c.text1(ts))
	}
	if len(out) == 0 {
		return ""
	}
	return "{ " + strings.Join(out, "; ") + " }"
}

// wire declares a type that is sent as text: a number may be a string, and a list of one may be a single value.
func (c *declarations) wire(ts string, styles map[string]string) string {
	list, ok := members(ts)
	if !ok {
		return c.use(ts)
	}
	for i, m := range list {
		name, t, ok := property(m)
		if !ok {
			list[i] = c.use(m)
			continue
		}
		one, isList := strings.CutSuffix(t, "[]")
		wide := c.text1(t)
		if isList && wide == lenient(t) { // a list of items other than words and numbers
			wide = c.use(t)
		}
		if isList && styles != nil && styles[name] == "" {
			wide += " | " + c.text1(one)
		}
		list[i] = strings.TrimSuffix(m, t) + wide
	}
	return "{ " + strings.Join(list, "; ") + " }"
}

// text1 returns the type of a value that is sent as text.
func (c *declarations) text1(ts string) string {
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
	return c.use(ts)
}

// headers declares headers. Further headers are always allowed. must reports whether a header is required.
func (c *declarations) headers(ts string) (declared string, must bool) {
	out := []string{"[name: string]: any"}
	list, _ := members(ts)
	for _, m := range list {
		name, _, ok := property(m)
		if !ok || optional(m) == 1 {
			continue
		}
		switch strings.ToLower(name) {
		case "user-agent", "host", "content-length", "accept-encoding", "connection", "content-encoding", "date", "cookie":
			continue
		}
		must = true
		out = append(out, runner.Literal(name)+": any")
	}
	return "{ " + strings.Join(out, "; ") + " }", must
}

// merged returns an object type with the properties of both.
func merged(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	first, ok1 := members(a)
	second, ok2 := members(b)
	if !ok1 || !ok2 {
		return a
	}
	known := fieldNames(a)
	for _, m := range second {
		if name, _, ok := property(m); !ok || !slices.Contains(known, name) {
			first = append(first, m)
		}
	}
	return "{ " + strings.Join(first, "; ") + " }"
}

// anyRequired reports whether an object has a required property.
func anyRequired(ts string) bool {
	list, _ := members(ts)
	return slices.ContainsFunc(list, func(m string) bool {
		return optional(m) == 0 && !strings.HasPrefix(m, "[")
	})
}

// text returns all declarations.
func (c *declarations) text() string {
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
		fmt.Fprintf(&named, "type %s = %s;\n", name, c.use(ts))
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

// lenient returns a type with any in place of unknown, so that code may use such values.
func lenient(ts string) string {
	if !strings.Contains(ts, "unknown") {
		return ts
	}
	var b strings.Builder
	quoted := false
	for i := 0; i < len(ts); {
		c := ts[i]
		if quoted || !letter(c) {
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
		for i < len(ts) && (letter(ts[i]) || '0' <= ts[i] && ts[i] <= '9') {
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
