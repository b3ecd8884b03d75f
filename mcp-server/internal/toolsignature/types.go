package toolsignature

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/schema"
)

type typeWriter struct {
	root any
	work int // visited schemas, and other work of the same duration
}

// spendWork counts a number of names, and reports whether the work may go on.
func (w *typeWriter) spendWork(names int) bool {
	w.work += names / perWork
	return w.work <= maxWork
}

func (w *typeWriter) typeOf(of any, depth int) string {
	w.work++
	if w.work > maxWork || depth > maxDepth {
		return "unknown"
	}
	s, ok := w.resolveRefs(of)
	if !ok {
		return "unknown"
	}
	// A fixed value says more than its type.
	if c, ok := s["const"]; ok {
		return literalType(c)
	}
	if list, ok := s["enum"].([]any); ok && len(list) > 0 {
		return unionType(list, literalType)
	}
	for _, key := range [...]string{"anyOf", "oneOf"} {
		if list, ok := s[key].([]any); ok && len(list) > 0 {
			return w.writeAlternatives(s, key, list, depth)
		}
	}
	if list, ok := s["allOf"].([]any); ok && len(list) > 0 {
		return w.typeOf(w.mergeSchemas(s, list), depth)
	}
	if types := schema.AllowedTypes(s); len(types) > 0 {
		return unionType(types, func(name string) string { return w.writeNamed(name, s, depth) })
	}
	switch {
	case s["properties"] != nil || s["additionalProperties"] != nil:
		return w.writeNamed("object", s, depth)
	case s["items"] != nil || s["prefixItems"] != nil:
		return w.writeNamed("array", s, depth)
	}
	return "unknown"
}

func (w *typeWriter) writeNamed(name string, s map[string]any, depth int) string {
	switch name {
	case "string", "boolean", "number", "null":
		return name
	case "integer":
		return "number"
	case "array":
		return w.writeArray(s, depth)
	case "object":
		return w.writeObject(s, depth)
	}
	return "unknown"
}

func (w *typeWriter) writeArray(s map[string]any, depth int) string {
	prefix, _ := s["prefixItems"].([]any)
	if list, ok := s["items"].([]any); ok { // drafts before 2020-12 wrote a tuple like this
		prefix = list
	}
	if len(prefix) > 0 && len(prefix) <= maxMembers {
		parts := convert.Each(prefix, func(p any) string { return w.typeOf(p, depth+1) })
		return "[" + strings.Join(parts, ", ") + "]"
	}
	item := "unknown"
	if s["items"] != nil {
		item = w.typeOf(s["items"], depth+1)
	}
	// Without parentheses, a | b[] would be read as a or a list of b.
	if isUnion(item) {
		item = "(" + item + ")"
	}
	return item + "[]"
}

// isUnion reports whether a type is a union at its top level.
func isUnion(text string) bool {
	depth, quoted, escaped := 0, false, false
	for i := range len(text) {
		switch c := text[i]; {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case strings.IndexByte("{[(<", c) >= 0:
			depth++
		case strings.IndexByte("}])>", c) >= 0:
			depth--
		case c == '|' && depth == 0:
			return true
		}
	}
	return false
}

func (w *typeWriter) writeObject(s map[string]any, depth int) string {
	properties, _ := s["properties"].(map[string]any)
	if len(properties) == 0 {
		return w.writeRecord(s, depth)
	}
	// Deeper objects would make the line long without helping the reader.
	if depth == maxDepth {
		return "object"
	}
	parts := w.writeProperties(s, properties, func(p any) string { return ": " + w.typeOf(p, depth+1) })
	return "{" + strings.Join(parts, ", ") + "}"
}

// writeProperties returns the properties of an object, required ones first, each followed by the result of typed.
func (w *typeWriter) writeProperties(s, properties map[string]any, typed func(any) string) []string {
	optional := map[string]string{}
	list, _ := s["required"].([]any)
	if !w.spendWork(len(properties) + len(list)) {
		return []string{"…"}
	}
	for name := range properties {
		optional[name] = "?"
	}
	for _, name := range schema.RequiredNames(s) {
		optional[name] = ""
	}
	names := slices.SortedFunc(maps.Keys(properties), func(a, b string) int { // required ones first
		return cmp.Or(strings.Compare(optional[a], optional[b]), strings.Compare(a, b))
	})
	var parts []string
	for i, name := range names {
		if i == maxProperties {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, propertyKey(name)+optional[name]+typed(properties[name]))
	}
	return parts
}

// writeRecord returns the type of an object without named properties.
func (w *typeWriter) writeRecord(s map[string]any, depth int) string {
	switch more := s["additionalProperties"].(type) {
	case bool:
		if !more {
			return "{}"
		}
	case map[string]any:
		return "Record<string, " + w.typeOf(more, depth+1) + ">"
	}
	// Without declared arguments, a tool most likely takes none.
	if depth == 0 {
		return "{}"
	}
	return "Record<string, unknown>"
}

// writeAlternatives returns a union of schemas, each merged with the keywords beside the union.
func (w *typeWriter) writeAlternatives(s map[string]any, key string, list []any, depth int) string {
	rest := map[string]any{}
	if !w.spendWork(len(s)) {
		return "unknown"
	}
	for k, v := range s {
		if k != key {
			rest[k] = v
		}
	}
	_, outer := rest["properties"]
	return unionType(list, func(one any) string {
		if outer {
			return w.typeOf(w.mergeSchemas(rest, []any{one}), depth)
		}
		return w.typeOf(one, depth)
	})
}

func (w *typeWriter) mergeSchemas(s map[string]any, list []any) map[string]any {
	out, properties, required := map[string]any{}, map[string]any{}, []any{}
	add := func(part map[string]any) {
		if m, _ := part["properties"].(map[string]any); !w.spendWork(len(part) + len(m)) {
			return
		}
		for k, v := range part {
			switch k {
			case "allOf":
			case "properties":
				m, _ := v.(map[string]any)
				maps.Copy(properties, m)
			case "required":
				l, _ := v.([]any)
				required = append(required, l...)
			default:
				out[k] = v
			}
		}
	}
	add(s)
	for _, one := range list[:min(len(list), maxMembers)] {
		part, _ := w.resolveRefs(one) // part is empty if it is not a schema
		if nested, ok := part["allOf"].([]any); ok && w.work < maxWork {
			w.work++
			part = w.mergeSchemas(part, nested)
		}
		add(part)
	}
	if len(properties) > 0 {
		out["properties"], out["required"] = properties, required
	}
	return out
}

// resolveRefs follows references. ok is false if the result is not a schema.
func (w *typeWriter) resolveRefs(s any) (map[string]any, bool) {
	return schema.ResolveRefs(w.root, s, w.spendWork)
}

func unionType[T any](list []T, typeOf func(T) string) string {
	var parts []string
	for i, one := range list {
		if i == maxMembers {
			parts = append(parts, "…")
			break
		}
		if t := typeOf(one); !slices.Contains(parts, t) {
			parts = append(parts, t)
		}
	}
	if i := slices.Index(parts, "null"); i >= 0 && len(parts) > 1 { // null comes last
		parts = append(slices.Delete(parts, i, i+1), "null")
	}
	return strings.Join(parts, " | ")
}

func literalType(v any) string {
	if text, ok := v.(string); ok {
		return quoteText(text)
	}
	data, err := json.Marshal(v)
	if err != nil || len(data) > maxLiteral {
		return "unknown"
	}
	return string(data)
}

func quoteText(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(CleanLine(text, maxLiteral)) + `"`
}

// propertyKey returns the name of a property, quoted if TypeScript requires it.
func propertyKey(name string) string {
	for i, r := range name {
		if r != '_' && r != '$' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return quoteText(name)
		}
	}
	if name == "" {
		return `""`
	}
	return cutCharacters(name, maxLiteral)
}
