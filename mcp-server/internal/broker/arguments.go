package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/schema"
)

const (
	// maxSchemaDepth and maxSchemaWork bound how much of a schema is followed, in schemas, members of lists and names of
	// properties. Schemas are a hostile server's words.
	maxSchemaDepth = 32
	maxSchemaWork  = 100_000
	// maxSchema and maxChecked are how long a schema and arguments may be to be checked at all, in bytes: as values they
	// take many times the room.
	maxSchema  = 256 << 10
	maxChecked = 1 << 20
	// maxMistakes is how many mistakes are reported at once.
	maxMistakes = 5
)

// checker finds mistakes in arguments by a tool's input schema. It knows the keywords with which tools describe their
// arguments, and passes over the others and over whatever is odd: what it does not find, the server will. A library
// that knows them all recurses as deep as the schema wishes, in mcp-server.
type checker struct {
	root     any
	work     int
	mistakes []string
}

// mistakes are what is wrong with arguments, at most a few.
func mistakes(schema, arguments json.RawMessage) []string {
	var root, value any
	if len(schema) > maxSchema || len(arguments) > maxChecked || json.Unmarshal(schema, &root) != nil {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(arguments))
	dec.UseNumber()
	if dec.Decode(&value) != nil {
		return nil
	}
	c := &checker{root: root}
	c.check(root, value, "", 0)
	return c.mistakes[:min(len(c.mistakes), maxMistakes)]
}

// at is a place within the arguments, for a reader.
func at(path string) string {
	if path == "" {
		return "the arguments"
	}
	return path
}

func (c *checker) mistake(path, format string, args ...any) {
	c.mistakes = append(c.mistakes, clean(at(path)+": "+fmt.Sprintf(format, args...)))
}

// spend counts work, and reports whether that much may still be done.
func (c *checker) spend(work int) bool {
	c.work += work
	return c.work <= maxSchemaWork
}

// done reports whether nothing more is to be found.
func (c *checker) done() bool { return c.work > maxSchemaWork || len(c.mistakes) >= maxMistakes }

// check checks one value.
func (c *checker) check(schema, value any, path string, depth int) {
	if !c.spend(1) || depth > maxSchemaDepth || c.done() {
		return
	}
	s, ok := c.follow(schema)
	if !ok {
		return
	}
	if !c.checkType(s, value, path) {
		return
	}
	c.checkEnum(s, value, path)
	switch v := value.(type) {
	case map[string]any:
		c.checkObject(s, v, path, depth)
	case []any:
		if items, ok := s["items"].(map[string]any); ok {
			for i, item := range v {
				if c.done() {
					return
				}
				c.check(items, item, fmt.Sprintf("%s[%d]", path, i), depth+1)
			}
		}
	}
	if all, ok := s["allOf"].([]any); ok {
		for _, part := range all {
			if c.done() {
				return
			}
			c.check(part, value, path, depth+1)
		}
	}
	for _, word := range []string{"anyOf", "oneOf"} {
		if some, ok := s[word].([]any); ok {
			c.checkSome(some, value, path, depth)
		}
	}
}

// checkSome demands that a value fits at least one schema.
func (c *checker) checkSome(some []any, value any, path string, depth int) {
	var first []string
	for _, part := range some {
		if c.done() {
			return // who knows whether one of the others fits
		}
		try := &checker{root: c.root, work: c.work}
		try.check(part, value, path, depth+1)
		c.work = try.work
		if len(try.mistakes) == 0 {
			return
		}
		if first == nil {
			first = try.mistakes
		}
	}
	c.mistakes = append(c.mistakes, first...)
}

// follow follows references within the schema.
func (c *checker) follow(s any) (map[string]any, bool) { return schema.Resolve(c.root, s, c.spend) }

// checkType demands a value of one of the types.
func (c *checker) checkType(s map[string]any, value any, path string) bool {
	var types []string
	switch t := s["type"].(type) {
	case string:
		types = []string{t}
	case []any:
		if !c.spend(len(t)) {
			return true
		}
		for _, one := range t {
			if text, ok := one.(string); ok {
				types = append(types, text)
			}
		}
	}
	if nullable, _ := s["nullable"].(bool); nullable && value == nil {
		return true
	}
	found := typeOf(value)
	if len(types) == 0 || slices.Contains(types, found) || (found == "integer" && slices.Contains(types, "number")) {
		return true
	}
	c.mistake(path, "found %s, want %s", found, strings.Join(types, " or "))
	return false
}

// typeOf is a value's type in words of JSON Schema.
func typeOf(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		if f, err := v.Float64(); err == nil && f == math.Trunc(f) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// checkEnum demands one of the listed values, if they are strings, booleans or null: numbers can be written in several
// ways, and comparing the rest would cost more than it tells.
func (c *checker) checkEnum(s map[string]any, value any, path string) {
	list, ok := s["enum"].([]any)
	if !ok || len(list) == 0 || !simple(value) || !c.spend(len(list)) {
		return
	}
	for _, one := range list {
		switch one.(type) {
		case map[string]any, []any:
			return
		}
		if one == value {
			return
		}
	}
	var written []string
	for _, one := range list[:min(len(list), 20)] {
		line, _ := json.Marshal(one)
		written = append(written, string(line))
	}
	more := ""
	if len(list) > len(written) {
		more = fmt.Sprintf(", … (%d in all)%s", len(list), c.nearest(value, list))
	}
	found, _ := json.Marshal(value)
	c.mistake(path, "found %.80s, want one of %s%s", found, strings.Join(written, ", "), more)
}

// nearest asks about the text of a list that is nearest to a value.
func (c *checker) nearest(value any, list []any) string {
	text, ok := value.(string)
	if !ok || !c.spend(len(list)) {
		return ""
	}
	var names []string
	for _, one := range list {
		if name, is := one.(string); is {
			names = append(names, name)
		}
	}
	if near := typo.Nearest(text, max(1, len(text)/4), names); near != "" {
		return fmt.Sprintf("; did you mean %.80q?", near)
	}
	return ""
}

// simple reports whether a value is a string, a boolean or null.
func simple(value any) bool {
	switch value.(type) {
	case nil, bool, string:
		return true
	}
	return false
}

// checkObject checks the keys of an object.
func (c *checker) checkObject(s, value map[string]any, path string, depth int) {
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	if !c.spend(len(required) + len(value)) {
		return
	}
	for _, name := range required {
		key, ok := name.(string)
		if _, has := value[key]; ok && !has && !c.done() {
			c.mistake(join(path, key), "missing; want %s", c.want(properties[key]))
		}
	}
	closed := s["additionalProperties"] == false && s["patternProperties"] == nil
	keys := make([]string, 0, len(value))
	for key := range value {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		if c.done() {
			return
		}
		property, has := properties[key]
		switch {
		case has:
			c.check(property, value[key], join(path, key), depth+1)
		case closed:
			c.mistake(join(path, key), "there is no such argument%s", c.near(key, properties))
		}
	}
}

// near asks whether the name of another property was meant, or is empty.
func (c *checker) near(key string, properties map[string]any) string {
	if !c.spend(len(properties)) {
		return ""
	}
	near := typo.Nearest(key, max(1, len(key)/3), slices.Sorted(maps.Keys(properties)))
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", near)
}

// want is what a schema asks for, in a few words.
func (c *checker) want(schema any) string {
	s, ok := c.follow(schema)
	if !ok {
		return "a value"
	}
	if t, ok := s["type"].(string); ok {
		return t
	}
	return "a value"
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
