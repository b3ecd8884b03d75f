package broker

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/schema"
)

const (
	// maxSchemaDepth and maxSchemaWork bound how far a schema is followed. The work counts schemas, list members and
	// property names. A schema may come from a hostile server.
	maxSchemaDepth = 32
	maxSchemaWork  = 100_000
	// maxSchema and maxChecked are the largest schema and arguments that are checked, in bytes. Their decoded values need
	// several times that memory.
	maxSchema  = 256 << 10
	maxChecked = 1 << 20
	// maxMistakes is the largest number of mistakes in one report.
	maxMistakes = 5
	// maxPlace bounds the name of a place within the arguments, in bytes.
	maxPlace = 200
)

// argumentChecker finds mistakes in arguments by a tool's input schema: names, types and lists of values. It ignores
// other and malformed keywords, and leaves those mistakes to the server.
//
// No library fits. google/jsonschema-go follows {"$ref": "#"} until the stack of mcp-server overflows. It also stops at
// the first mistake, and names the place in the schema instead of the arguments.
type argumentChecker struct {
	root     any
	work     int
	mistakes []string
	// parts is the number of allOf, anyOf and oneOf around the schema. A schema in such a list may name only some of the
	// properties.
	parts int
}

// findMistakes returns the mistakes in arguments, at most maxMistakes. It returns none if the schema or the arguments
// cannot be checked.
func findMistakes(schema, arguments json.RawMessage) []string {
	var root, value any
	if len(schema) > maxSchema || len(arguments) > maxChecked || json.Unmarshal(schema, &root) != nil {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(arguments))
	// A float64 would lose digits of a large ID, and the report would show another number than the caller wrote.
	dec.UseNumber()
	if dec.Decode(&value) != nil {
		return nil
	}
	c := &argumentChecker{root: root}
	c.checkValue(root, value, "", 0)
	return c.mistakes[:min(len(c.mistakes), maxMistakes)]
}

// estimateDecodedSize returns an upper bound of the memory that decoding a JSON text needs, in bytes. It does not
// decode the text.
func estimateDecodedSize(text []byte) int64 {
	// Measured with the garbage: for maps with one member, for members of a growing map, for strings and for other bytes.
	const object, member, each, invalid = 250, 320, 7, 17
	n := len(text) * each
	if !utf8.Valid(text) {
		n = len(text) * invalid
	}
	isString, isEscape := false, false
	for _, c := range text {
		switch {
		case isEscape:
			isEscape = false
		case isString && c == '\\':
			isEscape = true
		case c == '"':
			isString = !isString
		case isString:
		case c == '{':
			n += object
		case c == ',', c == '[':
			n += member
		}
	}
	return int64(n)
}

// placeName returns the name of a place within the arguments, for a reader.
func placeName(path string) string { return cmp.Or(path, "the arguments") }

func (c *argumentChecker) addMistake(path, format string, args ...any) {
	c.mistakes = append(c.mistakes, cleanText(placeName(path)+": "+fmt.Sprintf(format, args...)))
}

// spendWork counts work, and reports whether that much may still be done.
func (c *argumentChecker) spendWork(work int) bool {
	c.work += work
	return c.work <= maxSchemaWork
}

// isDone reports whether the search must end: the work is used up, or the report is full.
func (c *argumentChecker) isDone() bool {
	return c.work > maxSchemaWork || len(c.mistakes) >= maxMistakes
}

func (c *argumentChecker) checkValue(schema, value any, path string, depth int) {
	if !c.spendWork(1) || depth > maxSchemaDepth || c.isDone() {
		return
	}
	s, ok := c.followRefs(schema)
	if !ok {
		return
	}
	// The other keywords would only repeat that the type is wrong.
	if !c.checkType(s, value, path) {
		return
	}
	c.checkEnum(s, value, path)
	switch v := value.(type) {
	case map[string]any:
		c.checkObject(s, v, path, depth)
	case []any:
		c.checkItems(s, v, path, depth)
	}
	c.parts++
	defer func() { c.parts-- }()
	if all, ok := s["allOf"].([]any); ok {
		for _, part := range all {
			if c.isDone() {
				return
			}
			c.checkValue(part, value, path, depth+1)
		}
	}
	for _, word := range []string{"anyOf", "oneOf"} {
		if some, ok := s[word].([]any); ok {
			c.checkSome(some, value, path, depth)
		}
	}
}

// checkSome requires that a value fits at least one schema. It treats oneOf like anyOf: two schemas may differ only in
// a keyword that is not checked.
func (c *argumentChecker) checkSome(some []any, value any, path string, depth int) {
	var closest, types []string
	for _, part := range some {
		if c.isDone() {
			return // an alternative may fit
		}
		// The alternatives share the work: otherwise nested anyOf would multiply it.
		try := &argumentChecker{root: c.root, work: c.work, parts: c.parts}
		try.checkValue(part, value, path, depth+1)
		c.work = try.work
		if len(try.mistakes) == 0 {
			return
		}
		// A schema of the value's own type is most likely the one that the caller meant.
		if s, ok := c.followRefs(part); !ok || matchesType(schema.AllowedTypes(s), value) {
			if closest == nil {
				closest = try.mistakes
			}
			continue
		}
		if want := c.describeWanted(part); !slices.Contains(types, want) {
			types = append(types, want)
		}
	}
	if closest == nil && types != nil {
		c.addMistake(path, "found %s, want %s", typeOf(value), strings.Join(types, " or "))
	}
	c.mistakes = append(c.mistakes, closest...)
}

// followRefs follows references within the schema.
func (c *argumentChecker) followRefs(s any) (map[string]any, bool) {
	return schema.ResolveRefs(c.root, s, c.spendWork)
}

// checkType requires a value of one of the schema's types.
func (c *argumentChecker) checkType(s map[string]any, value any, path string) bool {
	// The keyword nullable comes from OpenAPI 3.0, not from JSON Schema.
	if nullable, _ := s["nullable"].(bool); nullable && value == nil {
		return true
	}
	types := schema.AllowedTypes(s)
	if matchesType(types, value) {
		return true
	}
	c.addMistake(path, "found %s, want %s", typeOf(value), strings.Join(types, " or "))
	return false
}

// matchesType reports whether a value has one of the types. Every value fits if there are none.
func matchesType(types []string, value any) bool {
	found := typeOf(value)
	return len(types) == 0 || slices.Contains(types, found) || found == "integer" && slices.Contains(types, "number")
}

// typeOf returns a value's type as JSON Schema names it.
func typeOf(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		// JSON Schema counts 1.0 as an integer.
		if f, err := v.Float64(); err == nil && f == math.Trunc(f) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// checkEnum requires a value of enum, or the value of const. It checks nothing if one of these is an object, an array
// or a long text, because comparing would cost too much.
func (c *argumentChecker) checkEnum(s map[string]any, value any, path string) {
	list, ok := s["enum"].([]any)
	if only, has := s["const"]; has {
		list, ok = []any{only}, true
	}
	if !ok || len(list) == 0 || !isSimple(value) || !c.spendWork(len(list)) {
		return
	}
	same := value
	if n, ok := value.(json.Number); ok {
		same, _ = n.Float64() // the schema's numbers are float64
	}
	for _, one := range list {
		// An unknown comparison must not reject a value that the server accepts.
		if !isSimple(one) || one == same {
			return
		}
	}
	var shown []string
	for _, one := range list[:min(len(list), 20)] {
		text := formatJSON(one)
		if !c.spendWork(len(text) / perShown) {
			return
		}
		shown = append(shown, text)
	}
	want, more := "one of ", ""
	if len(list) == 1 {
		want = ""
	}
	if len(list) > len(shown) {
		more = fmt.Sprintf(", … (%d in all)%s", len(list), c.suggestNearest(value, list))
	}
	c.addMistake(path, "found %.80s, want %s%s%s", formatJSON(value), want, strings.Join(shown, ", "), more)
}

func formatJSON(value any) string {
	line, _ := json.Marshal(value) // it was JSON
	return string(line)
}

// suggestNearest returns a question that suggests the most similar text of a list, or "".
func (c *argumentChecker) suggestNearest(value any, list []any) string {
	text, ok := value.(string)
	if !ok || !c.spendWork(len(list)) {
		return ""
	}
	var names []string
	for _, one := range list {
		if name, is := one.(string); is {
			names = append(names, name)
		}
	}
	if near := typo.NearestOf(text, max(1, len(text)/4), names); near != "" {
		return fmt.Sprintf("; did you mean %.80q?", near)
	}
	return ""
}

const (
	// maxSimple is the longest text that counts as simple, in bytes.
	maxSimple = 4 << 10
	// perShown is the number of bytes in a message that count as a unit of work.
	perShown = 64
)

// isSimple reports whether a value is cheap to compare.
func isSimple(value any) bool {
	switch v := value.(type) {
	case nil, bool, float64, json.Number:
		return true
	case string:
		return len(v) <= maxSimple
	}
	return false
}

func (c *argumentChecker) checkObject(s, value map[string]any, path string, depth int) {
	properties, _ := s["properties"].(map[string]any)
	list, _ := s["required"].([]any)
	if !c.spendWork(len(list) + len(value)) {
		return
	}
	for _, key := range schema.RequiredNames(s) {
		if _, has := value[key]; !has && !c.isDone() {
			c.addMistake(joinPath(path, key), "missing; want %s", c.describeWanted(properties[key]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(value)) {
		if c.isDone() {
			return
		}
		property, has := properties[key]
		switch more, typed := s["additionalProperties"].(map[string]any); {
		case has:
			c.checkValue(property, value[key], joinPath(path, key), depth+1)
		// A pattern may allow the key, and the checker does not evaluate patterns of keys.
		case s["patternProperties"] != nil:
		case s["additionalProperties"] == false:
			c.addMistake(joinPath(path, key), "there is no such argument%s", c.suggestName(key, len(key)/3, properties, nil))
		case typed:
			c.checkValue(more, value[key], joinPath(path, key), depth+1)
		// JSON Schema allows undeclared keys by default, so only a likely misspelling is a mistake.
		case c.isComplete(s) && len(key) >= minMisspelt:
			if near := c.suggestName(key, len(key)/4, properties, value); near != "" {
				c.addMistake(joinPath(path, key), "there is no such argument%s", near)
			}
		}
	}
}

// checkItems checks the items of an array.
func (c *argumentChecker) checkItems(s map[string]any, value []any, path string, depth int) {
	items, ok := s["items"].(map[string]any)
	for i, item := range value {
		if !ok || c.isDone() {
			return
		}
		c.checkValue(items, item, extend(path, fmt.Sprintf("[%d]", i)), depth+1)
	}
}

// minMisspelt is the least length in bytes of a name that counts as a misspelling if its schema allows any name.
const minMisspelt = 4

// isComplete reports whether a schema most likely names all properties, though it allows others. Most servers ignore
// the others silently.
func (c *argumentChecker) isComplete(s map[string]any) bool {
	for _, word := range []string{"additionalProperties", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "if"} {
		if _, has := s[word]; has {
			return false
		}
	}
	return c.parts == 0
}

// suggestName returns a question that suggests another property, which given lacks. It returns "" if every name differs
// by more than slips.
func (c *argumentChecker) suggestName(key string, slips int, properties, given map[string]any) string {
	if !c.spendWork(len(properties)) {
		return ""
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if _, has := given[name]; !has {
			names = append(names, name)
		}
	}
	near := typo.NearestOf(key, max(1, slips), names)
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", near)
}

// describeWanted returns the type that a schema asks for, in a few words.
func (c *argumentChecker) describeWanted(wanted any) string {
	s, ok := c.followRefs(wanted)
	if !ok {
		return "a value"
	}
	if types := schema.AllowedTypes(s); len(types) > 0 {
		return strings.Join(types, " or ")
	}
	return "a value"
}

// joinPath returns the name of a property of the place path.
func joinPath(path, key string) string {
	if path == "" {
		return extend("", key)
	}
	return extend(path, "."+key)
}

// extend returns the name of a place inside path. It cuts the name, because each element of a list gets a copy.
func extend(path, part string) string {
	path += part
	//defence:place-length
	path = safetext.CutText(path, maxPlace, "…")
	return path
}
