// Package schema follows references within a JSON Schema.
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
