package jsonread

import (
	"fmt"
	"slices"
)

// Kind is the type of a value.
type Kind uint8

// The kinds. The zero kind is null.
const (
	Null Kind = iota
	Bool
	Number
	String
	List
	Object
)

// String returns the name of the kind for messages.
func (k Kind) String() string {
	return [...]string{"null", "true or false", "a number", "a string", "a list", "an object"}[k]
}

// Node is one value. A nil *Node is null.
type Node struct {
	Kind Kind
	// Line is the line, from 1, at which the value or the key before it begins.
	Line uint32
	// Text is the text of a string. For a number, true and false it is the text as written.
	Text string
	// Members are the values of a list or object. Members of a list have no keys. A key may occur twice.
	Members []Member
}

// Member is a value in a list or object.
type Member struct {
	Key  string
	Node *Node
}

// Options control Parse.
type Options struct {
	// MaxDepth is the deepest nesting of values. Zero means DefaultDepth.
	MaxDepth int
	// MaxValues is the number of values that may be kept. Zero means no bound.
	MaxValues int
	// Fold, if not nil, rejects an object with two keys for which Fold returns the same text. Otherwise both are kept.
	Fold func(key string) string
	// Skip, if not nil, reports whether to leave out a value, by its key and the key of the surrounding object.
	Skip func(around, key string) bool
}

// Parse reads a text with one value. The tree shares memory with the text. Every error is an *Error with a line and a
// column.
func Parse(text string, o Options) (*Node, error) {
	// Before parsing: unquoteString would replace the bytes silently.
	if err := checkUTF8(text); err != nil {
		return nil, locateError(err, text)
	}
	p := nodeBuilder{Options: o, text: text, scanner: Scanner{MaxDepth: o.MaxDepth}, frames: []openValue{{keep: true}}}
	if err := scanEvents(text, &p.scanner, p.takeEvent); err != nil {
		return nil, locateError(err, text)
	}
	return p.stack[0].Node, nil
}

// nodeBuilder makes nodes from events.
type nodeBuilder struct {
	Options
	text    string
	scanner Scanner
	frames  []openValue // the open objects and lists; the first frame is the whole text
	stack   []Member    // the members of all open objects and lists
	slab    []Node
	count   int
	start   int // the start of the current key, string, number or word
	line    int // the line of start
}

// openValue is an open object or list.
type openValue struct {
	kind Kind
	// around is the key of the object. For a list it is the key of the surrounding object.
	around string
	// key is the last key of an object and line is its line. keep reports whether its value is kept.
	key  string
	line int
	keep bool
	// all reports whether anything in the frame is kept. begin is its first line, and base the index of its members in the
	// stack.
	all   bool
	begin int
	base  int
	seen  map[string]bool // the folded keys
}

func (p *nodeBuilder) takeEvent(e ScanEvent, at int) error {
	switch {
	case e&(BeginKey|BeginString|BeginNumber|BeginWord) != 0:
		p.start, p.line = at, p.scanner.Line()
	case e&EndNumber != 0:
		return p.addValue(Number, p.text[p.start:at], nil, p.line)
	case e&EndKey != 0:
		return p.setKey(unquoteString(p.text[p.start : at+1]))
	case e&EndString != 0:
		return p.addValue(String, p.text[p.start:at+1], nil, p.line)
	case e&EndWord != 0:
		if word := p.text[p.start : at+1]; word != "null" {
			return p.addValue(Bool, word, nil, p.line)
		}
		return p.addValue(Null, "null", nil, p.line)
	case e&BeginObject != 0:
		p.openContainer(Object)
	case e&BeginList != 0:
		p.openContainer(List)
	case e&(EndObject|EndList) != 0:
		f := p.frames[len(p.frames)-1]
		p.frames = p.frames[:len(p.frames)-1]
		// The stack is overwritten by the next object or list.
		members := slices.Clone(p.stack[f.base:])
		// The stack is reused, and must not keep the nodes in memory.
		clear(p.stack[f.base:])
		p.stack = p.stack[:f.base]
		return p.addValue(f.kind, "", members, f.begin)
	}
	return nil
}

// openContainer opens an object or list.
func (p *nodeBuilder) openContainer(kind Kind) {
	outer := p.frames[len(p.frames)-1]
	f := openValue{kind: kind, around: outer.around, keep: outer.keep, all: outer.keep, begin: p.scanner.Line(),
		base: len(p.stack)}
	// A list has no key, so its elements see the key of the surrounding object.
	if outer.kind == Object {
		f.around = outer.key
	}
	p.frames = append(p.frames, f)
}

// setKey records the key of the next value.
func (p *nodeBuilder) setKey(key string) error {
	f := &p.frames[len(p.frames)-1]
	f.key, f.line, f.keep = key, p.line, f.all && (p.Skip == nil || !p.Skip(f.around, key))
	if p.Fold == nil {
		return nil
	}
	// Skipped values count too: another parser may read them.
	folded := p.Fold(key)
	if f.seen[folded] {
		return &Error{Offset: p.start, Found: fmt.Sprintf("the key %q a second time", key), Want: "each key once"}
	}
	if f.seen == nil {
		f.seen = map[string]bool{}
	}
	f.seen[folded] = true
	return nil
}

// addValue adds a value to the open object or list, unless the value is left out.
func (p *nodeBuilder) addValue(kind Kind, text string, members []Member, line int) error {
	f := &p.frames[len(p.frames)-1]
	if !f.keep {
		return nil
	}
	if p.count++; p.MaxValues > 0 && p.count > p.MaxValues {
		return &Error{Offset: p.scanner.Offset(), Found: "many values", Want: fmt.Sprintf("at most %d", p.MaxValues)}
	}
	// One allocation serves many nodes.
	if len(p.slab) == 0 {
		p.slab = make([]Node, 512)
	}
	n := &p.slab[0]
	p.slab = p.slab[1:]
	if kind == String {
		text = unquoteString(text)
	}
	n.Kind, n.Text, n.Members, n.Line = kind, text, members, uint32(line)
	m := Member{Node: n}
	if f.kind == Object {
		m.Key, n.Line = f.key, uint32(f.line)
	}
	p.stack = append(p.stack, m)
	return nil
}

// GetValue returns an object's value, or nil. The first of equal keys counts.
func (n *Node) GetValue(key string) *Node {
	if !n.Is(Object) {
		return nil
	}
	for i := range n.Members {
		if n.Members[i].Key == key {
			return n.Members[i].Node
		}
	}
	return nil
}

// FollowKeys follows keys of nested objects.
func (n *Node) FollowKeys(keys ...string) *Node {
	for _, k := range keys {
		n = n.GetValue(k)
	}
	return n
}

// TextOf returns the text of an object's string, number or boolean, or "".
func (n *Node) TextOf(key string) string {
	if v := n.GetValue(key); v != nil {
		return v.Text
	}
	return ""
}

// IsTrue reports whether an object's value is true.
func (n *Node) IsTrue(key string) bool {
	v := n.GetValue(key)
	return v.Is(Bool) && v.Text == "true"
}

// Is reports whether a node has a kind.
func (n *Node) Is(k Kind) bool { return n != nil && n.Kind == k }

// ObjectMembers returns the members of an object, or nil.
func (n *Node) ObjectMembers() []Member {
	if !n.Is(Object) {
		return nil
	}
	return n.Members
}

// ListItems returns the members of a list, or nil.
func (n *Node) ListItems() []Member {
	if !n.Is(List) {
		return nil
	}
	return n.Members
}
