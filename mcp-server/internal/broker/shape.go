package broker

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/shape"
)

const (
	// maxSamples is how many results of a tool are looked at, and maxSample how large one may be, in bytes.
	maxSamples = 8
	maxSample  = 64 << 10
)

// learned is what is known of the results of one tool.
type learned struct {
	Of      string       `json:"of"` // the digest of its definition
	Samples int          `json:"samples"`
	Shape   *shape.Shape `json:"shape"`
	// Asked has a byte of the digest of each sample's arguments: enough to tell most questions apart, and too little to
	// tell what they were. Questions that it confuses count as one, which shows fewer names.
	Asked []byte `json:"asked"`

	text string // Shape's
}

// add adds the shape of a result to a question, and reports whether the text is another one now.
func (l *learned) add(question []byte, s *shape.Shape) bool {
	asked := sha256.Sum256(question)
	again := bytes.IndexByte(l.Asked, asked[0]) >= 0
	if !again {
		l.Asked = append(l.Asked, asked[0])
	}
	l.Shape.Join(s, again)
	l.Samples++
	before := l.text
	l.text = l.Shape.String()
	return before != l.text
}

// definitionDigest is the digest of a tool's definition, as canonical writes it.
func definitionDigest(definition json.RawMessage) string {
	sum := sha256.Sum256(definition)
	return hex.EncodeToString(sum[:8])
}

// sample is the shape of the value that code gets of a result, nil if none can be learned from it.
func sample(result []byte) *shape.Shape {
	var r struct {
		IsError    bool            `json:"isError"`
		Structured json.RawMessage `json:"structuredContent"`
		Content    []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	}
	if len(result) > maxSample || json.Unmarshal(result, &r) != nil || r.IsError {
		return nil
	}
	if len(r.Structured) > 0 && string(r.Structured) != "null" {
		return shape.Of(bytes.NewReader(r.Structured))
	}
	var text []string
	for _, c := range r.Content {
		if c.Type != "text" {
			return nil
		}
		text = append(text, c.Text)
	}
	all := strings.TrimSpace(strings.Join(text, "\n"))
	if all == "" {
		return nil
	}
	if (all[0] == '{' || all[0] == '[') && json.Valid([]byte(all)) {
		return shape.Of(strings.NewReader(all))
	}
	return &shape.Shape{Kinds: shape.String}
}

// study learns from a result of a tool that declares no schema of its results. The question is the call's arguments.
func (s *server) study(t *tool, question, result []byte) {
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
	seen := sample(result)
	if seen == nil {
		return
	}
	s.broker.mu.Lock()
	if l = s.shapes[t.Name]; l == nil || l.Of != t.digest {
		l = &learned{Of: t.digest, Shape: &shape.Shape{}}
		s.shapes[t.Name] = l
	}
	changed := l.add(question, seen)
	s.broker.mu.Unlock()
	if changed {
		s.remember()
	}
}

// seen is the type of the results of a tool that were seen, empty if there were none. Broker.mu is held.
func (s *server) seen(t *tool) string {
	l := s.shapes[t.Name]
	if l == nil || l.Of != t.digest || len(t.OutputSchema) > 0 {
		return ""
	}
	return l.text
}
