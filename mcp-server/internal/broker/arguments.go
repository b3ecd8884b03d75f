package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/typo"
)

const (
	// maxSchemaDepth and maxSchemaWork bound how much of a schema is followed. Schemas are a hostile server's words.
	maxSchemaDepth = 32
	maxSchemaWork  = 20_000
	// maxMistakes is how many mistakes are told at once.
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
	if json.Unmarshal(schema, &root) != nil {
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

// check checks one value.
func (c *checker) check(schema, value any, path string, depth int) {
	c.work++
	s, ok := c.follow(schema)
	if !ok || depth > maxSchemaDepth || c.work > maxSchemaWork || len(c.mistakes) >= maxMistakes {
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
				c.check(items, item, fmt.Sprintf("%s[%d]", path, i), depth+1)
			}
		}
	}
	if all, ok := s["allOf"].([]any); ok {
		for _, part := range all {
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
func (c *checker) follow(schema any) (map[string]any, bool) {
	for range maxSchemaDepth {
		s, ok := schema.(map[string]any)
		if !ok {
			return nil, false
		}
		ref, ok := s["$ref"].(string)
		if !ok {
			return s, true
		}
		path, ok := strings.CutPrefix(ref, "#")
		if !ok {
			return nil, false
		}
		schema = c.root
		for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			if part == "" {
				continue
			}
			in, ok := schema.(map[string]any)
			if !ok {
				return nil, false
			}
			schema = in[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
		}
	}
	return nil, false
}

// checkType demands a value of one of the types.
func (c *checker) checkType(s map[string]any, value any, path string) bool {
	var types []string
	switch t := s["type"].(type) {
	case string:
		types = []string{t}
	case []any:
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
		if f, err := v.Float64(); err == nil && f == float64(int64(f)) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// checkEnum demands one of the listed values.
func (c *checker) checkEnum(s map[string]any, value any, path string) {
	list, ok := s["enum"].([]any)
	if !ok || len(list) == 0 {
		return
	}
	var written []string
	found, _ := json.Marshal(value)
	for _, one := range list {
		line, _ := json.Marshal(one)
		if bytes.Equal(line, found) || typeOf(value) == "integer" || typeOf(value) == "number" {
			return // numbers can be written in several ways
		}
		if _, simple := one.(map[string]any); simple {
			return
		}
		written = append(written, string(line))
	}
	c.mistake(path, "found %.80s, want one of %s", found, strings.Join(written[:min(len(written), 20)], ", "))
}

// checkObject checks the keys of an object.
func (c *checker) checkObject(s, value map[string]any, path string, depth int) {
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, name := range required {
		key, ok := name.(string)
		if _, has := value[key]; ok && !has {
			c.mistake(join(path, key), "missing; want %s", c.want(properties[key]))
		}
	}
	var known []string
	for key := range properties {
		known = append(known, key)
	}
	slices.Sort(known)
	closed := s["additionalProperties"] == false && s["patternProperties"] == nil
	keys := make([]string, 0, len(value))
	for key := range value {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		property, has := properties[key]
		switch {
		case has:
			c.check(property, value[key], join(path, key), depth+1)
		case closed:
			near := typo.Nearest(key, max(1, len(key)/3), known)
			if near != "" {
				near = fmt.Sprintf("; did you mean %q?", near)
			}
			c.mistake(join(path, key), "there is no such argument%s", near)
		}
	}
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
