// Package yamltree reads JSON and YAML into a tree that keeps the order of keys and the text of numbers.
//
// Threat: a document of an unknown author. Contract: its size, depth and number of values are bounded, and a YAML alias
// shares its value instead of repeating it. No text is resolved, run or opened. A tree may share values, so code that
// walks a tree must bound its work.
package yamltree

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// Limits of a document.
const (
	// MaxSize bounds the text, in bytes.
	MaxSize = 64 << 20
	// MaxDepth bounds the nesting of values.
	MaxDepth = 500
	// MaxValues bounds the number of values.
	MaxValues = 4_000_000
)

// Skip reports whether to leave out a value, by its key and the key of the map around it.
type Skip func(around, key string) bool

// ErrTooMany is the error for a document with more than MaxValues values.
var ErrTooMany = fmt.Errorf("more than %d values", MaxValues)

var (
	errTooDeep = fmt.Errorf("values nested more than %d deep", MaxDepth)
	errNoText  = errors.New("bytes that are not UTF-8; want JSON or YAML in UTF-8")
)

// ParseTree parses JSON if the text begins with a brace, else YAML. The tree shares memory with the text.
func ParseTree(text []byte, skip Skip) (*jsonread.Node, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("more than %d MiB", MaxSize>>20)
	}
	if !utf8.Valid(text) {
		return nil, errNoText
	}
	s := strings.TrimPrefix(string(text), "\ufeff")
	first := strings.TrimLeft(s, " \t\r\n")
	switch {
	case first == "":
		return nil, errors.New("an empty document")
	case first[0] == '{':
		return jsonread.Parse(s, jsonread.Options{MaxDepth: MaxDepth, MaxValues: MaxValues, Skip: skip})
	case first[0] == '<':
		return nil, errors.New("a page of HTML or XML; want JSON or YAML")
	}
	return parseYAML(s, skip)
}
