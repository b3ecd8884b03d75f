// Package schema reads a JSON Schema as tools of MCP servers use it: references, types and required properties.
//
// Threat: a server wrote the schema. Contract: a chain of references is bounded, and the caller counts the steps.
package schema

import (
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/jsonpointer"
)

// maxChain bounds the references that are followed in a row.
const maxChain = 20

// ResolveRefs follows the $ref of a schema, within the document root, to a schema without one. It calls spend with the
// steps of each reference, and stops if spend returns false. ok is false if the result is not a schema.
func ResolveRefs(root, schema any, spend func(steps int) bool) (map[string]any, bool) {
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
		// Only references within the document: another could make CodeForge read a URL.
		if !ok || !spend(1+strings.Count(pointer, "/")) {
			return nil, false
		}
		schema = findPointer(root, pointer)
	}
	return nil, false
}

// findPointer returns the value that a JSON Pointer (RFC 6901) names, or nil.
func findPointer(at any, pointer string) any {
	if pointer == "" {
		return at
	}
	rest, ok := strings.CutPrefix(pointer, "/")
	if !ok {
		return nil
	}
	for step := range strings.SplitSeq(rest, "/") {
		at = jsonpointer.ChildAt(at, step)
	}
	return at
}

// typeNames maps servers' names of types to those of JSON Schema. Some servers use the names of their programming
// language.
var typeNames = map[string]string{
	"array": "array", "boolean": "boolean", "integer": "integer", "null": "null", "number": "number",
	"object": "object", "string": "string",
	"bool": "boolean", "dict": "object", "double": "number", "float": "number", "int": "integer", "list": "array",
	"str": "string",
}

// maxTypes bounds the types that one schema may list. JSON Schema has seven.
const maxTypes = 20

// AllowedTypes returns the types that a schema allows, as JSON Schema names them. It returns nil if the schema allows
// every type, lists more than maxTypes, or names an unknown type such as "file" or "any".
func AllowedTypes(s map[string]any) []string {
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

// RequiredNames returns the names of the properties that a caller must give: required ones without a default.
func RequiredNames(s map[string]any) []string {
	properties, _ := s["properties"].(map[string]any)
	list, _ := s["required"].([]any)
	var names []string
	for _, one := range list {
		name, ok := one.(string)
		property, _ := properties[name].(map[string]any)
		// A property with a default may be omitted.
		if _, has := property["default"]; ok && !has {
			names = append(names, name)
		}
	}
	return names
}
