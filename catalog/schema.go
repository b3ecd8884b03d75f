package catalog

import (
	"bytes"
	"encoding/json"

	"github.com/codeforge-mcp/codeforge/internal/convert"
)

// jsonSchema is the part of JSON Schema (draft 2020-12) that config.json needs.
type jsonSchema struct {
	Schema            string                `json:"$schema,omitempty"`
	Title             string                `json:"title,omitempty"`
	Description       string                `json:"description,omitempty"`
	Type              string                `json:"type,omitempty"`
	Format            string                `json:"format,omitempty"`
	Pattern           string                `json:"pattern,omitempty"`
	Enum              []string              `json:"enum,omitempty"`
	Default           any                   `json:"default,omitempty"`
	MinLength         int                   `json:"minLength,omitempty"`
	MaxLength         int                   `json:"maxLength,omitempty"`
	MinItems          int                   `json:"minItems,omitempty"`
	UniqueItems       bool                  `json:"uniqueItems,omitempty"`
	Items             *jsonSchema           `json:"items,omitempty"`
	Properties        map[string]jsonSchema `json:"properties,omitempty"`
	PatternProperties map[string]jsonSchema `json:"patternProperties,omitempty"`
	Required          []string              `json:"required,omitempty"`
	OneOf             []jsonSchema          `json:"oneOf,omitempty"`
	AnyOf             []jsonSchema          `json:"anyOf,omitempty"`
	Not               *jsonSchema           `json:"not,omitempty"`
	// Closed forbids other properties.
	Closed bool `json:"-"`
}

// MarshalJSON writes Closed as "additionalProperties": false.
func (s jsonSchema) MarshalJSON() ([]byte, error) {
	type plain jsonSchema
	out := struct {
		plain
		Additional *bool `json:"additionalProperties,omitempty"`
	}{plain: plain(s)}
	if s.Closed {
		out.Additional = new(bool)
	}
	return convert.ToJSON(out)
}

// ConfigSchema returns the JSON Schema of config.json, indented, for the completion in editors. It is generated from
// the fields that Load reads, and checks less than Load.
func ConfigSchema() ([]byte, error) {
	root := topFields().objectSchema()
	root.Schema, root.Title = "https://json-schema.org/draft/2020-12/schema", "apis/<name>/config.json"
	root.Description = "One API of CodeForge."
	root.AnyOf = []jsonSchema{{Required: []string{"domains"}}, {Required: []string{"mcp"}}}
	root.Not = &jsonSchema{Required: []string{"restricted_methods", "allowed_methods"}}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	// Patterns stay readable.
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(root)
	return b.Bytes(), err
}
