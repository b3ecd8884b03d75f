// Package signature writes the tools of MCP servers for a model to read: as TypeScript, from their JSON Schemas, and as
// one line each.
//
// Schemas and descriptions are a server's words, so everything is bounded: depth, the number of properties, and length.
// What is written is a hint for a reader, not a type that is checked: where a schema is too odd, it says "unknown".
package signature

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tool is one tool of a server, as the server declares it.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"`
	// OutputSchema is empty where the tool declares none.
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
}

// Bounds of what is written.
const (
	maxDepth      = 4 // of nested objects and arrays
	maxProperties = 40
	maxMembers    = 12 // of enums and unions
	maxLiteral    = 60 // bytes of one
	maxRefs       = 20 // references followed in one chain
	maxWork       = 2000
	perWork       = 20 // names that are sorted, copied or followed for as much as one schema
	// MaxLength is the longest signature, in bytes.
	MaxLength = 2000
	// MaxDescription is the longest first sentence, in characters.
	MaxDescription = 160
	maxName        = 128
)

// Arguments is a JSON Schema of arguments, or of a result, as a TypeScript type: {title: string, body?: string}. A
// schema that cannot be read is "unknown".
func Arguments(schema json.RawMessage) string {
	var root any
	if json.Unmarshal(schema, &root) != nil {
		return "unknown"
	}
	w := &writer{root: root}
	return w.typeOf(root, 0)
}

// Line is a tool on one line: name({a: string, b?: number}) - first sentence of its description.
func (t Tool) Line() string {
	args := Arguments(t.InputSchema)
	switch args {
	case "{}", "unknown", "Record<string, unknown>":
		args = ""
	}
	if len(args) > MaxLength {
		return t.ShortLine()
	}
	return t.line(args)
}

// ShortLine is Line without types, at a third of the length: name({a, b?}) - first sentence of its description.
func (t Tool) ShortLine() string {
	var root any
	_ = json.Unmarshal(t.InputSchema, &root) // what cannot be read has no names
	w := &writer{root: root}
	s, _ := w.resolve(root)
	if list, ok := s["allOf"].([]any); ok {
		s = w.merge(s, list)
	}
	properties, _ := s["properties"].(map[string]any)
	names := w.properties(s, properties, func(any) string { return "" })
	if len(names) == 0 {
		return t.line("")
	}
	return t.line("{" + strings.Join(names, ", ") + "}")
}

func (t Tool) line(args string) string {
	line := Clean(t.Name, maxName) + "(" + args + ")"
	if d := FirstSentence(t.Description); d != "" {
		line += " - " + d
	}
	return line
}

// FirstSentence is the beginning of a description: up to the end of its first sentence or paragraph, as plain text.
func FirstSentence(description string) string {
	head, _, _ := strings.Cut(strings.TrimSpace(description), "\n\n")
	text := Clean(head, 4*MaxDescription)
	for i, r := range text {
		if r != '.' && r != '!' && r != '?' || i+1 < len(text) && text[i+1] != ' ' {
			continue
		}
		switch text[strings.LastIndexByte(text[:i], ' ')+1 : i] {
		case "e.g", "i.e", "etc", "vs":
			continue
		}
		text = text[:i+1]
		break
	}
	return cut(text, MaxDescription)
}

// Clean is a text of a server on one line: without control characters and characters that do not show, and at most so
// many characters long.
func Clean(text string, most int) string {
	var b strings.Builder
	space, n := false, 0
	for _, r := range text {
		switch {
		case unicode.IsSpace(r):
			space = b.Len() > 0
			continue
		case r == utf8.RuneError, !unicode.IsPrint(r), unicode.Is(unicode.Mn, r) && n == 0, invisible(r):
			continue
		}
		if n == most {
			return cut(b.String(), most-1) + "…"
		}
		if space {
			b.WriteByte(' ')
			space = false
			n++
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// invisible are printable characters that no reader sees: fillers, and selectors that can carry hidden text.
func invisible(r rune) bool {
	switch r {
	case 0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0:
		return true
	}
	return r >= 0x180B && r <= 0x180F || r >= 0xFE00 && r <= 0xFE0F || r >= 0xE0100 && r <= 0xE01EF
}

// cut shortens a text to so many characters.
func cut(text string, most int) string {
	n := 0
	for i := range text {
		if n == most {
			return strings.TrimRight(text[:i], " ") + "…"
		}
		n++
	}
	return text
}

// writer writes the types of one schema.
type writer struct {
	root any
	work int // schemas visited, and what took as long
}

// spend counts a number of names, and reports whether more may be done.
func (w *writer) spend(names int) bool {
	w.work += names / perWork
	return w.work <= maxWork
}

// typeOf is the type of one schema.
func (w *writer) typeOf(schema any, depth int) string {
	w.work++
	if w.work > maxWork || depth > maxDepth {
		return "unknown"
	}
	s, ok := w.resolve(schema)
	if !ok {
		return "unknown"
	}
	if c, ok := s["const"]; ok {
		return literal(c)
	}
	if list, ok := s["enum"].([]any); ok && len(list) > 0 {
		return union(list, literal)
	}
	for _, key := range [...]string{"anyOf", "oneOf"} {
		if list, ok := s[key].([]any); ok && len(list) > 0 {
			return w.alternatives(s, key, list, depth)
		}
	}
	if list, ok := s["allOf"].([]any); ok && len(list) > 0 {
		return w.typeOf(w.merge(s, list), depth)
	}
	switch t := s["type"].(type) {
	case string:
		return w.named(t, s, depth)
	case []any:
		return union(t, func(t any) string {
			name, _ := t.(string)
			return w.named(name, s, depth)
		})
	}
	switch {
	case s["properties"] != nil || s["additionalProperties"] != nil:
		return w.named("object", s, depth)
	case s["items"] != nil || s["prefixItems"] != nil:
		return w.named("array", s, depth)
	}
	return "unknown"
}

// named is the type that "type" names.
func (w *writer) named(name string, s map[string]any, depth int) string {
	switch name {
	case "string", "boolean", "number", "null":
		return name
	case "integer":
		return "number"
	case "array":
		return w.array(s, depth)
	case "object":
		return w.object(s, depth)
	}
	return "unknown"
}

func (w *writer) array(s map[string]any, depth int) string {
	prefix, _ := s["prefixItems"].([]any)
	if list, ok := s["items"].([]any); ok { // how drafts before 2020-12 wrote a tuple
		prefix = list
	}
	if len(prefix) > 0 && len(prefix) <= maxMembers {
		parts := make([]string, len(prefix))
		for i, p := range prefix {
			parts[i] = w.typeOf(p, depth+1)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	item := "unknown"
	if s["items"] != nil {
		item = w.typeOf(s["items"], depth+1)
	}
	if strings.Contains(item, " | ") && item[0] != '{' {
		item = "(" + item + ")"
	}
	return item + "[]"
}

func (w *writer) object(s map[string]any, depth int) string {
	properties, _ := s["properties"].(map[string]any)
	if len(properties) == 0 {
		return w.record(s, depth)
	}
	if depth == maxDepth {
		return "object"
	}
	parts := w.properties(s, properties, func(p any) string { return ": " + w.typeOf(p, depth+1) })
	return "{" + strings.Join(parts, ", ") + "}"
}

// properties are the properties of an object, the required ones first, each with what typed says.
func (w *writer) properties(s, properties map[string]any, typed func(any) string) []string {
	required := map[string]bool{}
	list, _ := s["required"].([]any)
	if !w.spend(len(properties) + len(list)) {
		return []string{"…"}
	}
	for _, name := range list {
		if n, ok := name.(string); ok {
			required[n] = true
		}
	}
	names := make([]string, 0, len(properties))
	for name := range properties {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { // required ones first
		if required[a] != required[b] {
			if required[a] {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for i, name := range names {
		if i == maxProperties {
			parts = append(parts, "…")
			break
		}
		optional := ""
		if !required[name] {
			optional = "?"
		}
		parts = append(parts, key(name)+optional+typed(properties[name]))
	}
	return parts
}

// record is an object without named properties.
func (w *writer) record(s map[string]any, depth int) string {
	switch more := s["additionalProperties"].(type) {
	case bool:
		if !more {
			return "{}"
		}
	case map[string]any:
		return "Record<string, " + w.typeOf(more, depth+1) + ">"
	}
	if depth == 0 {
		return "{}"
	}
	return "Record<string, unknown>"
}

// alternatives is a union of schemas, each with what stands beside the keyword.
func (w *writer) alternatives(s map[string]any, key string, list []any, depth int) string {
	rest := map[string]any{}
	if !w.spend(len(s)) {
		return "unknown"
	}
	for k, v := range s {
		if k != key {
			rest[k] = v
		}
	}
	_, outer := rest["properties"]
	return union(list, func(one any) string {
		if outer {
			return w.typeOf(w.merge(rest, []any{one}), depth)
		}
		return w.typeOf(one, depth)
	})
}

// merge is a schema with those of an allOf in it.
func (w *writer) merge(s map[string]any, list []any) map[string]any {
	out, properties, required := map[string]any{}, map[string]any{}, []any{}
	add := func(part map[string]any) {
		if m, _ := part["properties"].(map[string]any); !w.spend(len(part) + len(m)) {
			return
		}
		for k, v := range part {
			switch k {
			case "allOf":
			case "properties":
				m, _ := v.(map[string]any)
				for name, p := range m {
					properties[name] = p
				}
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
		part, ok := w.resolve(one)
		if !ok {
			continue
		}
		if nested, ok := part["allOf"].([]any); ok && w.work < maxWork {
			w.work++
			part = w.merge(part, nested)
		}
		add(part)
	}
	if len(properties) > 0 {
		out["properties"], out["required"] = properties, required
	}
	return out
}

// resolve follows references. It is false for what is no schema.
func (w *writer) resolve(schema any) (map[string]any, bool) {
	for range maxRefs {
		s, ok := schema.(map[string]any)
		if !ok {
			return nil, false
		}
		ref, ok := s["$ref"].(string)
		if !ok {
			return s, true
		}
		if schema, ok = w.find(ref); !ok {
			return nil, false
		}
	}
	return nil, false
}

// find is the schema that a reference within the document names.
func (w *writer) find(ref string) (any, bool) {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok || !w.spend(strings.Count(path, "/")) {
		return nil, false
	}
	at := w.root
	for _, part := range strings.Split(path, "/")[min(1, len(path)):] {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		switch in := at.(type) {
		case map[string]any:
			if at, ok = in[part]; !ok {
				return nil, false
			}
		case []any:
			n, err := strconv.Atoi(part)
			if err != nil || n < 0 || n >= len(in) {
				return nil, false
			}
			at = in[n]
		default:
			return nil, false
		}
	}
	return at, true
}

// union is the distinct types of a list.
func union(list []any, typeOf func(any) string) string {
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
	if i := slices.Index(parts, "null"); i >= 0 && len(parts) > 1 { // null stands last
		parts = append(slices.Delete(parts, i, i+1), "null")
	}
	return strings.Join(parts, " | ")
}

// literal is a value as TypeScript writes it.
func literal(v any) string {
	if text, ok := v.(string); ok {
		return quote(text)
	}
	data, err := json.Marshal(v)
	if err != nil || len(data) > maxLiteral {
		return "unknown"
	}
	return string(data)
}

func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(Clean(text, maxLiteral)) + `"`
}

// key is the name of a property, quoted where TypeScript wants it.
func key(name string) string {
	for i, r := range name {
		if r != '_' && r != '$' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return quote(name)
		}
	}
	if name == "" {
		return `""`
	}
	return cut(name, maxLiteral)
}
