package bridge

import (
	"bytes"
	"encoding/json"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
)

// maxID is the longest ID that is recognised in a message that is not kept, in bytes.
const maxID = 64

// messageSkimmer reads a JSON-RPC message of any length without keeping it. It finds the nesting depth, the ID, and
// whether the message is an answer. So the bridge can answer in place of a message that is too large: the caller gets
// an error, and the server goes on.
type messageSkimmer struct {
	size    int
	depth   int
	deepest int
	quoted  bool
	escaped bool
	key     bool   // at depth 1: a key is expected or being read, instead of a value
	word    []byte // the key, or the value of "id", so far
	name    string // the key before the current value
	id      []byte
	method  bool
}

// addBytes reads the next bytes.
func (s *messageSkimmer) addBytes(text []byte) {
	s.size += len(text)
	for len(text) > 0 {
		if s.quoted && !s.escaped && !s.needsText() { // most of a large message is within strings
			n := bytes.IndexAny(text, `"\\`)
			if n < 0 {
				return
			}
			text = text[n:]
		}
		s.addByte(text[0])
		text = text[1:]
	}
}

// needsText reports whether the current text is a key, or the ID, of the outermost object.
func (s *messageSkimmer) needsText() bool {
	return s.depth == 1 && (s.key || s.name == "id") && len(s.word) <= maxID
}

func (s *messageSkimmer) addByte(b byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case s.quoted:
		s.escaped, s.quoted = b == '\\', b != '"'
	case b == '"':
		s.quoted = true
	case b == '{' || b == '[':
		s.depth++
		s.deepest = max(s.deepest, s.depth)
		s.key = s.depth == 1
		return
	case b == '}' || b == ']':
		s.endValue()
		s.depth--
		return
	// Only keys of the message itself count: a result may contain "id" or "method", too.
	case b == ':' && s.depth == 1 && s.key:
		_ = json.Unmarshal(s.word, &s.name) // an invalid key cannot be one of ours
		s.method = s.method || s.name == "method"
		s.key, s.word = false, nil
		return
	case b == ',' && s.depth == 1:
		s.endValue()
		s.key = true
		return
	case b == ' ' || b == '\t' || b == '\r' || b == '\n':
		return
	}
	if s.needsText() {
		s.word = append(s.word, b)
	}
}

// endValue ends a value of the outermost object.
func (s *messageSkimmer) endValue() {
	if s.depth != 1 {
		return
	}
	if s.name == "id" && len(s.word) <= maxID {
		s.id = s.word
	}
	s.name, s.word = "", nil
}

// isRefused reports whether the message must not be decoded.
func (s *messageSkimmer) isRefused() bool {
	return s.size > bridgewire.MaxMessage || s.deepest > bridgewire.MaxDepth
}

// answeredID returns the ID of the request that the message answers, or nil.
func (s *messageSkimmer) answeredID() any {
	var id any
	if s.method || json.Unmarshal(s.id, &id) != nil {
		return nil
	}
	return id
}
