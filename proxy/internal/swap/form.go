package swap

import (
	"net/url"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

// formWriter swaps in the values of key=value pairs, in a query or a body. The only separator is the ampersand.
//
// A body in which it swaps contains only characters that a form serializer leaves unescaped. A server that ignores the
// Content-Type therefore cannot read the body as JSON or XML. Each declared field occurs at most once.
type formWriter struct {
	nameBuffer
	scan   formScanner
	kind   catalog.SurfaceKind
	fields []string // the declared fields, each once
	loose  []string // the loose names of fields
	seen   []bool   // by index in fields: whether it has occurred
}

// charsetField is the field from which some servers read the charset of the other fields.
const charsetField = "_charset_"

// maxKey is the longest field name that can be declared, in bytes as written.
const maxKey = 3 * 128

func newFormWriter(x *requestRewrite, kind catalog.SurfaceKind) *formWriter {
	fields := x.listFields(kind)
	w := &formWriter{nameBuffer: nameBuffer{x: x}, kind: kind, fields: fields, seen: make([]bool, len(fields))}
	for _, f := range fields {
		w.loose = append(w.loose, toLooseName(url.QueryEscape(f)))
	}
	// A query cannot be read as another syntax.
	w.scan = formScanner{lenient: kind == catalog.SurfaceQuery, firsts: w.listFirstBytes()}
	return w
}

// listFirstBytes returns the bytes with which a declared field, or charsetField, may begin as toLooseName reads it. It
// returns nil if any key may be a declared field.
func (w *formWriter) listFirstBytes() *[256]bool {
	out := new([256]bool)
	// The first character may be escaped, after a space, or one that becomes an underscore.
	for _, b := range []byte("%+ .") {
		out[b] = true
	}
	for _, name := range slices.Concat(w.loose, w.fields, []string{charsetField}) {
		if name == "" {
			return nil
		}
		// A letter counts in both cases. The additional byte of a sign is harmless.
		out[name[0]|0x20], out[name[0]&^0x20], out[name[0]] = true, true, true
	}
	return out
}

func (w *formWriter) pushText(dst, src []byte) []byte {
	names := w.scanNames(src)
	at, from := 0, 0 // src[from:at] is unchanged, and not yet in dst
	for at < len(src) && w.bad == nil {
		// A text without names passes unchanged, as it would byte by byte.
		plain := names.plainUntil(at)
		if plain == at || len(w.word) > 0 || len(w.escape) > 0 {
			dst = w.writeByte(append(dst, src[from:at]...), src[at:at+1])
			at++
			from = at
			continue
		}
		for at < plain && w.bad == nil {
			n, e := w.scan.scan(src[at:plain])
			at += n
			if e == badForm {
				return w.endForm(append(dst, src[from:at]...), src[at:])
			}
			w.handleEvent(e)
		}
		w.long = multisearch.IsWordByte(src[at-1])
	}
	return w.passThrough(append(dst, src[from:at]...), src[at:])
}

// writeByte writes a byte. It holds back a run that may be a name, and the escape after the run.
func (w *formWriter) writeByte(dst, src []byte) []byte {
	b, isValue, inEscape, begin := src[0], w.scan.isValue, w.scan.left > 0, w.scan.begin
	_, e := w.scan.scan(src)
	if inEscape && multisearch.ParseHexDigit(b) < 0 { // not an escape
		inEscape = false
		dst = append(w.endRun(dst, isValue, false), w.escape...)
		w.escape = w.escape[:0]
	}
	switch {
	case e == badForm:
		return w.endForm(dst, src)
	case w.scan.left > 0:
		w.escape = append(w.escape, b)
		return dst
	case inEscape:
		// An escaped letter continues the word for the server, so the run is not a token name on its own.
		if multisearch.IsWordByte(w.scan.char) {
			dst = w.releaseRun(dst)
		} else {
			dst = w.endRun(dst, isValue, false)
		}
		dst = append(append(dst, w.escape...), b)
		w.escape = w.escape[:0]
		return dst
	case multisearch.IsWordByte(b):
		return w.addByte(dst, b)
	}
	isWhole := b == '&' && w.scan.offset-begin == len(w.word)+len("&")
	dst = w.endRun(dst, isValue, isWhole)
	w.handleEvent(e)
	return append(dst, b)
}

// endForm stops swapping at a mistake. rest is the text that begins with the wrong byte. At the end of the body it is
// empty.
func (w *formWriter) endForm(dst, rest []byte) []byte {
	w.stopSwapping(errForm)
	return w.passThrough(w.endPassThrough(dst), rest)
}

// handleEvent stops swapping at a key that makes the form ambiguous.
func (w *formWriter) handleEvent(e formEvent) {
	if e == endOfKey && w.kind == catalog.SurfaceBody {
		if why := w.checkKey(); why != nil {
			w.stopSwapping(why)
		}
	}
}

// checkKey returns why a key makes the form ambiguous, or nil.
func (w *formWriter) checkKey() *Ambiguity {
	key := toLooseName(string(w.scan.key))
	// A _charset_ field makes some servers decode the other fields with another charset.
	if key == charsetField {
		return errFormSet
	}
	for i, f := range w.loose {
		if !canBeSameName(key, f) {
			continue
		}
		if w.seen[i] {
			return errFormKeys
		}
		w.seen[i] = true
	}
	return nil
}

// endRun ends a run in a key or a value. whole means that the run is the whole value.
func (w *formWriter) endRun(dst []byte, isValue, whole bool) []byte {
	if !isValue {
		return w.endKeyRun(dst, requestSpot{kind: w.kind})
	}
	at := requestSpot{w.kind, "", whole}
	if w.hasName() {
		// A key that is longer than any declared key, or that cannot be decoded, matches no field.
		if key, err := url.QueryUnescape(string(w.scan.key)); err == nil && len(w.scan.key) <= maxKey {
			at.field = key
		}
	}
	return w.swapRun(dst, at, escapeForm)
}

func (w *formWriter) finishText(dst []byte) []byte {
	if w.bad == nil {
		isWhole := w.scan.offset-w.scan.begin == len(w.word)
		dst = append(w.endRun(dst, w.scan.isValue, isWhole), w.escape...)
		w.escape = w.escape[:0]
		if e := w.scan.end(); e == badForm {
			dst = w.endForm(dst, nil)
		} else {
			w.handleEvent(e)
		}
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
