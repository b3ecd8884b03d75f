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
	nameBuffer
	lines      bool       // one value on each line
	guessed    bool       // chosen by the first byte, not by the type
	undeclared *Ambiguity // why no declared field is swapped, or nil
	expect     expectState
	levels     []jsonLevel
	fields     [][]string
	top        []fieldMatch // every declared field, with no key read
	topKeys    lengthSet
	scalar     jsonScalar
	text       []byte // the key being read, decoded, at most maxKey bytes
	rune       runeState
	in         bool // in a string
	key        bool // in a string that is a key
	only       bool // the string so far is a single run
}

// expectState is the token that may come next outside strings, besides white space.
type expectState uint8

const (
	expectValue expectState = iota
	expectValueOrEnd
	expectKey
	expectKeyOrEnd
	expectColon
	expectMore    // a comma, or the end of the object or array
	expectNothing // only white space, or the value of the next line
)

// jsonLevel is an open object or array.
type jsonLevel struct {
	object bool
	inner  []fieldMatch // the declared fields whose keys match up to here: the candidates of the enclosing level
	seen   uint64       // a bit for each declared field whose key has occurred here
	value  []fieldMatch // the declared fields that match up to the next value of an object
	keys   lengthSet    // of the keys that continue one of inner
}

// fieldMatch is a declared field and the number of its keys that were read.
type fieldMatch struct{ field, keys int }

const (
	maxLevels = 64
	maxFields = 64 // of one exchange; seen has a bit for each
)

func newJSONWriter(x *requestRewrite, lines bool) *jsonWriter {
	w := &jsonWriter{nameBuffer: nameBuffer{x: x}, lines: lines, fields: x.listKeyPaths()}
	w.top = make([]fieldMatch, 0, len(w.fields))
	for i := range w.fields {
		w.top = append(w.top, fieldMatch{field: i})
	}
	w.levels = make([]jsonLevel, 0, 4)
	w.topKeys = w.keyLengths(w.top)
	return w
}

// listKeyPaths lists the declared fields of bodies, each as a list of keys. A field with dots counts twice: as a path
// of keys, and as a single key at the top level.
func (x *requestRewrite) listKeyPaths() [][]string {
	names := x.listFields(catalog.SurfaceBody)
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

func (w *jsonWriter) pushText(dst, src []byte) []byte {
	s := w.scanNames(src)
	at := 0
	for at < len(src) && w.bad == nil {
		if n := w.passText(src[at:s.plainUntil(at)]); n > 0 {
			dst, at = append(dst, src[at:at+n]...), at+n
			continue
		}
		if w.in {
			dst = w.handleString(dst, src[at])
		} else {
			dst = w.handleOutside(dst, src[at])
		}
		at++
	}
	return w.passThrough(dst, src[at:])
}

func (w *jsonWriter) finishText(dst []byte) []byte {
	if w.bad == nil && (w.in || !w.canEnd()) {
		dst = w.failOrPassThrough(dst, errJSON)
	}
	if w.bad != nil {
		return w.endPassThrough(dst)
	}
	w.held = false
	return w.swapRun(dst, requestSpot{kind: catalog.SurfaceBody}, nil)
}

// canEnd reports whether the body may end at this point.
func (w *jsonWriter) canEnd() bool {
	return len(w.levels) == 0 && (w.expect == expectNothing && w.scalar.endScalar() || w.expect == expectValue && w.lines)
}

// failOrPassThrough stops swapping: the rest passes unchanged. If something was swapped already, the body fails.
func (w *jsonWriter) failOrPassThrough(dst []byte, why *Ambiguity) []byte {
	w.stopSwapping(why)
	// Only a guessed kind may be plain text, in which an ambiguity of JSON does not matter.
	w.lenient = w.guessed
	if w.bad == nil {
		return dst
	}
	dst = append(w.endPassThrough(dst), w.escape...)
	// The bytes of a half-read escape were held back and must leave too.
	w.escape = w.escape[:0]
	return dst
}

func (w *jsonWriter) handleString(dst []byte, b byte) []byte {
	if len(w.escape) > 0 {
		return w.handleEscape(dst, b)
	}
	// RFC 8259, section 7, forbids unescaped control characters; lenient parsers accept or drop them.
	if !w.rune.addByte(b) || b < ' ' {
		if dst = w.failOrPassThrough(dst, errJSON); w.bad != nil {
			return w.passThrough(dst, []byte{b})
		}
	}
	switch {
	case b == '\\':
		w.only, w.escape = false, append(w.escape, b)
		return dst
	case b == '"':
		dst = w.endRun(dst, w.only)
		if dst = w.closeString(dst); w.bad != nil {
			return append(dst, b)
		}
	case isWord(b):
		w.noteKey(b)
		return w.addByte(dst, b)
	default:
		dst = w.endRun(dst, false)
		w.only = false
		w.noteKey(b)
		// A server that reads the body as a form would begin a second field here. For JSON the escape is the same character.
		if isSeparator(b) {
			return fmt.Appendf(dst, `\u%04x`, b)
		}
	}
	return append(dst, b)
}

// isSeparator reports whether form parsers may end a field at a byte.
func isSeparator(b byte) bool { return b == '&' || b == ';' }

// noteKey collects the bytes of a key, decoded, at most about maxKey.
func (w *jsonWriter) noteKey(b ...byte) {
	if w.key && len(w.text) <= maxKey {
		w.text = append(w.text, b...)
	}
}

// handleEscape handles one byte after a backslash.
func (w *jsonWriter) handleEscape(dst []byte, b byte) []byte {
	w.escape = append(w.escape, b)
	r, done, ok := decodeEscape(w.escape)
	if !done {
		return dst
	}
	full, whole := w.rune.addEscaped(r)
	if !ok || !whole {
		if dst = w.failOrPassThrough(dst, errJSON); w.bad != nil {
			return dst
		}
	}
	// An escaped letter continues the word for the server, so the run is not a token name on its own.
	if r < utf8.RuneSelf && isWord(byte(r)) {
		dst = w.releaseRun(dst)
	} else {
		dst = w.endRun(dst, false)
	}
	if full >= 0 {
		w.noteKey(utf8.AppendRune(nil, full)...)
	}
	dst = append(dst, w.escape...)
	w.escape = w.escape[:0]
	return dst
}

// endRun ends a run in a string. whole means that the run is the whole string.
func (w *jsonWriter) endRun(dst []byte, whole bool) []byte {
	if w.key {
		return w.endKeyRun(dst, requestSpot{kind: catalog.SurfaceBody})
	}
	at := requestSpot{catalog.SurfaceBody, "", whole}
	if w.hasName() {
		at.field = w.declaredField()
		// Without a type the server may read the body as a form, where this field does not exist.
		if w.undeclared != nil && at.field != "" && !w.x.isDeclaredInBody(string(w.word), true) &&
			w.x.isDeclaredInBody(string(w.word), false) {
			if w.stopSwapping(w.undeclared); w.bad != nil {
				return w.endPassThrough(dst)
			}
		}
	}
	return w.swapRun(dst, at, escapeJSON)
}

// declaredField returns the name of the declared field whose value is being read, or "".
func (w *jsonWriter) declaredField() string {
	for _, m := range w.listCandidates() {
		if path := w.fields[m.field]; m.keys == len(path) {
			return strings.Join(path, ".")
		}
	}
	return ""
}

func (w *jsonWriter) closeString(dst []byte) []byte {
	w.in, w.only = false, false
	if !w.key {
		w.endValue()
		return dst
	}
	w.expect = expectColon
	if len(w.levels) == 0 {
		return dst
	}
	// The comparison of the first byte only saves time. See reference for the attack.
	if len(w.fields) > 0 && len(w.text) > 0 && w.text[0] == referenceKey[0] && canBeSameKey(string(w.text), referenceKey) {
		if dst = w.failOrPassThrough(dst, errJSONRef); w.bad != nil {
			return dst
		}
	}
	l := &w.levels[len(w.levels)-1]
	l.value = l.value[:0]
	for _, m := range l.inner {
		path := w.fields[m.field]
		if m.keys == len(path) || !canBeSameKey(string(w.text), path[m.keys]) {
			continue
		}
		// Parsers keep the first or the last of two equal keys. alike covers those that fold case or cut at a NUL.
		if l.seen&(1<<m.field) != 0 {
			if dst = w.failOrPassThrough(dst, errJSONKeys); w.bad != nil {
				return dst
			}
		}
		// The key counts as seen in any spelling, but only the exact spelling leads to the field.
		l.seen |= 1 << m.field
		if string(w.text) == path[m.keys] {
			l.value = append(l.value, fieldMatch{m.field, m.keys + 1})
		}
	}
	return dst
}

// referenceKey is a key with which some parsers replace its object by another value of the document. Fastjson replaces
// any value, Json.NET any object. The value of a declared field would then also be the value of another field.
const referenceKey = "$ref"

// canBeSameKey reports whether a parser may treat two keys as the same. Some fold case, some cut a string at a NUL.
func canBeSameKey(a, b string) bool {
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
		case c < 0x20 || isSeparator(c):
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
