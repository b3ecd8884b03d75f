// Package jsonfile edits JSON files that belong to the user. It sets a value and keeps everything else byte by byte.
package jsonfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// ErrNotJSON is the error for a text with comments, trailing commas or mistakes. Such a text is not changed.
var ErrNotJSON = errors.New("the file is not plain JSON (comments, a trailing comma, or a mistake)")

// listMembers lists the members of the object whose text is at [start, end).
func listMembers(text []byte, start, end int) ([]jsonread.Span, error) {
	if text[start] != '{' {
		return nil, fmt.Errorf("%w: an object is missing", ErrNotJSON)
	}
	var out []jsonread.Span
	for m, err := range jsonread.ListSpans(string(text[start:end])) {
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotJSON, err)
		}
		m.Start, m.End = start+m.Start, start+m.End
		out = append(out, m)
	}
	return out, nil
}

// SetValue sets the value at a path of keys, and creates missing objects.
func SetValue(text []byte, value any, path ...string) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	list, start, end, depth, err := findPath(text, path)
	if err != nil {
		return nil, err
	}
	unit := indentOf(text)
	if depth < len(path) {
		return addMember(text, start, end, list, path[depth:], value, depth, unit), nil
	}
	// An unchanged value keeps its formatting.
	if isSame(text[start:end], value) {
		return text, nil
	}
	return spliceText(text, start, end, formatPretty(value, strings.Repeat(unit, len(path)), unit)), nil
}

// GetValue returns the text of the value at a path of keys, or nil.
func GetValue(text []byte, path ...string) (json.RawMessage, error) {
	_, start, end, depth, err := findPath(text, path)
	if err != nil || depth < len(path) {
		return nil, err
	}
	return json.RawMessage(text[start:end]), nil
}

// ListKeys lists the keys of the object at a path of keys, in the order of the text. A missing object has no keys.
func ListKeys(text []byte, path ...string) ([]string, error) {
	_, start, end, depth, err := findPath(text, path)
	if err != nil || depth < len(path) {
		return nil, err
	}
	list, err := listMembers(text, start, end)
	return convert.Each(list, func(m jsonread.Span) string { return m.Key }), err
}

// findPath follows a path of keys as far as possible. depth keys lead to the value at [start, end). If the path goes
// on, list has the members of that value.
func findPath(text []byte, path []string) (list []jsonread.Span, start, end, depth int, err error) {
	if !json.Valid(text) {
		return nil, 0, 0, 0, ErrNotJSON
	}
	start = bytes.IndexFunc(text, func(r rune) bool { return !strings.ContainsRune(" \t\r\n", r) })
	end = len(bytes.TrimRight(text, " \t\r\n"))
	for depth, key := range path {
		list, err = listMembers(text, start, end)
		if err != nil {
			return nil, 0, 0, 0, err
		}
		at := -1
		for i, m := range list {
			if m.Key == key {
				at = i // of duplicate keys, the last counts
			}
		}
		if at < 0 {
			return list, start, end, depth, nil
		}
		start, end = list[at].Start, list[at].End
	}
	return nil, start, end, len(path), nil
}

func addMember(text []byte, start, end int, list []jsonread.Span, path []string, value any, depth int,
	unit string) []byte {
	for i := len(path) - 1; i > 0; i-- {
		value = map[string]any{path[i]: value}
	}
	inner := strings.Repeat(unit, depth+1)
	line := "\n" + inner + FormatCompact(path[0]) + ": " + formatPretty(value, inner, unit)
	if len(list) == 0 {
		return spliceText(text, start, end, "{"+line+"\n"+strings.Repeat(unit, depth)+"}")
	}
	last := list[len(list)-1].End
	return spliceText(text, last, last, ","+line)
}

// AppendToList appends the elements of a list to the array at a key.
func AppendToList(text []byte, key string, list any) ([]byte, error) {
	array, err := GetValue(text, key)
	if err != nil {
		return nil, err
	}
	var have, more []json.RawMessage
	if err := json.Unmarshal(array, &have); err != nil {
		return nil, fmt.Errorf("%w: %q is not an array", ErrNotJSON, key)
	}
	_ = json.Unmarshal([]byte(FormatCompact(list)), &more) // ours
	return SetValue(text, append(have, more...), key)
}

func spliceText(text []byte, start, end int, with string) []byte {
	out := append([]byte{}, text[:start]...)
	out = append(out, with...)
	return append(out, text[end:]...)
}

// indentOf returns the file's first indentation.
func indentOf(text []byte) string {
	for line := range bytes.Lines(text) {
		rest := bytes.TrimLeft(line, " \t")
		if n := len(line) - len(rest); n > 0 && len(bytes.TrimSpace(rest)) > 0 {
			return string(line[:n])
		}
	}
	return "  "
}

func isSame(raw []byte, value any) bool {
	var have bytes.Buffer
	return json.Compact(&have, raw) == nil && have.String() == FormatCompact(value)
}

// formatPretty returns a value on several lines. The first line has no indentation.
func formatPretty(value any, prefix, unit string) string {
	var b bytes.Buffer
	_ = json.Indent(&b, []byte(FormatCompact(value)), prefix, unit) // ours
	return b.String()
}

// FormatCompact returns a value on one line, without HTML escapes.
func FormatCompact(value any) string {
	text, _ := convert.ToJSON(value) // strings, objects and lists always encode
	return string(text)
}
