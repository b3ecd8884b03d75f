package swap

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// jsonWriter swaps in JSON strings that are values. The keys on the way to a field, joined by dots, name the field;
// arrays do not count. Names outside strings are swapped as in plain text.
//
// It swaps only in JSON by RFC 8259, which lenient and strict parsers read in the same way. A declared key may occur
// once in an object. It escapes an ampersand or a semicolon in a string: a server that reads every body as a form then
// finds one field, whose name begins with a brace.
type jsonWriter struct {
	words
	lines      bool       // one value on each line
	guessed    bool       // chosen by the first byte, not by the type
	undeclared *Ambiguity // why no declared field is swapped, or nil
	expect     expect
	levels     []level
	fields     [][]string
	top        []match // every declared field, with no key read
	topKeys    lengths
	scalar     scalar
	text       []byte // the key being read, decoded, at most maxKey bytes
	rune       runeState
	in         bool // in a string
	key        bool // in a string that is a key
	only       bool // the string so far is a single run
}

// expect is the token that may come next outside strings, besides white space.
type expect uint8

const (
	expectValue expect = iota
	expectValueOrEnd
	expectKey
	expectKeyOrEnd
	expectColon
	expectMore    // a comma, or the end of the object or array
	expectNothing // only white space, or the value of the next line
)

// level is an open object or array.
type level struct {
	object bool
	inner  []match // the declared fields whose keys match up to here: the candidates of the enclosing level
	seen   uint64  // a bit for each declared field whose key has occurred here
	value  []match // the declared fields that match up to the next value of an object
	keys   lengths // of the keys that continue one of inner
}

// match is a declared field and the number of its keys that were read.
type match struct{ field, keys int }

const (
	maxLevels = 64
	maxFields = 64 // of one exchange; seen has a bit for each
)

func newJSONWriter(x *rewrite, lines bool) *jsonWriter {
	w := &jsonWriter{words: words{x: x}, lines: lines, fields: x.fields()}
	w.top = make([]match, 0, len(w.fields))
	for i := range w.fields {
		w.top = append(w.top, match{field: i})
	}
	w.levels = make([]level, 0, 4)
	w.topKeys = w.keyLengths(w.top)
	return w
}

// fields lists the declared fields of bodies, each as a list of keys. A field with dots counts twice: as a path of
// keys, and as a single key at the top level.
func (x *rewrite) fields() [][]string {
	names := x.names(catalog.SurfaceBody)
	out := make([][]string, 0, len(names))
	for i, name := range names {
		out = append(out, names[i:i+1:i+1])
		if strings.Contains(name, ".") {
			out = append(out, strings.Split(name, "."))
		}
	}
	// level.seen has only maxFields bits.
	return out[:min(len(out), maxFields)]
}

func (w *jsonWriter) push(dst, src []byte) []byte {
	s := w.scan(src)
	at := 0
	for at < len(src) && w.bad == nil {
		if n := w.pass(src[at:s.until(at)]); n > 0 {
			dst, at = append(dst, src[at:at+n]...), at+n
			continue
		}
		if w.in {
			dst = w.inString(dst, src[at])
		} else {
			dst = w.outside(dst, src[at])
		}
		at++
	}
	return w.lax(dst, src[at:])
}

func (w *jsonWriter) finish(dst []byte) []byte {
	if w.bad == nil && (w.in || !w.ended()) {
		dst = w.spoilt(dst, errJSON)
	}
	if w.bad != nil {
		return w.endLax(dst)
	}
	w.held = false
	return w.end(dst, spot{kind: catalog.SurfaceBody}, nil)
}

// ended reports whether the body may end at this point.
func (w *jsonWriter) ended() bool {
	return len(w.levels) == 0 && (w.expect == expectNothing && w.scalar.whole() || w.expect == expectValue && w.lines)
}

// spoilt stops swapping: the rest passes unchanged. If something was swapped already, the body fails.
func (w *jsonWriter) spoilt(dst []byte, why *Ambiguity) []byte {
	w.spoils(why)
	// Only a guessed kind may be plain text, in which an ambiguity of JSON does not matter.
	w.lenient = w.guessed
	if w.bad == nil {
		return dst
	}
	dst = append(w.endLax(dst), w.escape...)
	// The bytes of a half-read escape were held back and must leave too.
	w.escape = w.escape[:0]
	return dst
}

// inString handles one byte of a string.
func (w *jsonWriter) inString(dst []byte, b byte) []byte {
	if len(w.escape) > 0 {
		return w.inEscape(dst, b)
	}
	// RFC 8259, section 7, forbids unescaped control characters; lenient parsers accept or drop them.
	if !w.rune.next(b) || b < ' ' {
		if dst = w.spoilt(dst, errJSON); w.bad != nil {
			return w.lax(dst, []byte{b})
		}
	}
	switch {
	case b == '\\':
		w.only, w.escape = false, append(w.escape, b)
		return dst
	case b == '"':
		dst = w.run(dst, w.only)
		if dst = w.closeString(dst); w.bad != nil {
			return append(dst, b)
		}
	case isWord(b):
		w.note(b)
		return w.add(dst, b)
	default:
		dst = w.run(dst, false)
		w.only = false
		w.note(b)
		if separates(b) {
			return fmt.Appendf(dst, `\u%04x`, b)
		}
	}
	return append(dst, b)
}

// separates reports whether form parsers may end a field at a byte.
func separates(b byte) bool { return b == '&' || b == ';' }

// note collects the bytes of a key, decoded, at most about maxKey.
func (w *jsonWriter) note(b ...byte) {
	if w.key && len(w.text) <= maxKey {
		w.text = append(w.text, b...)
	}
}

// inEscape handles one byte after a backslash.
func (w *jsonWriter) inEscape(dst []byte, b byte) []byte {
	w.escape = append(w.escape, b)
	r, done, ok := decodeEscape(w.escape)
	if !done {
		return dst
	}
	full, whole := w.rune.escaped(r)
	if !ok || !whole {
		if dst = w.spoilt(dst, errJSON); w.bad != nil {
			return dst
		}
	}
	// An escaped letter continues the word for the server, so the run is not a token name on its own.
	if r < utf8.RuneSelf && isWord(byte(r)) {
		dst = w.spoil(dst)
	} else {
		dst = w.run(dst, false)
	}
	if full >= 0 {
		w.note(utf8.AppendRune(nil, full)...)
	}
	dst = append(dst, w.escape...)
	w.escape = w.escape[:0]
	return dst
}

// run ends a run in a string. whole means that the run is the whole string.
func (w *jsonWriter) run(dst []byte, whole bool) []byte {
	if w.key {
		return w.endKey(dst, spot{kind: catalog.SurfaceBody})
	}
	at := spot{catalog.SurfaceBody, "", whole}
	if w.named() {
		at.field = w.field()
		// Without a type the server may read the body as a form, where this field does not exist.
		if w.undeclared != nil && at.field != "" && !w.x.inBody(string(w.word), true) && w.x.inBody(string(w.word), false) {
			if w.spoils(w.undeclared); w.bad != nil {
				return w.endLax(dst)
			}
		}
	}
	return w.end(dst, at, escapeJSON)
}

// field returns the name of the declared field whose value is being read, or "".
func (w *jsonWriter) field() string {
	for _, m := range w.candidates() {
		if path := w.fields[m.field]; m.keys == len(path) {
			return strings.Join(path, ".")
		}
	}
	return ""
}

func (w *jsonWriter) closeString(dst []byte) []byte {
	w.in, w.only = false, false
	if !w.key {
		w.value()
		return dst
	}
	w.expect = expectColon
	if len(w.levels) == 0 {
		return dst
	}
	// The comparison of the first byte only saves time. See reference for the attack.
	if len(w.fields) > 0 && len(w.text) > 0 && w.text[0] == reference[0] && alike(string(w.text), reference) {
		if dst = w.spoilt(dst, errJSONRef); w.bad != nil {
			return dst
		}
	}
	l := &w.levels[len(w.levels)-1]
	l.value = l.value[:0]
	for _, m := range l.inner {
		path := w.fields[m.field]
		if m.keys == len(path) || !alike(string(w.text), path[m.keys]) {
			continue
		}
		// Parsers keep the first or the last of two equal keys. alike covers those that fold case or cut at a NUL.
		if l.seen&(1<<m.field) != 0 {
			if dst = w.spoilt(dst, errJSONKeys); w.bad != nil {
				return dst
			}
		}
		// The key counts as seen in any spelling, but only the exact spelling leads to the field.
		l.seen |= 1 << m.field
		if string(w.text) == path[m.keys] {
			l.value = append(l.value, match{m.field, m.keys + 1})
		}
	}
	return dst
}

// reference is a key with which some parsers replace its object by another value of the document. Fastjson replaces any
// value, Json.NET any object. The value of a declared field would then also be the value of another field.
const reference = "$ref"

// alike reports whether a parser may treat two keys as the same. Some fold case, some cut a string at a NUL.
func alike(a, b string) bool {
	a, _, _ = strings.Cut(a, "\x00")
	return strings.EqualFold(a, b)
}

// escapeJSON returns a value as it is written between quotes.
func escapeJSON(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || separates(c):
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
