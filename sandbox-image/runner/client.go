package runner

import (
	_ "embed" // client.js
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// clientScript is client.js, which uses the constant `table`.
//
//go:embed client.js
var clientScript string

// Table describes an API for its client. All text in it comes from the author of a document. It becomes one string
// literal, so that no other part of a document becomes code.
type Table struct {
	// Name is the API's name, and Call the identifier that code imports.
	Name       string      `json:"name"`
	Call       string      `json:"call"`
	Server     string      `json:"server"`
	Auth       []Auth      `json:"auth"`
	Operations []Operation `json:"operations"`
	// End is the time at which the run ends, in milliseconds since 1970. Zero means that it is unknown.
	End int64 `json:"end,omitempty"`
	// Note explains an empty list of operations.
	Note string `json:"note,omitempty"`
}

// Auth is a token's name in a header or a parameter. Basic is a user name and a password, instead of Value.
type Auth struct {
	Header string   `json:"header,omitempty"`
	Query  string   `json:"query,omitempty"`
	Value  string   `json:"value,omitempty"`
	Basic  []string `json:"basic,omitempty"`
}

// Operation is one request that code may make. Key is e.g. "POST /v1/refunds". Names from a document are values of
// lists, not keys of objects, because JavaScript gives some keys a meaning (__proto__).
type Operation struct {
	Key    string      `json:"-"`
	Media  string      `json:"media,omitempty"` // of the body; empty: application/json
	Server string      `json:"server,omitempty"`
	Styles [][2]string `json:"styles"`
	// Query and Fields are the names of parameters and of the body's fields.
	Query  []string `json:"query"`
	Fields []string `json:"fields"`
	// List is the property of the response that holds its list, according to the document. If it is empty, the script
	// searches for the list.
	List string `json:"list,omitempty"`
}

// MarshalJSON writes a pair of key and operation.
func (o Operation) MarshalJSON() ([]byte, error) {
	type plain Operation
	return json.Marshal([]any{o.Key, plain(o)})
}

// UnmarshalJSON reads the output of MarshalJSON.
func (o *Operation) UnmarshalJSON(text []byte) error {
	type plain Operation
	var p plain
	var pair []json.RawMessage
	if err := json.Unmarshal(text, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("an operation of %d parts; want 2", len(pair))
	}
	if err := json.Unmarshal(pair[1], &p); err != nil {
		return err
	}
	if err := json.Unmarshal(pair[0], &p.Key); err != nil {
		return err
	}
	*o = Operation(p)
	return nil
}

// ClientModule returns the source of a client's module.
func ClientModule(t Table) ([]byte, error) {
	if !IsIdentifier(t.Call) {
		return nil, fmt.Errorf("%q cannot be imported", t.Call)
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("writing the operations of %s: %w", t.Name, err)
	}
	var b strings.Builder
	b.WriteString("const table = JSON.parse(" + QuoteLiteral(string(text)) + ");\n")
	b.WriteString(clientScript)
	b.WriteString("\nexport { api as " + t.Call + ", ApiError };\nexport default api;\n")
	return []byte(b.String()), nil
}

// IsIdentifier reports whether a name can be exported: an ASCII identifier, including reserved words.
func IsIdentifier(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '$'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	const long = 128
	return s != "" && len(s) <= long
}

// QuoteLiteral returns a string literal of JavaScript and TypeScript in printable ASCII. It escapes every character
// that could end a string, a comment or an element of markup.
func QuoteLiteral(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r < utf8.RuneSelf &&
			strings.ContainsRune(" !#%&()+,-.:;=?@[]^_{|}~", r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
