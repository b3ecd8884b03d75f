package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/disarm"
)

const (
	// maxSamples is how many results of a tool are looked at, and maxSample how large one may be, in bytes.
	maxSamples = 8
	maxSample  = 64 << 10
	// shapeDepth is how deep a shape goes, and maxFields how many fields an object of one has.
	shapeDepth = 3
	maxFields  = 24
	// likeRecord is from how many fields on an object whose fields are all objects is taken for a dictionary.
	likeRecord = 4
)

// shape is what kinds of values stood in one place of a tool's results. It has no value: a name of a field stands in it
// only if it looks like one.
type shape struct {
	Kinds []string `json:"kinds"` // of JSON Schema's types, in order
	// Fields are those of objects, Objects how many objects there were, Times how often a field was there.
	Fields  map[string]*shape `json:"fields,omitempty"`
	Objects int               `json:"objects,omitempty"`
	Times   int               `json:"times,omitempty"`
	// Items is that of the elements of arrays, and of the fields of what is a dictionary.
	Items  *shape `json:"items,omitempty"`
	Record bool   `json:"record,omitempty"`
}

// learned is what is known of the results of one tool.
type learned struct {
	Of      string `json:"of"` // the digest of its definition
	Samples int    `json:"samples"`
	Shape   *shape `json:"shape"`

	schema json.RawMessage // of Shape
}

// written writes the schema of what was learned, and reports whether it is another one now.
func (l *learned) written() bool {
	before := l.schema
	l.schema, _ = json.Marshal(l.Shape.schema()) // maps and texts
	return string(before) != string(l.schema)
}

// definitionDigest is the digest of a tool's definition, as far as it matters.
func definitionDigest(raw json.RawMessage) string {
	sum := sha256.Sum256(canonical(raw))
	return hex.EncodeToString(sum[:8])
}

// sample reads the value that code gets of a result, if a shape can be learned from it.
func sample(result []byte) (value any, ok bool) {
	var r struct {
		IsError    bool            `json:"isError"`
		Structured json.RawMessage `json:"structuredContent"`
		Content    []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	}
	if len(result) > maxSample || json.Unmarshal(result, &r) != nil || r.IsError {
		return nil, false
	}
	if len(r.Structured) > 0 && string(r.Structured) != "null" {
		return value, json.Unmarshal(r.Structured, &value) == nil
	}
	var text []string
	for _, c := range r.Content {
		if c.Type != "text" {
			return nil, false
		}
		text = append(text, c.Text)
	}
	all := strings.TrimSpace(strings.Join(text, "\n"))
	if all == "" {
		return nil, false
	}
	if all[0] == '{' || all[0] == '[' {
		if json.Unmarshal([]byte(all), &value) == nil {
			return value, true
		}
	}
	return "", true
}

// add adds a value that was seen.
func (s *shape) add(value any, depth int) {
	switch v := value.(type) {
	case nil:
		s.kind("null")
	case bool:
		s.kind("boolean")
	case string:
		s.kind("string")
	case float64:
		if v == math.Trunc(v) && !slices.Contains(s.Kinds, "number") {
			s.kind("integer")
			return
		}
		s.Kinds = slices.DeleteFunc(s.Kinds, func(k string) bool { return k == "integer" })
		s.kind("number")
	case []any:
		s.kind("array")
		if depth == shapeDepth {
			return
		}
		for _, item := range v {
			s.items().add(item, depth+1)
		}
	case map[string]any:
		s.kind("object")
		if depth < shapeDepth {
			s.object(v, depth)
		}
	}
}

func (s *shape) kind(k string) {
	if i, has := slices.BinarySearch(s.Kinds, k); !has {
		s.Kinds = slices.Insert(s.Kinds, i, k)
	}
}

func (s *shape) items() *shape {
	if s.Items == nil {
		s.Items = &shape{}
	}
	return s.Items
}

// object adds an object. Once one looks like a dictionary, whose keys are values, all in this place are taken for one.
func (s *shape) object(v map[string]any, depth int) {
	if s.Record = s.Record || isRecord(v); !s.Record && s.Fields != nil {
		s.Record = len(s.Fields)+len(v) > 2*maxFields
	}
	if s.Record {
		for _, field := range s.Fields {
			s.items().merge(field)
		}
		s.Fields = nil
		for _, value := range v {
			s.items().add(value, depth+1)
		}
		return
	}
	s.Objects++
	if s.Fields == nil {
		s.Fields = map[string]*shape{}
	}
	for name, value := range v {
		f := s.Fields[name]
		if f == nil {
			f = &shape{}
			s.Fields[name] = f
		}
		f.Times++
		f.add(value, depth+1)
	}
}

// merge adds what another shape has seen.
func (s *shape) merge(o *shape) {
	for _, k := range o.Kinds {
		s.kind(k)
	}
	s.Record = s.Record || o.Record
	if o.Items != nil {
		s.items().merge(o.Items)
	}
	for name, field := range o.Fields {
		if s.Record {
			s.items().merge(field)
			continue
		}
		if s.Fields == nil {
			s.Fields = map[string]*shape{}
		}
		if s.Fields[name] == nil {
			s.Fields[name] = &shape{}
		}
		s.Fields[name].merge(field)
		s.Fields[name].Times += field.Times
	}
	s.Objects += o.Objects
}

// fieldName is what a name of a field looks like, and not a key that is somebody's address, number or title.
var fieldName = regexp.MustCompile(`^[A-Za-z_$@][A-Za-z_$-]{0,39}[0-9]{0,2}$`)

// isRecord says that the keys of an object are values: they are many, do not look like names of fields, or lead to
// objects all.
func isRecord(v map[string]any) bool {
	objects := 0
	for name, value := range v {
		if !fieldName.MatchString(name) && !disarm.Off("shape-keys") {
			return true
		}
		if _, ok := value.(map[string]any); ok {
			objects++
		}
	}
	if disarm.Off("shape-keys") {
		return false
	}
	return len(v) > maxFields || len(v) >= likeRecord && objects == len(v)
}

// schema is a shape as a JSON Schema.
func (s *shape) schema() map[string]any {
	var all []any
	for _, kind := range s.Kinds {
		one := map[string]any{"type": kind}
		switch {
		case kind == "array" && s.Items != nil && !s.Record:
			one["items"] = s.Items.schema()
		case kind == "object" && s.Record && s.Items != nil:
			one["additionalProperties"] = s.Items.schema()
		case kind == "object" && len(s.Fields) > 0:
			properties, required := map[string]any{}, []any{}
			for _, name := range slices.Sorted(maps.Keys(s.Fields)) {
				properties[name] = s.Fields[name].schema()
				if s.Fields[name].Times == s.Objects {
					required = append(required, name)
				}
			}
			one["properties"], one["required"] = properties, required
		}
		all = append(all, one)
	}
	if len(all) == 1 {
		return all[0].(map[string]any)
	}
	return map[string]any{"anyOf": all}
}

// study learns from a result of a tool that declares no schema of its results.
func (s *server) study(t *tool, result []byte) {
	if len(t.OutputSchema) > 0 {
		return
	}
	s.broker.mu.Lock()
	l := s.shapes[t.Name]
	enough := l != nil && l.Samples >= maxSamples && l.Of == t.digest
	s.broker.mu.Unlock()
	if enough {
		return
	}
	value, ok := sample(result)
	if !ok {
		return
	}
	s.broker.mu.Lock()
	if l = s.shapes[t.Name]; l == nil || l.Of != t.digest {
		l = &learned{Of: t.digest, Shape: &shape{}}
		s.shapes[t.Name] = l
	}
	l.Shape.add(value, 0)
	l.Samples++
	changed := l.written()
	s.broker.mu.Unlock()
	if changed {
		s.remember()
	}
}

// seen is the schema of the results of a tool that were seen, if there were any. Broker.mu is held.
func (s *server) seen(t *tool) json.RawMessage {
	l := s.shapes[t.Name]
	if l == nil || l.Of != t.digest || len(t.OutputSchema) > 0 {
		return nil
	}
	return l.schema
}
