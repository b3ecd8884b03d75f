package swap

import (
	"io"
	"mime"
	"net/url"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// kind is how a body writes strings.
type kind uint8

const (
	kindRaw kind = iota
	kindXML
	kindJSON
	kindForm
)

// kindOf tells a body's kind by its type, and where that says nothing by how it begins.
func kindOf(contentType string, head []byte) kind {
	t, _, _ := mime.ParseMediaType(contentType)
	switch {
	case t == "application/x-www-form-urlencoded":
		return kindForm
	case strings.HasSuffix(t, "/json") || strings.HasSuffix(t, "+json") || strings.HasSuffix(t, "ndjson"):
		return kindJSON
	case strings.HasSuffix(t, "/xml") || strings.HasSuffix(t, "+xml"):
		return kindXML
	case t == "" || t == "text/plain":
		if s := strings.TrimLeft(string(head), " \t\r\n"); s != "" && (s[0] == '{' || s[0] == '[') {
			return kindJSON
		}
	}
	return kindRaw
}

// writer rewrites text that comes in pieces. Both append to dst what is decided.
type writer interface {
	push(dst, src []byte) []byte
	finish(dst []byte) []byte
}

func (x *exchange) writer(k kind) writer {
	switch k {
	case kindJSON:
		return &jsonWriter{words: words{x: x}}
	case kindForm:
		return &formWriter{words: words{x: x}, kind: catalog.SurfaceBody, only: true}
	case kindXML:
		return &textWriter{words: words{x: x}, coded: escapeXML, only: true}
	}
	return &textWriter{words: words{x: x}, only: true}
}

// words holds back a run of letters, digits and underscores until its end is seen, at most as long as a name may be, and
// the escape that follows it, which may stand for one more of them.
type words struct {
	x      *exchange
	word   []byte
	escape []byte // what is known of an escape
	long   bool   // the run is no name and has left
}

const maxName = 64

// add appends a byte of a run.
func (w *words) add(dst []byte, b byte) []byte {
	if w.long {
		return append(dst, b)
	}
	if w.word = append(w.word, b); isUpper(w.word[0]) && len(w.word) <= maxName {
		return dst
	}
	return w.spoil(dst) // names begin with a capital
}

// spoil lets go of a run that cannot be a name.
func (w *words) spoil(dst []byte) []byte {
	dst = append(dst, w.word...)
	w.word, w.long = w.word[:0], true
	return dst
}

// named reports whether the run so far is a token name.
func (w *words) named() bool {
	return !w.long && len(w.word) > 0 && isUpper(w.word[0]) && w.x.s.byName[string(w.word)]
}

func isUpper(b byte) bool { return 'A' <= b && b <= 'Z' }

// end ends a run at a spot: a name is swapped if that is allowed, its value written as escape says.
func (w *words) end(dst []byte, at spot, escape func(string) string) []byte {
	word, named := w.word, w.named()
	w.word, w.long = w.word[:0], false
	if named {
		if v, ok := w.x.use(string(word), at); ok {
			if escape != nil {
				v = escape(v)
			}
			return append(dst, v...)
		}
	}
	return append(dst, word...)
}

// endKey ends a run in a field's name, which is never swapped.
func (w *words) endKey(dst []byte, at spot) []byte {
	word, named := w.word, w.named()
	w.word, w.long = w.word[:0], false
	if named {
		w.x.look(string(word), CodeInside, at)
	}
	return append(dst, word...)
}

// isWord reports whether a byte may be part of a name or next to one that is not meant.
func isWord(b byte) bool {
	return 'a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' || b == '_'
}

// textWriter swaps in plain text. field is the multipart part's name.
type textWriter struct {
	words
	field string
	coded func(string) string // nil: as it is
	only  bool                // nothing but one run so far
}

func (w *textWriter) push(dst, src []byte) []byte {
	for _, b := range src {
		if isWord(b) {
			dst = w.add(dst, b)
			continue
		}
		w.only = false
		dst = append(w.end(dst, spot{catalog.SurfaceBody, w.field, false}, w.coded), b)
	}
	return dst
}

func (w *textWriter) finish(dst []byte) []byte {
	return w.end(dst, spot{catalog.SurfaceBody, w.field, w.only}, w.coded)
}

func escapeXML(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;").Replace(s)
}

// formWriter swaps in values of key=value pairs, in a query or a body.
type formWriter struct {
	words
	kind  catalog.SurfaceKind
	key   []byte
	value bool // after the equals sign
	only  bool // nothing but one run so far
}

// maxKey is the longest field name that can be declared, in bytes as written.
const maxKey = 256

func (w *formWriter) push(dst, src []byte) []byte {
	for _, b := range src {
		dst = w.byte(dst, b)
	}
	return dst
}

func (w *formWriter) byte(dst []byte, b byte) []byte {
	if len(w.escape) > 0 {
		if w.escape = append(w.escape, b); len(w.escape) < 3 && isHex(b) {
			return dst
		}
		if !isHex(b) { // no escape
			held := len(w.escape) - 1
			dst = append(w.run(dst, false), w.escape[:held]...)
			w.note(w.escape[:held]...)
			w.escape = w.escape[:0]
			return w.byte(dst, b)
		}
		if text, err := url.PathUnescape(string(w.escape)); err == nil && isWord(text[0]) {
			dst = w.spoil(dst)
		} else {
			dst = w.run(dst, false)
		}
		dst = append(dst, w.escape...)
		w.note(w.escape...)
		w.escape = w.escape[:0]
		return dst
	}
	switch {
	case b == '&':
		return append(w.pair(dst), b)
	case b == '=' && !w.value:
		dst = append(w.run(dst, false), b)
		w.value, w.only = true, true
		return dst
	case b == '%':
		w.only, w.escape = false, append(w.escape, b)
		return dst
	case isWord(b):
		w.note(b)
		return w.add(dst, b)
	}
	dst = w.run(dst, false)
	w.only = false
	w.note(b)
	return append(dst, b)
}

// note keeps what belongs to a key.
func (w *formWriter) note(b ...byte) {
	if !w.value && len(w.key) <= maxKey {
		w.key = append(w.key, b...)
	}
}

// run ends a run.
func (w *formWriter) run(dst []byte, whole bool) []byte {
	if !w.value {
		return w.endKey(dst, spot{kind: w.kind})
	}
	at := spot{w.kind, "", whole}
	if w.named() {
		if key, err := url.QueryUnescape(string(w.key)); err == nil && len(w.key) <= maxKey {
			at.field = key
		}
	}
	return w.end(dst, at, url.QueryEscape)
}

// pair ends a pair.
func (w *formWriter) pair(dst []byte) []byte {
	dst = append(w.run(dst, w.only), w.escape...)
	w.escape = w.escape[:0]
	w.value, w.key = false, w.key[:0]
	return dst
}

func (w *formWriter) finish(dst []byte) []byte { return w.pair(dst) }

func isHex(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'f'
}

// rewriteReader reads through a writer.
type rewriteReader struct {
	src io.Reader
	w   writer
	in  [8 << 10]byte
	out []byte
	pos int
	err error
}

func (r *rewriteReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.pos == len(r.out) {
		if r.err != nil {
			return 0, r.err
		}
		n, err := r.src.Read(r.in[:])
		r.out, r.pos = r.w.push(r.out[:0], r.in[:n]), 0
		if r.err = err; err == io.EOF {
			r.out = r.w.finish(r.out)
		}
	}
	n := copy(p, r.out[r.pos:])
	r.pos += n
	return n, nil
}
