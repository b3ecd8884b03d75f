package graphql

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/cli/internal/document"
)

// parser reads the schema language. After an error it reads the end only.
type parser struct {
	text string
	at   int
	// token is the one at hand: a name, a number, one punctuator, or, if quoted is set, the value of a string. It is
	// empty at the end.
	token  string
	quoted bool
	start  int
	err    error
	schema *schema
}

// parse reads a file in the schema language.
func parse(text string) (*schema, error) {
	if !utf8.ValidString(text) {
		return nil, errors.New("bytes that are no UTF-8")
	}
	p := &parser{text: strings.TrimPrefix(text, "\ufeff"), schema: &schema{types: map[string]*definition{}}}
	p.next()
	for p.err == nil && (p.token != "" || p.quoted) {
		p.definition()
	}
	if p.err != nil {
		return nil, p.err
	}
	return p.schema, p.schema.roots()
}

func (p *parser) fail(want string) {
	if p.err == nil {
		found := p.token
		if found == "" {
			found = "the end"
		}
		line := 1 + strings.Count(p.text[:min(p.start, len(p.text))], "\n")
		p.err = fmt.Errorf("line %d: found %s; want %s", line, document.Line(found, 40), want)
	}
	p.token, p.quoted, p.at = "", false, len(p.text)
}

// next reads the next token.
func (p *parser) next() {
	p.quoted, p.token = false, ""
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n,#", p.text[p.at]) >= 0 {
		if p.text[p.at] != '#' {
			p.at++
			continue
		}
		end := strings.IndexAny(p.text[p.at:], "\r\n")
		if end < 0 {
			end = len(p.text) - p.at
		}
		p.at += end
	}
	p.start = p.at
	if p.at == len(p.text) {
		return
	}
	switch c := p.text[p.at]; {
	case letter(c):
		for p.at < len(p.text) && (letter(p.text[p.at]) || '0' <= p.text[p.at] && p.text[p.at] <= '9') {
			p.at++
		}
	case c == '-' || '0' <= c && c <= '9':
		for p.at < len(p.text) && strings.IndexByte("+-.eE0123456789", p.text[p.at]) >= 0 {
			p.at++
		}
	case strings.HasPrefix(p.text[p.at:], `"""`):
		p.block()
		return
	case c == '"':
		p.line()
		return
	case strings.HasPrefix(p.text[p.at:], "..."):
		p.at += len("...")
	case strings.IndexByte("!$&():=@[]{|}", c) >= 0:
		p.at++
	default:
		p.token = p.text[p.at : p.at+1]
		p.fail("the schema language of GraphQL")
		return
	}
	p.token = p.text[p.start:p.at]
}

// block reads a string between three quotes.
func (p *parser) block() {
	const mark = `"""`
	from := p.at + len(mark)
	for at := from; ; {
		end := strings.Index(p.text[at:], mark)
		if end < 0 {
			p.fail(`""" at the end of a text`)
			return
		}
		if at += end; p.text[at-1] != '\\' {
			p.token, p.quoted, p.at = strings.ReplaceAll(p.text[from:at], `\"""`, mark), true, at+len(mark)
			return
		}
		at += len(mark)
	}
}

// line reads a string of one line.
func (p *parser) line() {
	for at := p.at + 1; at < len(p.text); at++ {
		switch p.text[at] {
		case '\\':
			at++
		case '\n', '\r':
			p.fail(`" at the end of a text`)
			return
		case '"':
			raw := p.text[p.at : at+1]
			value, err := strconv.Unquote(strings.ReplaceAll(raw, `\/`, "/"))
			if err != nil {
				value = raw[1 : len(raw)-1]
			}
			p.token, p.quoted, p.at = value, true, at+1
			return
		}
	}
	p.fail(`" at the end of a text`)
}

// is reports whether the token is a punctuator or word.
func (p *parser) is(s string) bool { return !p.quoted && p.token == s }

// take reads a token if it is the one.
func (p *parser) take(s string) bool {
	if !p.is(s) {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(s string) {
	if !p.take(s) {
		p.fail(s)
	}
}

func (p *parser) name() string {
	s := p.token
	if p.quoted || !identifier(s) {
		p.fail("a name")
		return ""
	}
	p.next()
	return s
}

func (p *parser) description() string {
	s := ""
	if p.quoted {
		s = p.token
		p.next()
	}
	return s
}

func (p *parser) definition() {
	description := p.description()
	p.take("extend")
	kinds := map[string]string{"type": "object", "interface": "object", "input": "input", "enum": "enum", "union": "union",
		"scalar": "scalar"}
	word := p.token
	kind := kinds[word]
	switch {
	case p.quoted:
		p.fail("a definition")
	case kind != "":
		p.next()
		p.typeDefinition(kind, description)
	case word == "schema":
		p.next()
		p.roots()
	case word == "directive":
		p.next()
		p.directive()
	case word == "query" || word == "mutation" || word == "subscription" || word == "fragment" || word == "{":
		p.fail("a schema, not a request")
	default:
		p.fail("a definition of the schema language of GraphQL")
	}
}

func (p *parser) roots() {
	p.directives()
	if !p.take("{") {
		return
	}
	for p.err == nil && !p.is("}") {
		p.description()
		kind := p.name()
		p.expect(":")
		name := p.name()
		switch kind {
		case "query":
			p.schema.query = name
		case "mutation":
			p.schema.mutation = name
		case "subscription":
			p.schema.subscription = name
		}
	}
	p.expect("}")
}

func (p *parser) directive() {
	p.expect("@")
	p.name()
	if p.is("(") {
		p.fields("(", ")", true)
	}
	p.take("repeatable")
	p.expect("on")
	p.take("|")
	p.name()
	for p.take("|") {
		p.name()
	}
}

func (p *parser) typeDefinition(kind, description string) {
	name := p.name()
	if p.err != nil {
		return
	}
	d, err := p.schema.add(name, kind)
	if err != nil {
		p.fail(err.Error())
		return
	}
	if description != "" {
		d.description = description
	}
	if p.take("implements") {
		p.take("&")
		p.name()
		for p.take("&") || p.err == nil && !p.quoted && identifier(p.token) && !p.starts() {
			p.name()
		}
	}
	p.directives()
	switch {
	case kind == "union":
		if p.take("=") {
			p.take("|")
			p.member(d)
			for p.take("|") {
				p.member(d)
			}
		}
	case kind == "enum":
		if p.take("{") {
			for p.err == nil && !p.is("}") {
				p.description()
				p.member(d)
			}
			p.expect("}")
		}
	case kind != "scalar" && p.is("{"):
		for _, f := range p.fields("{", "}", kind == "input") {
			d.put(f)
		}
	}
}

// starts reports whether the token begins a definition: interfaces of old schemas stand side by side without &.
func (p *parser) starts() bool {
	switch p.token {
	case "type", "interface", "input", "enum", "union", "scalar", "schema", "directive", "extend":
		return true
	}
	return false
}

func (p *parser) member(d *definition) {
	name := p.name()
	deprecated := p.directives()
	if p.schema.size++; p.schema.size > maxSize {
		p.err = errLarge
		p.fail("")
	}
	if !deprecated && p.err == nil {
		d.members = append(d.members, name)
	}
}

// fields reads fields, or arguments.
func (p *parser) fields(open, end string, input bool) []field {
	var out []field
	p.expect(open)
	for p.err == nil && !p.is(end) {
		f := field{input: input, description: p.description(), name: p.name()}
		if !input && p.is("(") {
			f.arguments = p.fields("(", ")", true)
		}
		p.expect(":")
		f.typ = p.reference()
		if p.take("=") {
			f.preset = true
			p.value()
		}
		f.deprecated = p.directives()
		if p.schema.size++; p.schema.size > maxSize {
			p.err = errLarge
			p.fail("")
		}
		out = append(out, f)
	}
	p.expect(end)
	return out
}

// reference reads a type.
func (p *parser) reference() string {
	lists := 0
	for p.take("[") {
		if lists++; lists > maxWrapped {
			p.fail(fmt.Sprintf("a type of at most %d lists", maxWrapped))
			return ""
		}
	}
	out := strings.Repeat("[", lists) + p.name()
	for {
		if p.take("!") {
			out += "!"
		}
		if lists == 0 || p.err != nil {
			return out
		}
		lists--
		p.expect("]")
		out += "]"
	}
}

// value reads over a value, however deep it is.
func (p *parser) value() {
	depth := 0
	for p.err == nil {
		switch {
		case p.is("[") || p.is("{"):
			depth++
		case p.is("]") || p.is("}"):
			depth--
		case p.token == "" && !p.quoted:
			p.fail("a value")
			return
		case p.is("$"): // a variable, which no schema has
			p.fail("a value")
			return
		}
		p.next()
		if depth <= 0 {
			return
		}
	}
}

// directives reads over directives, and reports whether one says that something is deprecated.
func (p *parser) directives() (deprecated bool) {
	for p.take("@") {
		deprecated = p.name() == "deprecated" || deprecated
		if !p.take("(") {
			continue
		}
		for p.err == nil && !p.is(")") {
			p.name()
			p.expect(":")
			p.value()
		}
		p.expect(")")
	}
	return deprecated
}
