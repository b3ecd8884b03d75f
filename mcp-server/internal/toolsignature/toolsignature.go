// Package toolsignature writes the tools of MCP servers as text for a model to read: as TypeScript from their JSON
// Schemas, and as one line each. The functions that code calls are in sandbox-image/runner.
//
// Threat: a server wrote the schemas and descriptions. Contract: depth, number of properties and length are bounded.
// The result is a hint for a reader and not a checked type. If a schema is too odd, the result is "unknown".
package toolsignature

import (
	"encoding/json"
	"strings"
)

// Tool is one tool of a server, as the server declares it.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"`
	// OutputSchema is empty if the tool declares none.
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
}

// Bounds of the result.
const (
	maxDepth      = 4 // of nested objects and arrays
	maxProperties = 40
	maxMembers    = 12 // of enums and unions
	maxLiteral    = 60 // bytes of one
	maxWork       = 2000
	perWork       = 20 // sorted, copied or followed names that count as one schema
	// MaxLength bounds a signature, in bytes.
	MaxLength = 2000
	// MaxDescription bounds a first sentence, in characters.
	MaxDescription = 160
	maxName        = 128
)

// ArgumentsType returns a JSON Schema of arguments, or of a result, as a TypeScript type: {title: string, body?:
// string}. It returns "unknown" for a schema that cannot be read.
func ArgumentsType(schema json.RawMessage) string {
	var root any
	if json.Unmarshal(schema, &root) != nil {
		return "unknown"
	}
	w := &typeWriter{root: root}
	return w.typeOf(root, 0)
}

// SignatureLine returns a tool on one line: name({a: string, b?: number}) - first sentence of its description.
func (t Tool) SignatureLine() string {
	args := ArgumentsType(t.InputSchema)
	switch args {
	case "{}", "unknown", "Record<string, unknown>":
		args = ""
	}
	// A signature that is too long falls back to names only.
	if len(args) > MaxLength {
		return t.ShortLine()
	}
	return t.lineWith(args)
}

// ShortLine is SignatureLine without types, at a third of the length: name({a, b?}) - first sentence of its
// description.
func (t Tool) ShortLine() string {
	var root any
	_ = json.Unmarshal(t.InputSchema, &root) // an unreadable schema has no names
	w := &typeWriter{root: root}
	s, _ := w.resolveRefs(root)
	if list, ok := s["allOf"].([]any); ok {
		s = w.mergeSchemas(s, list)
	}
	properties, _ := s["properties"].(map[string]any)
	names := w.writeProperties(s, properties, func(any) string { return "" })
	if len(names) == 0 {
		return t.lineWith("")
	}
	return t.lineWith("{" + strings.Join(names, ", ") + "}")
}

// ShownName returns the bounded name at the start of lines. It may be empty.
func (t Tool) ShownName() string {
	name := CleanLine(t.Name, maxName)
	if strings.Contains(name, " ") { // a sentence, not an identifier
		name = WordsForModel(t.Name, maxName)
	}
	return name
}

func (t Tool) lineWith(args string) string {
	line := t.ShownName() + "(" + args + ")"
	switch d := FirstSentence(t.Description); {
	case IsAddressedToReader(t.Description):
		line += " - (no description: the server's addresses its reader)"
	case d != "":
		line += " - " + d
	}
	return line
}
