// Package tree reads JSON and YAML into a tree that keeps the order of keys and the text of numbers.
//
// Threat: a document of an unknown author. Its size, depth and number of values are bounded, an alias of YAML shares
// its value instead of repeating it, and no text is resolved, run or opened. A tree may share values, so whoever walks
// one must bound the work.
package tree

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The limits of a document.
const (
	// MaxSize is in bytes.
	MaxSize = 64 << 20
	// MaxDepth is how deep values may be nested.
	MaxDepth = 500
	// MaxValues is how many values there may be.
	MaxValues = 4_000_000
)

// Kind is what a value is.
type Kind uint8

// The kinds. The zero kind is null.
const (
	Null Kind = iota
	Bool
	Number
	String
	List
	Map
)

// Node is one value. The nil Node is null.
type Node struct {
	Kind Kind
	// Text is the text of a string, or a number or bool as it is written.
	Text string
	// Members are the values of a list or map; those of a list have no keys. A key may be there twice.
	Members []Member
}

// Member is a value in a list or map.
type Member struct {
	Key  string
	Node *Node
}

// Get is a map's value, or nil. The first of equal keys counts.
func (n *Node) Get(key string) *Node {
	if n == nil || n.Kind != Map {
		return nil
	}
	for i := range n.Members {
		if n.Members[i].Key == key {
			return n.Members[i].Node
		}
	}
	return nil
}

// At follows keys of maps.
func (n *Node) At(keys ...string) *Node {
	for _, k := range keys {
		n = n.Get(k)
	}
	return n
}

// Str is the text of a map's string, number or bool, or empty.
func (n *Node) Str(key string) string {
	if v := n.Get(key); v != nil {
		return v.Text
	}
	return ""
}

// True reports whether a map's value is true.
func (n *Node) True(key string) bool {
	v := n.Get(key)
	return v != nil && v.Kind == Bool && v.Text == "true"
}

// Is reports whether a node is of a kind.
func (n *Node) Is(k Kind) bool { return n != nil && n.Kind == k }

// Maps are the members of a map, or none.
func (n *Node) Maps() []Member {
	if !n.Is(Map) {
		return nil
	}
	return n.Members
}

// Items are the members of a list, or none.
func (n *Node) Items() []Member {
	if !n.Is(List) {
		return nil
	}
	return n.Members
}

// Skip reports whether a value is to be left out, by its key and the key of the map around it.
type Skip func(around, key string) bool

// ErrTooMany is for a document with more than MaxValues values.
var ErrTooMany = fmt.Errorf("more than %d values", MaxValues)

var (
	errTooDeep = fmt.Errorf("values nested more than %d deep", MaxDepth)
	errNoText  = errors.New("bytes that are no UTF-8; want JSON or YAML in UTF-8")
)

// Parse reads JSON if the text begins with a brace, else YAML. The tree shares memory with the text.
func Parse(text []byte, skip Skip) (*Node, error) {
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
		return parseJSON(s, skip)
	case first[0] == '<':
		return nil, errors.New("a page of HTML or XML; want JSON or YAML")
	}
	return parseYAML(s, skip)
}
