// Package schema reads a JSON Schema as tools of MCP servers use it: references, types and required properties.
//
// Threat: a schema is a server's words. A chain of references is bounded, and whoever follows it counts its steps.
package schema

import (
	"strconv"
	"strings"
)

// maxChain is how many references are followed one after the other.
const maxChain = 20

// Resolve follows the $ref of a schema, within the document root, to a schema without one. Spend is called with the
// steps of each reference, and reports whether they may be taken. It is false for what is not a schema, or leads to
// none.
func Resolve(root, schema any, spend func(steps int) bool) (map[string]any, bool) {
	for range maxChain {
		s, ok := schema.(map[string]any)
		if !ok {
			return nil, false
		}
		ref, ok := s["$ref"].(string)
		if !ok {
			return s, true
		}
		pointer, ok := strings.CutPrefix(ref, "#")
		if !ok || !spend(1+strings.Count(pointer, "/")) {
			return nil, false
		}
		if schema, ok = find(root, pointer); !ok {
			return nil, false
		}
	}
	return nil, false
}

// find is the value that a JSON Pointer (RFC 6901) names.
func find(at any, pointer string) (any, bool) {
	if pointer == "" {
		return at, true
	}
	rest, ok := strings.CutPrefix(pointer, "/")
	if !ok {
		return nil, false
	}
	for part := range strings.SplitSeq(rest, "/") {
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

// typeNames maps the names that servers give to types to those of JSON Schema. Some servers use the names of their
// language.
var typeNames = map[string]string{
	"array": "array", "boolean": "boolean", "integer": "integer", "null": "null", "number": "number",
	"object": "object", "string": "string",
	"bool": "boolean", "dict": "object", "double": "number", "float": "number", "int": "integer", "list": "array",
	"str": "string",
}

// maxTypes is the most types that one schema may list. JSON Schema has seven.
const maxTypes = 20

// Types returns the types that a schema allows, in the words of JSON Schema. It is nil if the schema allows every type,
// lists more than maxTypes, or names a type that JSON Schema does not know, such as "file" or "any".
func Types(s map[string]any) []string {
	list, ok := s["type"].([]any)
	if !ok {
		list = []any{s["type"]}
	}
	if len(list) > maxTypes {
		return nil
	}
	types := make([]string, 0, len(list))
	for _, one := range list {
		name, _ := one.(string)
		known := typeNames[strings.ToLower(name)]
		if known == "" {
			return nil
		}
		types = append(types, known)
	}
	return types
}

// Required returns the names of the properties that a caller must give: those that are required and have no default.
func Required(s map[string]any) []string {
	properties, _ := s["properties"].(map[string]any)
	list, _ := s["required"].([]any)
	var names []string
	for _, one := range list {
		name, ok := one.(string)
		property, _ := properties[name].(map[string]any)
		if _, has := property["default"]; ok && !has {
			names = append(names, name)
		}
	}
	return names
}
