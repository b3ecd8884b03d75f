package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Kind is the type of a JSON value, as messages name it.
type Kind string

// The kinds.
const (
	Null   Kind = "null"
	Bool   Kind = "true or false"
	Number Kind = "a number"
	String Kind = "a string"
	List   Kind = "a list"
	Object Kind = "an object"
)

// Node is one JSON value, with what encoding/json drops: duplicate keys, order and position.
type Node struct {
	Kind    Kind
	Text    string // of a string or a number
	On      bool   // of a boolean
	Items   []*Node
	Members []Member
	Line    int // from 1
}

// Member is one entry of an object.
type Member struct {
	Key   string
	Line  int // of the key, from 1
	Value *Node
}

// syntaxError says where text is not JSON. It quotes none of the text, which may contain a credential.
type syntaxError struct {
	line, column int
	found, want  string
}

// parse reads exactly one JSON value in valid UTF-8. Example is the object that an empty file should have.
func parse(data []byte, example string) (*Node, *syntaxError) {
	if bytes.HasPrefix(data, []byte("\ufeff")) {
		return nil, &syntaxError{1, 1, "a byte order mark", "UTF-8 without one"}
	}
	if !utf8.Valid(data) {
		return nil, at(data, invalidUTF8(data), "bytes that are not UTF-8", "the file saved as UTF-8")
	}
	var probe json.RawMessage
	if err := json.Unmarshal(data, &probe); err != nil {
		return nil, explain(data, example, err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	t := tree{data: data, dec: dec}
	return t.value(), nil
}

func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return 0
}

// explain names the common mistake behind an error of encoding/json.
func explain(data []byte, example string, err error) *syntaxError {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return &syntaxError{1, 1, "not JSON", "one JSON object"}
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return &syntaxError{1, 1, "an empty file", "an object, e.g. " + example}
	}
	// Offset counts the bytes read, the offending one included.
	off := min(max(int(syntax.Offset)-1, 0), len(data)-1)
	if strings.Contains(syntax.Error(), "unexpected end") {
		return at(data, len(data), "the end of the file", "the quotes, brackets and braces closed")
	}
	before := bytes.TrimRight(data[:off], " \t\r\n")
	last := byte(0)
	if len(before) > 0 {
		last = before[len(before)-1]
	}
	switch c := data[off]; {
	case strings.Contains(syntax.Error(), "after top-level value"):
		return at(data, off, "more text after the object", "one object and nothing else")
	case last == ',' && (c == '}' || c == ']'):
		return at(data, len(before)-1, "a trailing comma", "no comma after the last entry")
	case c == '/' || c == '#':
		return at(data, off, "a comment", "JSON, which has no comments")
	case c == '\'':
		return at(data, off, "a single quote", `strings in double quotes`)
	case strings.Contains(syntax.Error(), "in string literal"), strings.Contains(syntax.Error(), "in string escape"):
		return at(data, off, "a string that is not closed on its line, or has a bad escape",
			`a string like "text", with \\ for a backslash`)
	case strings.Contains(syntax.Error(), "after object key:value pair"),
		strings.Contains(syntax.Error(), "after array element"):
		return at(data, off, "an entry without a comma before it", "entries separated by commas")
	case strings.Contains(syntax.Error(), "after object key"):
		return at(data, off, "a key without a colon after it", `"key": value`)
	case strings.Contains(syntax.Error(), "beginning of object key"):
		return at(data, off, "a key that is not in double quotes", `"key": value`)
	}
	return at(data, off, "something that is not a JSON value",
		`a string in double quotes, a list, an object, true or false`)
}

// at finds line and column (from 1, in characters) of an offset.
func at(data []byte, off int, found, want string) *syntaxError {
	before := data[:min(off, len(data))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return &syntaxError{line, column, found, want}
}

// tree builds nodes from text that is known to be valid.
type tree struct {
	data      []byte
	dec       *json.Decoder
	line, pos int
}

// here returns the line of the token just read.
func (t *tree) here() int {
	off := min(int(t.dec.InputOffset()), len(t.data))
	t.line += bytes.Count(t.data[t.pos:off], []byte("\n"))
	t.pos = off
	return t.line + 1
}

func (t *tree) value() *Node {
	tok, err := t.dec.Token()
	if err != nil {
		panic(fmt.Sprintf("valid JSON gave no token: %v", err)) // parse checked
	}
	n := &Node{Line: t.here()}
	switch v := tok.(type) {
	case string:
		n.Kind, n.Text = String, v
	case bool:
		n.Kind, n.On = Bool, v
	case json.Number:
		n.Kind, n.Text = Number, v.String()
	case nil:
		n.Kind = Null
	case json.Delim:
		t.nested(n, v)
	}
	return n
}

func (t *tree) nested(n *Node, open json.Delim) {
	n.Kind = List
	if open == '{' {
		n.Kind = Object
	}
	for t.dec.More() {
		v := t.value()
		if n.Kind == List {
			n.Items = append(n.Items, v)
			continue
		}
		n.Members = append(n.Members, Member{Key: v.Text, Line: v.Line, Value: t.value()})
	}
	_, _ = t.dec.Token() // the closing bracket
	t.here()
}
