package tree

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
)

// parser reads JSON.
type parser struct {
	text  string
	at    int
	depth int
	count int
	skip  Skip
	// stack holds the members of the lists and maps that are open.
	stack []Member
	slab  []Node
	err   error
}

func parseJSON(text string, skip Skip) (*Node, error) {
	p := &parser{text: text, skip: skip}
	n := p.value("", true)
	p.space()
	if p.err == nil && p.at < len(p.text) {
		p.fail("text after the end of the document")
	}
	if p.err != nil {
		return nil, p.err
	}
	return n, nil
}

// node makes a node. Many share one allocation.
func (p *parser) node(k Kind, text string) *Node {
	if p.count++; p.count > MaxValues && p.err == nil {
		p.err = ErrTooMany
	}
	if len(p.slab) == 0 {
		p.slab = make([]Node, 512)
	}
	n := &p.slab[0]
	p.slab = p.slab[1:]
	n.Kind, n.Text = k, text
	return n
}

func (p *parser) fail(found string) {
	if p.err == nil {
		line := 1 + strings.Count(p.text[:p.at], "\n")
		column := p.at - strings.LastIndexByte(p.text[:p.at], '\n')
		p.err = fmt.Errorf("line %d, column %d: %s", line, column, found)
	}
}

func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\r', '\n':
			p.at++
		default:
			return
		}
	}
}

// peek is the next byte after spaces, or 0.
func (p *parser) peek() byte {
	p.space()
	if p.at == len(p.text) || p.err != nil {
		return 0
	}
	return p.text[p.at]
}

// value reads one value, below the map with the key around. It is nil if it is not to be kept.
func (p *parser) value(around string, keep bool) *Node {
	switch c := p.peek(); {
	case c == '{', c == '[':
		return p.list(c, around, keep)
	case c == '"':
		s := p.str(keep)
		if !keep {
			return nil
		}
		return p.node(String, s)
	case c == '-' || '0' <= c && c <= '9':
		start := p.at
		for p.at < len(p.text) && strings.IndexByte("+-.eE0123456789", p.text[p.at]) >= 0 {
			p.at++
		}
		if !keep {
			return nil
		}
		return p.node(Number, p.text[start:p.at])
	}
	for _, word := range []struct {
		text string
		kind Kind
	}{{"true", Bool}, {"false", Bool}, {"null", Null}} {
		if strings.HasPrefix(p.text[p.at:], word.text) {
			p.at += len(word.text)
			if !keep {
				return nil
			}
			return p.node(word.kind, word.text)
		}
	}
	if p.at == len(p.text) {
		p.fail("the document is cut off")
	} else {
		p.fail("no value")
	}
	return nil
}

// list reads a list or a map.
func (p *parser) list(open byte, around string, keep bool) *Node {
	if p.depth++; p.depth > MaxDepth && p.err == nil {
		p.err = errTooDeep
	}
	p.at++
	kind, end := List, byte(']')
	if open == '{' {
		kind, end = Map, '}'
	}
	base := len(p.stack)
	empty := p.peek() == end
	if empty {
		p.at++
	}
	for more := !empty; more && p.err == nil; {
		p.member(kind, around, keep)
		c := p.peek()
		if more = c == ','; !more && c != end {
			p.fail("neither a comma nor the end of a list or object")
		}
		p.at++
	}
	p.depth--
	if p.err != nil || !keep {
		return nil
	}
	n := p.node(kind, "")
	n.Members = append([]Member(nil), p.stack[base:]...)
	clear(p.stack[base:])
	p.stack = p.stack[:base]
	return n
}

// member reads one member of a list or map.
func (p *parser) member(kind Kind, around string, keep bool) {
	m := Member{}
	below := around
	if kind == Map {
		if p.peek() != '"' {
			p.fail("no key in double quotes")
			return
		}
		m.Key = p.str(true)
		below = m.Key
		if p.peek() != ':' {
			p.fail("no colon after a key")
			return
		}
		p.at++
		keep = keep && (p.skip == nil || !p.skip(around, m.Key))
	}
	if m.Node = p.value(below, keep); m.Node != nil {
		p.stack = append(p.stack, m)
	}
}

// str reads a string, which shares memory with the text if nothing in it is escaped.
func (p *parser) str(keep bool) string {
	p.at++
	start := p.at
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return p.text[start : p.at-1]
		case c == '\\':
			return p.escaped(start, keep)
		case c < ' ':
			p.fail("a control character in a string")
			return ""
		}
		p.at++
	}
	p.fail("a string without an end")
	return ""
}

// escaped reads a string on from its first backslash.
func (p *parser) escaped(start int, keep bool) string {
	var b strings.Builder
	b.WriteString(p.text[start:p.at])
	for p.at < len(p.text) {
		c := p.text[p.at]
		switch {
		case c == '"':
			p.at++
			return b.String()
		case c == '\\':
			r, ok := p.escape()
			if !ok {
				p.fail("an escape that JSON does not have")
				return ""
			}
			if keep {
				b.WriteRune(r)
			}
			continue
		case c < ' ':
			p.fail("a control character in a string")
			return ""
		case keep:
			b.WriteByte(c)
		}
		p.at++
	}
	p.fail("a string without an end")
	return ""
}

// escape reads one escape. Half of a surrogate pair becomes U+FFFD.
func (p *parser) escape() (rune, bool) {
	if p.at+1 >= len(p.text) {
		return 0, false
	}
	c := p.text[p.at+1]
	if c != 'u' {
		p.at += 2
		i := strings.IndexByte(`"\/bfnrt`, c)
		if i < 0 {
			return 0, false
		}
		return rune("\"\\/\b\f\n\r\t"[i]), true
	}
	r, ok := p.unit()
	if !ok || !utf16.IsSurrogate(r) {
		return r, ok
	}
	if strings.HasPrefix(p.text[p.at:], `\u`) {
		at := p.at
		if second, ok := p.unit(); ok {
			if pair := utf16.DecodeRune(r, second); pair != 0xfffd {
				return pair, true
			}
		}
		p.at = at
	}
	return 0xfffd, true
}

// unit reads \u and four digits.
func (p *parser) unit() (rune, bool) {
	if p.at+6 > len(p.text) {
		return 0, false
	}
	n, err := strconv.ParseUint(p.text[p.at+2:p.at+6], 16, 16)
	p.at += 6
	return rune(n), err == nil
}
