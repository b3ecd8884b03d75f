package typed

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// kind is what a value of JavaScript is.
type kind int

const (
	word   kind = iota // any other value, as text
	str                // a string
	choice             // a string of some that are allowed
	number
	object
	array
)

// value is a value as code has it.
type value struct {
	kind   kind
	text   string // of a word, string or number
	fields []field
	items  []*value
	open   bool // an object that may have any properties
}

type field struct {
	name     string
	value    *value
	required bool
}

func (v *value) code() string {
	switch v.kind {
	case str, choice:
		text, _ := json.Marshal(v.text) // it is UTF-8
		return string(text)
	case object:
		parts := make([]string, len(v.fields))
		for i, f := range v.fields {
			name, _ := json.Marshal(f.name) // as above
			parts[i] = string(name) + ": " + f.value.code()
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case array:
		parts := make([]string, len(v.items))
		for i, item := range v.items {
			parts[i] = item.code()
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return v.text
}

// each visits a value and all that it holds.
func (v *value) each(f func(*value)) {
	f(v)
	for _, x := range v.fields {
		x.value.each(f)
	}
	for _, x := range v.items {
		x.each(f)
	}
}

// ts is a parsed type of TypeScript.
type ts struct {
	kind    string // name, literal, object, array, union, both
	text    string
	parts   []*ts
	members []member
	open    bool
}

type member struct {
	name     string
	optional bool
	ts       *ts
}

// parser reads what operations.jsonl has of TypeScript.
type parser struct {
	text string
	at   int
}

func parseType(text string) *ts {
	if text == "" {
		return &ts{kind: "name", text: "undefined"}
	}
	p := &parser{text: text}
	t := p.union()
	if p.space(); p.at != len(p.text) {
		panic(fmt.Sprintf("not read: %q of %q", p.text[min(p.at, len(p.text)):], text))
	}
	return t
}

func (p *parser) space() {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
}

func (p *parser) take(s string) bool {
	p.space()
	if strings.HasPrefix(p.text[p.at:], s) {
		p.at += len(s)
		return true
	}
	return false
}

func (p *parser) union() *ts {
	return p.joined("union", "|", func() *ts { return p.joined("both", "&", p.postfix) })
}

func (p *parser) joined(kind, with string, part func() *ts) *ts {
	p.take(with)
	first := part()
	if !p.take(with) {
		return first
	}
	out := &ts{kind: kind, parts: []*ts{first, part()}}
	for p.take(with) {
		out.parts = append(out.parts, part())
	}
	return out
}

func (p *parser) postfix() *ts {
	t := p.primary()
	for p.take("[]") {
		t = &ts{kind: "array", parts: []*ts{t}}
	}
	return t
}

func (p *parser) primary() *ts {
	if p.space(); p.at >= len(p.text) {
		panic(fmt.Sprintf("no type at the end of %q", p.text))
	}
	switch {
	case p.take("("):
		t := p.union()
		p.take(")")
		return t
	case p.take("["): // a tuple
		t := &ts{kind: "tuple"}
		for !p.take("]") && p.at < len(p.text) {
			p.take("...")
			t.parts = append(t.parts, p.union())
			p.take(",")
		}
		return t
	case p.take("{"):
		t := &ts{kind: "object"}
		for !p.take("}") && p.at < len(p.text) {
			if p.take("[") { // an index
				end := strings.Index(p.text[p.at:], "]")
				if end < 0 {
					panic(fmt.Sprintf("no end of %q", p.text))
				}
				p.at += end + 1
				p.take(":")
				p.union()
				t.open = true
			} else {
				m := member{name: p.word()}
				m.optional = p.take("?")
				p.take(":")
				m.ts = p.union()
				t.members = append(t.members, m)
			}
			p.take(";")
		}
		return t
	case p.text[p.at] == '"':
		return &ts{kind: "literal", text: p.word()}
	}
	name := p.word()
	if p.take("<") {
		for depth := 1; depth > 0 && p.at < len(p.text); p.at++ {
			switch p.text[p.at] {
			case '<':
				depth++
			case '>':
				depth--
			}
		}
		return &ts{kind: "object", open: true}
	}
	return &ts{kind: "name", text: name}
}

// word is a name, or what a string says.
func (p *parser) word() string {
	p.space()
	from := p.at
	if p.at < len(p.text) && p.text[p.at] == '"' {
		for p.at++; p.at < len(p.text) && p.text[p.at] != '"'; p.at++ {
			if p.text[p.at] == '\\' {
				p.at++
			}
		}
		p.at++
		var out string
		if json.Unmarshal([]byte(p.text[from:p.at]), &out) != nil {
			return "?"
		}
		return out
	}
	for p.at < len(p.text) && !strings.ContainsRune(" ;:,?|&()[]{}<>", rune(p.text[p.at])) {
		p.at++
	}
	if p.at == from {
		p.at++ // nothing that is expected
	}
	return p.text[from:p.at]
}

// resolve is the type that a name stands for.
func (d document) resolve(t *ts) *ts {
	for range 20 {
		text, ok := d.types[t.text]
		if t.kind != "name" || !ok {
			break
		}
		t = parseType(text)
	}
	return t
}

// fields are the properties of an object, also of one that is put together. It is nil for anything else.
func (d document) fields(t *ts) (members []member, open bool) {
	t = d.resolve(t)
	switch t.kind {
	case "object":
		return t.members, t.open
	case "both":
		for _, part := range t.parts {
			m, o := d.fields(part)
			members, open = append(members, m...), open || o
		}
	}
	return members, open
}

// sample makes a value of a type. It is nil if there is none without end.
func (d document) sample(random *rand.Rand, t *ts, depth int) *value {
	t = d.resolve(t)
	if depth > 8 {
		return nil
	}
	switch t.kind {
	case "literal":
		return &value{kind: choice, text: t.text}
	case "array":
		item := d.sample(random, t.parts[0], depth+1)
		if item == nil {
			return &value{kind: array}
		}
		return &value{kind: array, items: []*value{item}}
	case "tuple":
		out := &value{kind: array}
		for _, part := range t.parts {
			if v := d.sample(random, part, depth+1); v != nil {
				out.items = append(out.items, v)
			}
		}
		return out
	case "union":
		from := random.IntN(len(t.parts))
		for i := range t.parts {
			part := t.parts[(from+i)%len(t.parts)]
			if part.kind == "name" && part.text == "null" {
				continue
			}
			if v := d.sample(random, part, depth+1); v != nil {
				return v
			}
		}
		return nil
	case "object", "both":
		members, open := d.fields(t)
		out := &value{kind: object, open: open}
		extra := 2
		for _, m := range members {
			if m.optional && (extra == 0 || depth > 2) || slices.ContainsFunc(out.fields, func(f field) bool { return f.name == m.name }) {
				continue
			}
			v := d.sample(random, m.ts, depth+1)
			switch {
			case v == nil && !m.optional:
				return nil
			case v == nil:
				continue
			case m.optional:
				extra--
			}
			out.fields = append(out.fields, field{m.name, v, !m.optional})
		}
		return out
	}
	switch t.text {
	case "string":
		return &value{kind: str, text: "text"}
	case "number":
		return &value{kind: number, text: "7"}
	case "unknown":
		return &value{kind: word, text: "{}"}
	case "Blob":
		return &value{kind: word, text: `new Blob(["x"])`}
	case "never":
		return nil
	}
	if strings.ContainsAny(t.text[:1], "-0123456789") {
		return &value{kind: word, text: t.text}
	}
	if t.text == "boolean" {
		return &value{kind: word, text: "true"}
	}
	return &value{kind: word, text: map[string]string{"true": "true", "false": "false", "null": "null"}[t.text]}
}

func (v *value) String() string { return fmt.Sprint(v.code()) }
