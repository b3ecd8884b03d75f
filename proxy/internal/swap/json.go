package swap

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

// jsonWriter swaps in JSON strings that are values. The keys on the way to a field, joined by dots, name the field;
// arrays do not count.
//
// It swaps only in JSON by RFC 8259, which lenient and strict parsers read in the same way. A declared key may occur
// once in an object. It escapes an ampersand or a semicolon in a string: a server that reads every body as a form then
// finds one field, whose name begins with a brace.
type jsonWriter struct {
	nameBuffer
	scan       jsonread.Scanner
	guessed    bool       // chosen by the first byte, not by the type
	undeclared *Ambiguity // why no declared field is swapped, or nil
	levels     []jsonLevel
	fields     [][]string
	top        []fieldMatch // every declared field, with no key read
}

// jsonLevel is an open object or array.
type jsonLevel struct {
	object bool
	inner  []fieldMatch // the declared fields whose keys match up to here; not empty
	seen   uint64       // a bit for each declared field whose key has occurred here
	value  []fieldMatch // the declared fields that match up to the value of the key at the offset key
	key    int
}

// fieldMatch is a declared field and the number of its keys that were read.
type fieldMatch struct{ field, keys int }

const (
	maxLevels = 64
	maxFields = 64 // of one exchange; seen has a bit for each
)

// quietEvents are the events that jsonWriter does not need.
const quietEvents = jsonread.BeginKey | jsonread.BeginString | jsonread.EndString | jsonread.BeginNumber |
	jsonread.EndNumber | jsonread.BeginWord | jsonread.EndWord

func newJSONWriter(x *requestRewrite, lines bool) *jsonWriter {
	w := &jsonWriter{nameBuffer: nameBuffer{x: x}, fields: x.listKeyPaths()}
	w.scan = jsonread.Scanner{
		MaxDepth: maxLevels, MaxText: maxKey, Quiet: quietEvents, Keys: w.listFirstBytes(), Unicode: true, Lines: lines,
	}
	w.top = make([]fieldMatch, 0, len(w.fields))
	for i := range w.fields {
		w.top = append(w.top, fieldMatch{field: i})
	}
	w.levels = make([]jsonLevel, 0, 4)
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

// listFirstBytes returns the bytes with which a key may begin that canBeSameKey takes for a key of a declared field, or
// for referenceKey. Only ASCII without escapes counts.
func (w *jsonWriter) listFirstBytes() *[256]bool {
	out := new([256]bool)
	out[referenceKey[0]] = true
	for _, path := range w.fields {
		for _, key := range path {
			if key == "" || key[0] >= utf8.RuneSelf {
				return nil // an ASCII letter may be the other case of the first character
			}
			out[key[0]|0x20], out[key[0]&^0x20] = true, true
		}
	}
	return out
}

func (w *jsonWriter) pushText(dst, src []byte) []byte {
	names, ends := w.scanNames(src), multisearch.ScanBytes(src, separators)
	at, from := 0, 0 // src[from:at] is unchanged, and not yet in dst
	for at < len(src) && w.bad == nil {
		// A text without names and separators passes unchanged, as it would byte by byte.
		plain := min(names.plainUntil(at), ends.FindFrom(at))
		if plain == at || len(w.word) > 0 || len(w.escape) > 0 {
			dst = w.writeByte(append(dst, src[from:at]...), src[at:at+1])
			at++
			from = at
			continue
		}
		for at < plain && w.bad == nil {
			n, e, err := w.scan.Scan(src[at:plain])
			at += n
			if err != nil {
				return w.endJSON(append(dst, src[from:at]...), src[at:], err)
			}
			w.handleEvent(e)
		}
		w.long = w.scan.IsInText() && multisearch.IsWordByte(src[at-1])
	}
	return w.passThrough(append(dst, src[from:at]...), src[at:])
}

// writeByte writes a byte. It holds back a run that may be a name, and the escape after the run.
func (w *jsonWriter) writeByte(dst, src []byte) []byte {
	b, inText, inEscape := src[0], w.scan.IsInText(), w.scan.IsInEscape()
	_, e, err := w.scan.Scan(src)
	switch inString := w.scan.IsInText(); {
	case err != nil:
		return w.endJSON(dst, src, err)
	case w.scan.IsInEscape():
		w.escape = append(w.escape, b)
		return dst
	case inEscape:
		// An escaped letter continues the word for the server, so the run is not a token name on its own.
		if r := w.scan.Escaped(); r < utf8.RuneSelf && multisearch.IsWordByte(byte(r)) {
			dst = w.releaseRun(dst)
		} else {
			dst = w.endRun(dst, false)
		}
		dst = append(append(dst, w.escape...), b)
		w.escape = w.escape[:0]
		return dst
	case inText && inString && multisearch.IsWordByte(b):
		return w.addByte(dst, b)
	case inText:
		isWhole := !inString && w.scan.Offset()-w.scan.StringOffset() == len(w.word)+len(`"`)
		dst = w.endRun(dst, isWhole)
		// A server that reads the body as a form would begin a second field at a separator. For JSON the escape is the
		// same character.
		switch b {
		case '&':
			return append(dst, `\u0026`...)
		case ';':
			return append(dst, `\u003b`...)
		}
	}
	w.handleEvent(e)
	return append(dst, b)
}

// separators are the bytes at which form parsers may end a field.
const separators = "&;"

func isSeparator(b byte) bool { return strings.IndexByte(separators, b) >= 0 }

// handleEvent handles the events that are not quiet.
func (w *jsonWriter) handleEvent(e jsonread.ScanEvent) {
	switch e {
	case jsonread.EndKey:
		w.matchKey(w.scan.Text())
	case jsonread.BeginObject, jsonread.BeginList:
		w.openLevel(e == jsonread.BeginObject)
	case jsonread.EndObject, jsonread.EndList:
		w.levels = w.levels[:len(w.levels)-1]
	case jsonread.EndLine:
		// A complete line is read on its own, so its swaps need not wait for later lines.
		w.held = false
	}
}

func (w *jsonWriter) finishText(dst []byte) []byte {
	if w.bad == nil {
		if _, err := w.scan.End(); err != nil {
			dst = w.endJSON(dst, nil, err)
		}
	}
	if w.bad != nil {
		return w.endPassThrough(dst)
	}
	w.held = false
	return dst
}

// scanReasons are the reasons for the mistakes that the scanner finds.
var scanReasons = [...]*Ambiguity{
	jsonread.BadGrammar: errJSON,
	jsonread.TooDeep:    errJSONDeep,
	jsonread.MoreText:   errJSONMore,
	jsonread.BadLine:    errJSONLines,
}

// endJSON stops swapping at a mistake. rest is the text that begins with the wrong byte. At the end of the body it is
// empty.
func (w *jsonWriter) endJSON(dst, rest []byte, err error) []byte {
	why := errJSON
	if e, ok := errors.AsType[*jsonread.Error](err); ok {
		why = scanReasons[e.Kind]
	}
	w.stopAt(why)
	dst = w.endPassThrough(dst)
	// The bytes of an escape were held back. The wrong byte in an escape is not a part of the word after it.
	if w.scan.IsInEscape() && len(rest) > 0 {
		w.escape, rest = append(w.escape, rest[0]), rest[1:]
	}
	dst = append(dst, w.escape...)
	w.escape = w.escape[:0]
	return w.passThrough(dst, rest)
}

// stopAt stops swapping: the rest passes unchanged. If something was swapped already, the body fails.
func (w *jsonWriter) stopAt(why *Ambiguity) {
	w.stopSwapping(why)
	// Only a guessed kind may be plain text, in which an ambiguity of JSON does not matter.
	w.lenient = w.guessed
}

// endRun ends a run in a string. whole means that the run is the whole string.
func (w *jsonWriter) endRun(dst []byte, whole bool) []byte {
	if w.scan.IsInKey() {
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

// listCandidates returns the declared fields whose keys match up to the next value.
func (w *jsonWriter) listCandidates() []fieldMatch {
	n := len(w.levels)
	switch {
	case w.scan.IsMuted():
		return nil
	case n == 0:
		return w.top
	case !w.levels[n-1].object:
		return w.levels[n-1].inner // arrays do not count
	case w.levels[n-1].key != w.scan.KeyOffset():
		return nil // the last key matches no field
	}
	return w.levels[n-1].value
}

// openLevel opens an object or array. If no declared field can be in it, only its references matter.
func (w *jsonWriter) openLevel(object bool) {
	matches, n := w.listCandidates(), len(w.levels)
	if len(matches) == 0 {
		w.scan.Mute()
		return
	}
	if n < cap(w.levels) {
		w.levels = w.levels[:n+1] // reuses its slices
	} else {
		w.levels = append(w.levels, jsonLevel{})
	}
	l := &w.levels[n]
	l.object, l.seen, l.inner, l.value, l.key = object, 0, matches, l.value[:0], 0
}

// matchKey finds the declared fields to which a key leads.
func (w *jsonWriter) matchKey(key []byte) {
	// See referenceKey for the attack.
	if len(w.fields) > 0 && canBeSameKey(key, referenceKey) {
		if w.stopAt(errJSONRef); w.bad != nil {
			return
		}
	}
	if w.scan.IsMuted() {
		return
	}
	l := &w.levels[len(w.levels)-1]
	l.value, l.key = l.value[:0], w.scan.KeyOffset()
	for _, m := range l.inner {
		path := w.fields[m.field]
		if m.keys == len(path) || !canBeSameKey(key, path[m.keys]) {
			continue
		}
		// Parsers keep the first or the last of two equal keys. canBeSameKey covers those that fold case or cut at a NUL.
		if l.seen&(1<<m.field) != 0 {
			if w.stopAt(errJSONKeys); w.bad != nil {
				return
			}
		}
		// The key counts as seen in any spelling, but only the exact spelling leads to the field.
		l.seen |= 1 << m.field
		if string(key) == path[m.keys] {
			l.value = append(l.value, fieldMatch{m.field, m.keys + 1})
		}
	}
}

// referenceKey is a key with which some parsers replace its object by another value of the document. Fastjson replaces
// any value, Json.NET any object. The value of a declared field would then also be the value of another field.
const referenceKey = "$ref"

// canBeSameKey reports whether a parser may treat a key as a declared one. Some fold case, some cut a string at a NUL.
func canBeSameKey(key []byte, declared string) bool {
	key, _, _ = bytes.Cut(key, []byte{0})
	return strings.EqualFold(string(key), declared)
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
