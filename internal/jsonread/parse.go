package jsonread

import (
	"fmt"
	"slices"
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
	Object
)

// String is the kind as messages name it.
func (k Kind) String() string {
	return [...]string{"null", "true or false", "a number", "a string", "a list", "an object"}[k]
}

// Node is one value. The nil Node is null.
type Node struct {
	Kind Kind
	// Line is where the value begins, or the key before it, from 1.
	Line uint32
	// Text is the text of a string, or a number, true or false as it is written.
	Text string
	// Members are the values of a list or object; those of a list have no keys. A key may be there twice.
	Members []Member
}

// Member is a value in a list or object.
type Member struct {
	Key  string
	Node *Node
}

// Options say how a text is parsed.
type Options struct {
	// MaxDepth is how deep values nest, DefaultDepth if it is zero.
	MaxDepth int
	// MaxValues is how many values are kept. Zero means as many as there are.
	MaxValues int
	// AnyUTF8 replaces bytes that are not UTF-8 by U+FFFD. Otherwise they are an error.
	AnyUTF8 bool
	// Fold, if not nil, refuses an object with two keys for which it gives the same text. Otherwise both are kept.
	Fold func(key string) string
	// Skip, if not nil, reports whether a value is left out, by its key and the key of the object around it.
	Skip func(around, key string) bool
}

// Parse reads a text that is one value. The tree shares memory with the text. Every error is an *Error with a line
// and a column.
func Parse(text string, o Options) (*Node, error) {
	if !o.AnyUTF8 {
		if err := checkUTF8(text); err != nil {
			return nil, locate(err, text)
		}
	}
	p := parser{Options: o, text: text, scanner: Scanner{MaxDepth: o.MaxDepth}, frames: []frame{{keep: true}}}
	if err := scan(text, &p.scanner, p.take); err != nil {
		return nil, locate(err, text)
	}
	return p.stack[0].Node, nil
}

// parser makes nodes of events.
type parser struct {
	Options
	text    string
	scanner Scanner
	frames  []frame  // the objects and lists that are open, below them the text as a whole
	stack   []Member // the members of all that are open
	slab    []Node
	count   int
	start   int // of the key, string, number or word at hand
	line    int // of start
}

// frame is an object or list that is open.
type frame struct {
	kind Kind
	// around is the key of the object or list, or that of the object around its list.
	around string
	// key is the last key in an object, and line where it stands; keep reports whether its value is kept.
	key  string
	line int
	keep bool
	// all says whether anything in it is kept, begin on which line it begins, base where its members begin in the stack.
	all   bool
	begin int
	base  int
	seen  map[string]bool // folded keys
}

func (p *parser) take(e Event, at int) error {
	if e&EndNumber != 0 {
		if err := p.add(Number, p.text[p.start:at], nil, p.line); err != nil {
			return err
		}
	}
	switch {
	case e&(BeginKey|BeginString|BeginNumber|BeginWord) != 0:
		p.start, p.line = at, p.scanner.Line()
	case e&EndKey != 0:
		return p.setKey(unquote(p.text[p.start : at+1]))
	case e&EndString != 0:
		return p.add(String, p.text[p.start:at+1], nil, p.line)
	case e&EndWord != 0:
		if word := p.text[p.start : at+1]; word != "null" {
			return p.add(Bool, word, nil, p.line)
		}
		return p.add(Null, "null", nil, p.line)
	case e&BeginObject != 0:
		p.push(Object)
	case e&BeginList != 0:
		p.push(List)
	case e&(EndObject|EndList) != 0:
		f := p.frames[len(p.frames)-1]
		p.frames = p.frames[:len(p.frames)-1]
		members := slices.Clone(p.stack[f.base:])
		clear(p.stack[f.base:])
		p.stack = p.stack[:f.base]
		return p.add(f.kind, "", members, f.begin)
	}
	return nil
}

// push opens an object or list.
func (p *parser) push(kind Kind) {
	outer := p.frames[len(p.frames)-1]
	f := frame{kind: kind, around: outer.around, keep: outer.keep, all: outer.keep, begin: p.scanner.Line(),
		base: len(p.stack)}
	if outer.kind == Object {
		f.around = outer.key
	}
	p.frames = append(p.frames, f)
}

// setKey takes the key of the value that follows.
func (p *parser) setKey(key string) error {
	f := &p.frames[len(p.frames)-1]
	f.key, f.line, f.keep = key, p.line, f.all && (p.Skip == nil || !p.Skip(f.around, key))
	if p.Fold == nil {
		return nil
	}
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

// add adds a value to what is open, unless it is left out.
func (p *parser) add(kind Kind, text string, members []Member, line int) error {
	f := &p.frames[len(p.frames)-1]
	if !f.keep {
		return nil
	}
	if p.count++; p.MaxValues > 0 && p.count > p.MaxValues {
		return &Error{Offset: p.scanner.Offset(), Found: "many values", Want: fmt.Sprintf("at most %d", p.MaxValues)}
	}
	if len(p.slab) == 0 { // many nodes share one allocation
		p.slab = make([]Node, 512)
	}
	n := &p.slab[0]
	p.slab = p.slab[1:]
	if kind == String {
		text = unquote(text)
	}
	n.Kind, n.Text, n.Members, n.Line = kind, text, members, uint32(line)
	m := Member{Node: n}
	if f.kind == Object {
		m.Key, n.Line = f.key, uint32(f.line)
	}
	p.stack = append(p.stack, m)
	return nil
}

// Get is an object's value, or nil. The first of equal keys counts.
func (n *Node) Get(key string) *Node {
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

// At follows keys of objects.
func (n *Node) At(keys ...string) *Node {
	for _, k := range keys {
		n = n.Get(k)
	}
	return n
}

// Str is the text of an object's string, number or bool, or empty.
func (n *Node) Str(key string) string {
	if v := n.Get(key); v != nil {
		return v.Text
	}
	return ""
}

// True reports whether an object's value is true.
func (n *Node) True(key string) bool {
	v := n.Get(key)
	return v.Is(Bool) && v.Text == "true"
}

// Is reports whether a node is of a kind.
func (n *Node) Is(k Kind) bool { return n != nil && n.Kind == k }

// Maps are the members of an object, or none.
func (n *Node) Maps() []Member {
	if !n.Is(Object) {
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
