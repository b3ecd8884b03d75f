package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrNotJSON is the error for a file with comments, trailing commas or mistakes: it is not changed.
var ErrNotJSON = errors.New("the file is not plain JSON (comments, a trailing comma, or a mistake)")

// member is one member of an object: where its value is in the text.
type member struct {
	key        string
	start, end int
}

// members lists the members of the object whose text is at [start, end).
func members(text []byte, start, end int) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(text[start:end]))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("%w: an object is missing", ErrNotJSON)
	}
	var out []member
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotJSON, err)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotJSON, err)
		}
		name, _ := key.(string)
		to := start + int(dec.InputOffset())
		out = append(out, member{name, to - len(raw), to})
	}
	return out, nil
}

// insert sets the value at a path of keys, and makes the objects that are missing. The rest of the text stays as it is.
func insert(text []byte, path []string, value any) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	if !json.Valid(text) {
		return nil, ErrNotJSON
	}
	unit := indentOf(text)
	start := bytes.IndexFunc(text, func(r rune) bool { return !strings.ContainsRune(" \t\r\n", r) })
	end := len(bytes.TrimRight(text, " \t\r\n"))
	for depth, key := range path {
		list, err := members(text, start, end)
		if err != nil {
			return nil, err
		}
		at := -1
		for i, m := range list {
			if m.key == key {
				at = i // of several, the last counts
			}
		}
		if at < 0 {
			return add(text, start, end, list, path[depth:], value, depth, unit), nil
		}
		start, end = list[at].start, list[at].end
	}
	if same(text[start:end], value) {
		return text, nil
	}
	return splice(text, start, end, pretty(value, strings.Repeat(unit, len(path)), unit)), nil
}

// add puts a new member at the end of the object at [start, end).
func add(text []byte, start, end int, list []member, path []string, value any, depth int, unit string) []byte {
	for i := len(path) - 1; i > 0; i-- {
		value = map[string]any{path[i]: value}
	}
	inner := strings.Repeat(unit, depth+1)
	line := "\n" + inner + compact(path[0]) + ": " + pretty(value, inner, unit)
	if len(list) == 0 {
		return splice(text, start, end, "{"+line+"\n"+strings.Repeat(unit, depth)+"}")
	}
	last := list[len(list)-1].end
	return splice(text, last, last, ","+line)
}

// appendTo appends the elements of list to the array at a key.
func appendTo(text []byte, key string, list any) ([]byte, error) {
	var all struct{ elements []json.RawMessage }
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, ErrNotJSON
	}
	if err := json.Unmarshal(doc[key], &all.elements); err != nil {
		return nil, ErrNotJSON
	}
	var more []json.RawMessage
	_ = json.Unmarshal([]byte(compact(list)), &more) // ours
	return insert(text, []string{key}, append(all.elements, more...))
}

func splice(text []byte, start, end int, with string) []byte {
	out := append([]byte{}, text[:start]...)
	out = append(out, with...)
	return append(out, text[end:]...)
}

// indentOf is what the file indents with: the first indentation in it.
func indentOf(text []byte) string {
	for line := range bytes.Lines(text) {
		rest := bytes.TrimLeft(line, " \t")
		if n := len(line) - len(rest); n > 0 && len(bytes.TrimSpace(rest)) > 0 {
			return string(line[:n])
		}
	}
	return "  "
}

func same(raw []byte, value any) bool {
	var have bytes.Buffer
	if json.Compact(&have, raw) != nil {
		return false
	}
	return have.String() == compact(value)
}

// pretty is a value over several lines, whose first begins where it is put.
func pretty(value any, prefix, unit string) string {
	var b bytes.Buffer
	_ = json.Indent(&b, []byte(compact(value)), prefix, unit) // ours
	return b.String()
}

// compact is a value on one line.
func compact(value any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // strings, and objects and lists of them
	return strings.TrimSpace(b.String())
}
