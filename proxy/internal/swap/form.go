package swap

import (
	"net/url"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// formWriter swaps in the values of key=value pairs, in a query or a body. The only separator is the ampersand.
//
// A body in which it swaps contains only characters that a form serializer leaves unescaped. A server that ignores the
// Content-Type therefore cannot read the body as JSON or XML. Each declared field occurs at most once.
type formWriter struct {
	nameBuffer
	kind    catalog.SurfaceKind
	key     []byte
	fields  []string  // the declared fields, each once
	loose   []string  // the loose names of fields
	lengths lengthSet // of loose, and of _charset_
	seen    []bool    // by index in fields: whether it has occurred
	value   bool      // after the equals sign
	only    bool      // the value so far is a single run
}

// charsetField is the field from which some servers read the charset of the other fields.
const charsetField = "_charset_"

// maxKey is the longest field name that can be declared, in bytes as written.
const maxKey = 3 * 128

func newFormWriter(x *requestRewrite, kind catalog.SurfaceKind) *formWriter {
	fields := x.listFields(kind)
	w := &formWriter{nameBuffer: nameBuffer{x: x}, kind: kind, fields: fields, seen: make([]bool, len(fields)), only: true}
	for _, f := range fields {
		w.loose = append(w.loose, toLooseName(url.QueryEscape(f)))
	}
	for _, name := range append(w.loose, charsetField) {
		w.lengths.addLength(len(name))
	}
	return w
}

func (w *formWriter) pushText(dst, src []byte) []byte {
	s := w.scanNames(src)
	at := 0
	for at < len(src) && w.bad == nil {
		if n := w.passText(src[at:s.plainUntil(at)]); n > 0 {
			dst, at = append(dst, src[at:at+n]...), at+n
			continue
		}
		dst, at = w.writeByte(dst, src[at]), at+1
	}
	return w.passThrough(dst, src[at:])
}

func (w *formWriter) writeByte(dst []byte, b byte) []byte {
	if len(w.escape) > 0 {
		if w.escape = append(w.escape, b); len(w.escape) < 3 && isHexDigit(b) {
			return dst
		}
		if !isHexDigit(b) { // not an escape
			held := len(w.escape) - 1
			dst = append(w.endRun(dst, false), w.escape[:held]...)
			w.noteKey(w.escape[:held]...)
			w.escape = w.escape[:0]
			if dst = w.failOrPassThrough(dst, errForm); w.bad != nil {
				return w.passThrough(dst, []byte{b})
			}
			return w.writeByte(dst, b)
		}
		// An escaped letter continues the word for the server, so the run is not a token name on its own.
		if text, err := url.PathUnescape(string(w.escape)); err == nil && isWord(text[0]) {
			dst = w.releaseRun(dst)
		} else {
			dst = w.endRun(dst, false)
		}
		dst = append(dst, w.escape...)
		w.noteKey(w.escape...)
		w.escape = w.escape[:0]
		return dst
	}
	switch {
	case b == '&':
		return append(w.endPair(dst), b)
	case b == '=' && !w.value:
		dst = append(w.endKey(w.endRun(dst, false)), b)
		w.value, w.only = true, true
		return dst
	case b == '%':
		w.only, w.escape = false, append(w.escape, b)
		return dst
	case isWord(b):
		w.noteKey(b)
		return w.addByte(dst, b)
	case !isBare(b):
		if dst = w.failOrPassThrough(dst, errForm); w.bad != nil {
			return w.passThrough(dst, []byte{b})
		}
	}
	dst = w.endRun(dst, false)
	w.only = false
	w.noteKey(b)
	return append(dst, b)
}

// isBare reports whether a byte other than a letter, digit or underscore may occur unescaped in a form. Characters with
// a meaning in JSON or XML, line breaks and other separators may not.
func isBare(b byte) bool { return strings.IndexByte("*-.+~!$(),:/?@=[]|^", b) >= 0 }

// failOrPassThrough stops swapping in a body: the rest passes unchanged. If something was swapped already, the body
// fails.
func (w *formWriter) failOrPassThrough(dst []byte, why *Ambiguity) []byte {
	if w.kind == catalog.SurfaceQuery {
		return dst // a query cannot be read as another syntax
	}
	if w.stopSwapping(why); w.bad == nil {
		return dst
	}
	return w.endPassThrough(dst)
}

// endKey checks the name of a field in a body.
func (w *formWriter) endKey(dst []byte) []byte {
	if w.kind != catalog.SurfaceBody {
		return dst
	}
	key := toLooseName(string(w.key))
	switch {
	case len(w.key) > maxKey:
		return w.failOrPassThrough(dst, errForm)
	// A _charset_ field makes some servers decode the other fields with another charset.
	case key == charsetField:
		return w.failOrPassThrough(dst, errFormSet)
	}
	for i, f := range w.loose {
		if !canBeSameName(key, f) {
			continue
		}
		if w.seen[i] {
			return w.failOrPassThrough(dst, errFormKeys)
		}
		w.seen[i] = true
	}
	return dst
}

// noteKey collects the bytes of a key, at most maxKey+1.
func (w *formWriter) noteKey(b ...byte) {
	if !w.value && len(w.key) <= maxKey {
		w.key = append(w.key, b...)
	}
}

// endRun ends a run. whole means that the run is the whole value.
func (w *formWriter) endRun(dst []byte, whole bool) []byte {
	if !w.value {
		return w.endKeyRun(dst, requestSpot{kind: w.kind})
	}
	at := requestSpot{w.kind, "", whole}
	if w.hasName() {
		// A key that is longer than any declared key, or that cannot be decoded, matches no field.
		if key, err := url.QueryUnescape(string(w.key)); err == nil && len(w.key) <= maxKey {
			at.field = key
		}
	}
	return w.swapRun(dst, at, escapeForm)
}

// endPair ends a key=value pair.
func (w *formWriter) endPair(dst []byte) []byte {
	dst = append(w.endRun(dst, w.only), w.escape...)
	// An escape that is cut off by the end of the pair is read differently by parsers.
	if len(w.escape) > 0 {
		w.escape = w.escape[:0]
		dst = w.failOrPassThrough(dst, errForm)
	}
	if !w.value && w.bad == nil {
		dst = w.endKey(dst)
	}
	// The next pair begins with a key.
	w.value, w.key = false, w.key[:0]
	return dst
}

func (w *formWriter) finishText(dst []byte) []byte {
	if w.bad == nil {
		dst = w.endPair(dst)
	}
	if w.bad != nil {
		return w.endPassThrough(dst)
	}
	w.held = false
	return dst
}

// escapeForm writes a value. It writes a space as %20, because not every parser reads a plus sign as a space.
func escapeForm(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// listFields lists the fields that the credentials of the exchange declare for a kind of surface, each once.
func (x *requestRewrite) listFields(kind catalog.SurfaceKind) []string {
	var out []string
	for _, c := range x.o.Allowed {
		for _, s := range c.Surfaces {
			if s.Kind == kind && s.Field != "" && !slices.Contains(out, s.Field) {
				out = append(out, s.Field)
			}
		}
	}
	return out
}

// toLooseName returns a field's name as lenient parsers read it: in lower case, cut at a NUL, without leading spaces.
// Dots and spaces become underscores.
func toLooseName(raw string) string {
	if strings.IndexFunc(raw, func(r rune) bool { return r != '_' && r != '-' && (r < 'a' || r > 'z') }) < 0 {
		return raw // faster, and most names are like this
	}
	s := raw
	if plain, err := url.QueryUnescape(raw); err == nil {
		s = plain
	}
	s, _, _ = strings.Cut(strings.ToLower(s), "\x00")
	return underscores.Replace(strings.TrimLeft(s, " \t\r\n\v\f"))
}

var underscores = strings.NewReplacer(".", "_", " ", "_")

// canBeSameName reports whether a parser may take a loose name for a declared loose name. Brackets make a name a list
// or a map.
func canBeSameName(loose, declared string) bool {
	if !strings.Contains(declared, "[") {
		loose, _, _ = strings.Cut(loose, "[")
	}
	return loose == declared
}

func isHexDigit(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'f'
}

// swapQuery swaps token names in the values of parameters.
func (x *requestRewrite) swapQuery() error {
	u := x.req.URL
	if !x.s.parts.Contains(u.RawQuery) {
		return nil
	}
	before := u.RawQuery
	w := newFormWriter(x, catalog.SurfaceQuery)
	u.RawQuery = string(w.finishText(w.pushText(nil, []byte(before))))
	//defence:one-reading permits
	if !w.swapped {
		return nil
	}
	if canBeginQuery(u.EscapedPath(), "?") {
		return errPathQuery // nginx would merge it with the query of this request
	}
	times := make([]int, len(w.fields))
	// Some servers also split a query at semicolons, so that they could find the declared parameter twice.
	for pair := range strings.FieldsFuncSeq(before, func(r rune) bool { return r == '&' || r == ';' }) {
		key, _, _ := strings.Cut(pair, "=")
		if key = toLooseName(key); key == charsetField {
			return errFormSet
		}
		for i, f := range w.loose {
			if canBeSameName(key, f) {
				times[i]++
			}
		}
	}
	for i, f := range w.fields {
		if times[i] > 1 && x.report.hasSwapOn(catalog.Surface{Kind: catalog.SurfaceQuery, Field: f}) {
			return errQueryKeys
		}
	}
	return nil
}
