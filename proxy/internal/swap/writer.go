package swap

import (
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

// nameBuffer holds back a run of letters, digits and underscores, up to the length of a name, until it sees the end of
// the run. It also holds back the escape after the run, because the escape may stand for one more such character.
type nameBuffer struct {
	x      *requestRewrite
	word   []byte
	escape []byte // the escape being read
	long   bool   // the run is not a name and was released

	bad     *Ambiguity // why swapping has stopped; the rest passes unchanged
	err     *Ambiguity // why the body must not be sent
	swapped bool
	held    bool // a swap may still turn out to be ambiguous
	lenient bool // an ambiguous body may be plain text
}

// findFault implements writer.
func (w *nameBuffer) findFault() error {
	switch {
	case w.x.failed != nil:
		return w.x.failed
	case w.err == nil:
		return nil
	}
	return w.err
}

// isHolding implements writer.
func (w *nameBuffer) isHolding() bool { return w.held }

// stopSwapping stops swapping. If a name was swapped already, the body must not be sent.
func (w *nameBuffer) stopSwapping(why *Ambiguity) {
	//defence:one-reading permits
	if w.bad != nil {
		return
	}
	if w.bad = why; w.swapped && w.err == nil {
		w.err = why
	}
}

// passThrough passes text on unchanged, and searches it for names.
func (w *nameBuffer) passThrough(dst, src []byte) []byte {
	return w.scanRuns(dst, src, w.endPassThrough)
}

// scanRuns passes text on, and ends each run that may be a name with endRun.
func (w *nameBuffer) scanRuns(dst, src []byte, endRun func(dst []byte) []byte) []byte {
	s := w.scanNames(src)
	for at := 0; at < len(src); {
		if n := w.passPlain(src[at:s.plainUntil(at)]); n > 0 {
			dst, at = append(dst, src[at:at+n]...), at+n
			continue
		}
		if b := src[at]; multisearch.IsWordByte(b) {
			dst = w.addByte(dst, b)
		} else {
			dst = append(endRun(dst), b)
		}
		at++
	}
	return dst
}

// endPassThrough ends a run in an ambiguous body. A name that is declared for bodies makes the body fail. The exception
// is a body that may be plain text, with a name that is declared for any place in a body.
func (w *nameBuffer) endPassThrough(dst []byte) []byte {
	if w.hasName() {
		switch name := string(w.word); {
		case w.lenient && w.x.isDeclaredInBody(name, true):
			return w.swapRun(dst, requestSpot{kind: catalog.SurfaceBody}, nil)
		case w.x.isDeclaredInBody(name, false):
			w.err = w.bad
		default:
			w.x.reportNames(name, CodeUndeclared, requestSpot{kind: catalog.SurfaceBody})
		}
	}
	dst = append(dst, w.word...)
	w.word, w.long = w.word[:0], false
	return dst
}

// isDeclaredInBody reports whether a token name is declared for a field of bodies or, with anywhere, for any place in
// them.
func (x *requestRewrite) isDeclaredInBody(name string, anywhere bool) bool {
	return slices.ContainsFunc(x.o.Allowed, func(c catalog.Credential) bool {
		return c.Name == name && slices.ContainsFunc(c.Surfaces, func(s catalog.Surface) bool {
			return s.Kind == catalog.SurfaceBody && (s.Field == "" || !anywhere)
		})
	})
}

const maxName = 64

// addByte appends a byte to the run.
func (w *nameBuffer) addByte(dst []byte, b byte) []byte {
	if w.long {
		return append(dst, b)
	}
	if w.word = append(w.word, b); isUpper(w.word[0]) && len(w.word) <= maxName {
		return dst
	}
	// A token name begins with a capital and has at most maxName bytes.
	return w.releaseRun(dst)
}

// releaseRun releases a run that cannot be a name.
func (w *nameBuffer) releaseRun(dst []byte) []byte {
	dst = append(dst, w.word...)
	w.word, w.long = w.word[:0], true
	return dst
}

// hasName reports whether the run so far is a token name.
func (w *nameBuffer) hasName() bool {
	return !w.long && len(w.word) > 0 && isUpper(w.word[0]) && w.x.s.byText[string(w.word)] == string(w.word)
}

func isUpper(b byte) bool { return 'A' <= b && b <= 'Z' }

// swapRun ends a run at a spot. It swaps a name if that is allowed, and writes the value through escape.
func (w *nameBuffer) swapRun(dst []byte, at requestSpot, escape func(string) string) []byte {
	word, named := w.word, w.hasName()
	w.word, w.long = w.word[:0], false
	if named {
		if v, ok := w.x.useName(string(word), at); ok {
			if escape != nil {
				v = escape(v)
			}
			w.swapped, w.held = true, true
			return append(dst, v...)
		}
	}
	return append(dst, word...)
}

// endKeyRun ends a run in the name of a field, where names are only reported.
func (w *nameBuffer) endKeyRun(dst []byte, at requestSpot) []byte {
	word, named := w.word, w.hasName()
	w.word, w.long = w.word[:0], false
	if named {
		w.x.reportNames(string(word), CodeInside, at)
	}
	return append(dst, word...)
}

// textWriter swaps in plain text. field is the name of the multipart part, if any.
type textWriter struct {
	nameBuffer
	field string
	coded func(string) string // escapes a value; nil writes it unchanged
	size  int                 // the length of the text so far
}

func (w *textWriter) pushText(dst, src []byte) []byte {
	w.size += len(src)
	return w.scanRuns(dst, src, func(dst []byte) []byte {
		return w.swapRun(dst, requestSpot{catalog.SurfaceBody, w.field, false}, w.coded)
	})
}

func (w *textWriter) finishText(dst []byte) []byte {
	return w.swapRun(dst, requestSpot{catalog.SurfaceBody, w.field, w.size == len(w.word)}, w.coded)
}

// isHolding implements writer: text cannot turn out to be ambiguous.
func (w *textWriter) isHolding() bool { return false }

// xmlWriter swaps in XML whose declaration names no charset or a common one. A parser decodes the rest of the text by
// that charset.
type xmlWriter struct {
	textWriter
	head    []byte
	decided bool
}

// isHolding implements writer: until the declaration is complete, it may still name a charset that makes a swap
// ambiguous.
func (w *xmlWriter) isHolding() bool { return !w.decided }

// maxDeclaration is the longest XML declaration that is read, in bytes.
const maxDeclaration = 256

func (w *xmlWriter) pushText(dst, src []byte) []byte {
	if !w.decided {
		w.head = append(w.head, src[:min(len(src), maxDeclaration-len(w.head))]...)
		w.checkDeclaration(false)
	}
	if w.bad != nil {
		return w.passThrough(dst, src)
	}
	return w.textWriter.pushText(dst, src)
}

func (w *xmlWriter) finishText(dst []byte) []byte {
	if !w.decided {
		w.checkDeclaration(true)
	}
	if w.bad != nil {
		return w.endPassThrough(dst)
	}
	return w.textWriter.finishText(dst)
}

// checkDeclaration checks the declaration once it is complete. isEnd means that the body has ended.
func (w *xmlWriter) checkDeclaration(isEnd bool) {
	const begin = "<?xml"
	// Lenient parsers accept a byte order mark and white space before the declaration.
	text := strings.ToLower(strings.TrimLeft(strings.TrimPrefix(string(w.head), "\ufeff"), " \t\r\n"))
	declaration, _, ended := strings.Cut(text, "?>")
	// A declaration that does not end within maxDeclaration is treated as ambiguous.
	full := isEnd || len(w.head) == maxDeclaration
	switch {
	case !full && (len(text) < len(begin) || strings.HasPrefix(text, begin) && !ended):
		return
	case strings.HasPrefix(text, begin) && (!ended || !isPlainDeclaration(declaration)):
		w.stopSwapping(errCharset)
	}
	w.decided = true
}

// isPlainDeclaration reports whether an XML declaration names no charset or a common one.
func isPlainDeclaration(s string) bool {
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
