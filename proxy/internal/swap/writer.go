package swap

import (
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// words holds back a run of letters, digits and underscores until its end is seen, up to the length of a name, and the
// escape that follows it, which may be one more such character.
type words struct {
	x      *rewrite
	word   []byte
	escape []byte // the escape being read
	long   bool   // the run is not a name and was released

	bad     *Ambiguity // why nothing more is swapped; the rest passes unchanged
	err     *Ambiguity // why the body must not be sent
	swapped bool
	held    bool // something was swapped in that may still turn out to be ambiguous
	lenient bool // a body that is bad may be plain text
}

// fault implements writer.
func (w *words) fault() error {
	switch {
	case w.x.failed != nil:
		return w.x.failed
	case w.err == nil:
		return nil
	}
	return w.err
}

// holding implements writer.
func (w *words) holding() bool { return w.held }

// spoils ends swapping.
func (w *words) spoils(why *Ambiguity) {
	//defence:one-reading permits
	if w.bad != nil {
		return
	}
	if w.bad = why; w.swapped && w.err == nil {
		w.err = why
	}
}

// lax passes text on unchanged, and searches it for names.
func (w *words) lax(dst, src []byte) []byte {
	s := w.scan(src)
	for at := 0; at < len(src); {
		if n := w.pass(src[at:s.until(at)]); n > 0 {
			dst, at = append(dst, src[at:at+n]...), at+n
			continue
		}
		if b := src[at]; isWord(b) {
			dst = w.add(dst, b)
		} else {
			dst = append(w.endLax(dst), b)
		}
		at++
	}
	return dst
}

// endLax ends a run in an ambiguous body. A name that is declared for bodies makes the body one that must not be sent,
// unless it is declared for any place in them and the body may be plain text.
func (w *words) endLax(dst []byte) []byte {
	if w.named() {
		switch name := string(w.word); {
		case w.lenient && w.x.inBody(name, true):
			return w.end(dst, spot{kind: catalog.SurfaceBody}, nil)
		case w.x.inBody(name, false):
			w.err = w.bad
		default:
			w.x.reportNames(name, CodeUndeclared, spot{kind: catalog.SurfaceBody})
		}
	}
	dst = append(dst, w.word...)
	w.word, w.long = w.word[:0], false
	return dst
}

// inBody reports whether a token name is declared for a field of bodies or, with anywhere, for any place in them.
func (x *rewrite) inBody(name string, anywhere bool) bool {
	return slices.ContainsFunc(x.o.Allowed, func(c catalog.Credential) bool {
		return c.Name == name && slices.ContainsFunc(c.Surfaces, func(s catalog.Surface) bool {
			return s.Kind == catalog.SurfaceBody && (s.Field == "" || !anywhere)
		})
	})
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
	return w.spoil(dst) // a name begins with a capital
}

// spoil releases a run that cannot be a name.
func (w *words) spoil(dst []byte) []byte {
	dst = append(dst, w.word...)
	w.word, w.long = w.word[:0], true
	return dst
}

// named reports whether the run so far is a token name.
func (w *words) named() bool {
	return !w.long && len(w.word) > 0 && isUpper(w.word[0]) && w.x.s.byText[string(w.word)] == string(w.word)
}

func isUpper(b byte) bool { return 'A' <= b && b <= 'Z' }

// end ends a run at a spot: a name is swapped if that is allowed, its value written through escape.
func (w *words) end(dst []byte, at spot, escape func(string) string) []byte {
	word, named := w.word, w.named()
	w.word, w.long = w.word[:0], false
	if named {
		if v, ok := w.x.use(string(word), at); ok {
			if escape != nil {
				v = escape(v)
			}
			w.swapped, w.held = true, true
			return append(dst, v...)
		}
	}
	return append(dst, word...)
}

// endKey ends a run in the name of a field, where nothing is swapped.
func (w *words) endKey(dst []byte, at spot) []byte {
	word, named := w.word, w.named()
	w.word, w.long = w.word[:0], false
	if named {
		w.x.reportNames(string(word), CodeInside, at)
	}
	return append(dst, word...)
}

// isWord reports whether a byte may be part of a name, or makes a name next to it part of a longer word.
func isWord(b byte) bool {
	return 'a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' || b == '_'
}

// textWriter swaps in plain text. field is the name of the multipart part.
type textWriter struct {
	words
	field string
	coded func(string) string // nil: as it is
	only  bool                // nothing but one run so far
}

func (w *textWriter) push(dst, src []byte) []byte {
	s := w.scan(src)
	for at := 0; at < len(src); {
		if n := w.pass(src[at:s.until(at)]); n > 0 {
			dst, at = append(dst, src[at:at+n]...), at+n
			w.only = false
			continue
		}
		if b := src[at]; isWord(b) {
			dst = w.add(dst, b)
		} else {
			w.only = false
			dst = append(w.end(dst, spot{catalog.SurfaceBody, w.field, false}, w.coded), b)
		}
		at++
	}
	return dst
}

func (w *textWriter) finish(dst []byte) []byte {
	return w.end(dst, spot{catalog.SurfaceBody, w.field, w.only}, w.coded)
}

// holding implements writer: text cannot turn out to be ambiguous.
func (w *textWriter) holding() bool { return false }

// xmlWriter swaps in XML whose declaration, if any, names a common charset, because a parser decodes what follows by
// it.
type xmlWriter struct {
	textWriter
	head    []byte
	decided bool
}

// maxDeclaration is how long an XML declaration may be, in bytes.
const maxDeclaration = 256

func (w *xmlWriter) push(dst, src []byte) []byte {
	if !w.decided {
		w.head = append(w.head, src[:min(len(src), maxDeclaration-len(w.head))]...)
		w.decide()
	}
	if w.bad != nil {
		return w.lax(dst, src)
	}
	return w.textWriter.push(dst, src)
}

func (w *xmlWriter) finish(dst []byte) []byte {
	if w.bad != nil {
		return w.endLax(dst)
	}
	return w.textWriter.finish(dst)
}

// decide checks the declaration, as far as it has been read.
func (w *xmlWriter) decide() {
	const begin = "<?xml"
	text := strings.ToLower(strings.TrimLeft(strings.TrimPrefix(string(w.head), "\ufeff"), " \t\r\n"))
	declaration, _, ended := strings.Cut(text, "?>")
	full := len(w.head) == maxDeclaration
	switch {
	case !full && (len(text) < len(begin) || strings.HasPrefix(text, begin) && !ended):
		return
	case strings.HasPrefix(text, begin) && (!ended || !plainDeclaration(declaration)):
		w.spoils(errCharset)
	}
	w.decided = true
}

// plainDeclaration reports whether an XML declaration names no charset or a common one.
func plainDeclaration(s string) bool {
	_, s, named := strings.Cut(s, "encoding")
	if !named {
		return true
	}
	s = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(s), "="))
	charset, _, _ := strings.Cut(strings.TrimLeft(s, `"'`), s[:min(len(s), 1)])
	return isUTF8(charset) || isLatin(charset)
}

func escapeXML(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;").Replace(s)
}
