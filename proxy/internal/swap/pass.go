package swap

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Most of a body passes unchanged. The functions here say how many bytes do, and leave a writer in the state in which
// it would be had it taken them one by one: what they do not know for certain, they leave to that. So a body that
// arrives byte by byte is rewritten without them.

// class is what a byte is to the writers.
type class uint8

const (
	classWord  class = 1 << iota // isWord
	classUpper                   // isUpper
	classJSON                    // may end what passes within a JSON string
	classForm                    // may end what passes within a form's value
	classKey                     // may end what passes within a form's key
)

var classes = func() (t [256]class) {
	for i := range t {
		b := byte(i)
		if isWord(b) {
			t[i] |= classWord
		}
		if isUpper(b) {
			t[i] |= classUpper
		}
		if b < ' ' || b >= utf8.RuneSelf || b == '"' || b == '\\' || separates(b) {
			t[i] |= classJSON
		}
		if !isWord(b) && !bare(b) {
			t[i] |= classForm
		}
		if t[i]&classForm != 0 || b == '=' || b == '+' {
			t[i] |= classKey
		}
	}
	return t
}()

// pass returns how many bytes pass up to one of a class, or up to a run that is a name or not complete yet.
func (w *words) pass(src []byte, until class) int {
	if len(w.word) > 0 || len(w.escape) > 0 {
		return 0
	}
	for n := 0; n < len(src); n++ {
		c := classes[src[n]]
		switch {
		case c&(classWord|until) == 0:
			w.long = false
		case c&until != 0:
			return n
		case w.long || c&classUpper == 0:
			w.long = true
		default:
			end := n + 1
			for end < len(src) && classes[src[end]]&classWord != 0 {
				end++
			}
			if end == len(src) || w.x.s.isName(src[n:end]) {
				return n
			}
			n, w.long = end-1, true
		}
	}
	return len(src)
}

// isName reports whether a run is a token name.
func (s *Swapper) isName(run []byte) bool {
	return len(run) <= maxName && s.lengths&(1<<(len(run)-1)) != 0 && s.byText[string(run)] == string(run)
}

// pass returns how many bytes pass unchanged.
func (w *jsonWriter) pass(src []byte) int {
	n := 0
	for n < len(src) {
		before := n
		if w.in {
			n += w.passString(src[n:])
		} else {
			n += w.passOutside(src[n:])
		}
		if n == before {
			break
		}
	}
	return n
}

// passString passes within a string that is a value, and its closing quote.
func (w *jsonWriter) passString(src []byte) int {
	if w.key || len(w.word) > 0 || len(w.escape) > 0 || w.rune.open() {
		return 0
	}
	n := 0
	for n < len(src) {
		if plain := w.words.pass(src[n:], classJSON); plain > 0 {
			n += plain
			w.only = false
			continue
		}
		switch b := src[n]; {
		case b == '"':
			w.long, w.in, w.only = false, false, false
			w.value()
			return n + 1
		case b == '\\' && n+1 < len(src) && strings.IndexByte(`"\/bfnrt`, src[n+1]) >= 0:
			n += 2
		case b >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(src[n:])
			if r == utf8.RuneError && size < 2 {
				return n
			}
			n += size
		default:
			return n
		}
		w.long, w.only = false, false
	}
	return n
}

// passOutside passes outside strings, and takes the quote that begins a value.
func (w *jsonWriter) passOutside(src []byte) int {
	if len(w.word) > 0 || w.long || w.scalar.on {
		return 0
	}
	for n := 0; n < len(src); n++ {
		value := w.expect == expectValue || w.expect == expectValueOrEnd
		switch b := src[n]; {
		case b == ' ' || b == '\t' || !w.lines && (b == '\n' || b == '\r'):
		case b == ',' && w.expect == expectMore:
			w.next()
		case b == ':' && w.expect == expectColon:
			w.expect = expectValue
		case b == '"' && value:
			w.key, w.in, w.only, w.text, w.rune = false, true, true, w.text[:0], runeState{}
			return n + 1
		case b == '"' && (w.expect == expectKey || w.expect == expectKeyOrEnd):
			end := w.passKey(src[n+1:])
			if end == 0 {
				return n
			}
			n += end
		case (b == '{' || b == '[') && value && len(w.levels) < maxLevels:
			w.open(b == '{')
		case b == '}' && (w.expect == expectKeyOrEnd || w.expect == expectMore && w.inObject()),
			b == ']' && (w.expect == expectValueOrEnd || w.expect == expectMore && !w.inObject()):
			w.shut()
		default:
			size := 0
			if value {
				size = passScalar(src[n:])
			}
			if size == 0 {
				return n
			}
			w.value()
			n += size - 1
		}
	}
	return len(src)
}

// passKey returns the length of a key with its closing quote, if it has no escapes and is certainly no name and no
// declared key; else 0.
func (w *jsonWriter) passKey(src []byte) int {
	run := words{x: w.x}
	end := run.pass(src, classJSON)
	if end == len(src) || src[end] != '"' || len(w.levels) == 0 {
		return 0
	}
	l := &w.levels[len(w.levels)-1]
	for _, m := range l.inner {
		if path := w.fields[m.field]; m.keys < len(path) && (len(path[m.keys]) == end || !ascii(path[m.keys])) {
			return 0
		}
	}
	l.value = l.value[:0]
	w.key, w.only, w.text, w.rune = true, false, append(w.text[:0], src[:min(end, maxKey+1)]...), runeState{}
	w.expect = expectColon
	return end + 1
}

func ascii(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// passScalar returns the length of a number or literal that is complete, with a byte after it; else 0.
func passScalar(src []byte) int {
	var s scalar
	if !s.begin(src[0]) {
		return 0
	}
	for n := 1; n < len(src); n++ {
		if (s.state == numInt || s.state == numFraction) && '0' <= src[n] && src[n] <= '9' || s.next(src[n]) {
			continue
		}
		if classes[src[n]]&classWord != 0 || !s.whole() {
			return 0
		}
		return n
	}
	return 0
}

// pass returns how many bytes pass unchanged.
func (w *formWriter) pass(src []byte) int {
	n := 0
	for n < len(src) {
		before := n
		if w.value {
			n += w.passValue(src[n:])
		} else {
			n += w.passKey(src[n:])
		}
		if n == before {
			break
		}
	}
	return n
}

// passKey passes a key with its equals sign, if it has no escapes and is certainly no name and no declared key.
func (w *formWriter) passKey(src []byte) int {
	if len(w.key) > 0 || len(w.escape) > 0 {
		return 0
	}
	run := words{x: w.x}
	end := run.pass(src[:min(len(src), maxKey+1)], classKey)
	if end == len(src) || end > maxKey || src[end] != '=' || looseEqual(src[:end], "_charset_") {
		return 0
	}
	for _, f := range w.loose {
		if looseEqual(src[:end], f) {
			return 0
		}
	}
	w.key, w.value, w.only = append(w.key, src[:end]...), true, true
	return end + 1
}

// looseEqual reports whether a key without escapes may be a loose name.
func looseEqual(key []byte, declared string) bool {
	if n := bytes.IndexByte(key, '['); n >= 0 && !strings.Contains(declared, "[") {
		key = key[:n]
	}
	if len(key) != len(declared) {
		return false
	}
	for i, b := range key {
		if c := declared[i]; b|0x20 != c|0x20 && (b != '.' || c != '_') {
			return false
		}
	}
	return true
}

// passValue passes within a value, with its escapes, and the ampersand that ends it.
func (w *formWriter) passValue(src []byte) int {
	n := 0
	for n < len(src) {
		if plain := w.words.pass(src[n:], classForm); plain > 0 {
			n += plain
			w.only = false
			continue
		}
		if len(w.word) > 0 || len(w.escape) > 0 {
			break
		}
		if src[n] == '&' {
			w.long, w.value, w.key = false, false, w.key[:0]
			return n + 1
		}
		if src[n] != '%' || n+2 >= len(src) || !isHex(src[n+1]) || !isHex(src[n+2]) ||
			isWord(unhex(src[n+1])<<4|unhex(src[n+2])) {
			break
		}
		n += 3
		w.only, w.long = false, false
	}
	return n
}
