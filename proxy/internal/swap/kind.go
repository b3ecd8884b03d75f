package swap

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
)

// bodySyntax is the syntax in which a body writes strings.
type bodySyntax uint8

const (
	kindRaw bodySyntax = iota
	kindXML
	kindJSON
	kindLines // JSON values, one on each line
	kindForm
	kindText // plain text, which many servers read as JSON if it looks like JSON
	kindNone // no Content-Type: servers read the body as text, JSON or a form
)

// bodyKind derives the kind of a body from its Content-Type. The Ambiguity is nil if every server reads the type in the
// same way.
func bodyKind(h http.Header) (bodySyntax, *Ambiguity) {
	t, err := formdata.ParseRequestType(h)
	switch {
	case err != nil, strings.Contains(t.String(), "*"): // for example charset*, which some servers decode (RFC 2231)
		return kindRaw, errTypes
	case t.Media == "":
		return kindNone, nil
	}
	k, charset := chooseSyntax(t.Media), t.Param("charset")
	mentioned := strings.Count(strings.ToLower(t.String()), "charset")
	// Raw text and XML have no fields, so a single-byte charset cannot move a value to another field.
	known := isUTF8(charset) || (k == kindRaw || k == kindXML) && isLatin(charset)
	// A second or a hidden charset, such as one inside another parameter, is read by some servers only.
	if mentioned > 1 || mentioned == 1 && !known {
		return kindRaw, errCharset
	}
	return k, nil
}

// chooseSyntax returns the kind of a media type.
func chooseSyntax(t string) bodySyntax {
	switch {
	case t == "application/x-www-form-urlencoded":
		return kindForm
	case strings.HasSuffix(t, "ndjson"):
		return kindLines
	case strings.HasSuffix(t, "/json") || strings.HasSuffix(t, "+json"):
		return kindJSON
	case strings.HasSuffix(t, "/xml") || strings.HasSuffix(t, "+xml"):
		return kindXML
	case t == "text/plain":
		return kindText
	}
	return kindRaw
}

// isUTF8 reports whether a charset is UTF-8, or ASCII, its subset.
func isUTF8(charset string) bool {
	switch strings.ToLower(charset) {
	case "utf-8", "utf8", "us-ascii", "ascii":
		return true
	}
	return false
}

// isLatin reports whether a charset is one of the common supersets of ASCII other than UTF-8.
func isLatin(charset string) bool {
	switch strings.ToLower(charset) {
	case "iso-8859-1", "latin1", "iso-8859-15", "windows-1252":
		return true
	}
	return false
}

// newSwapReader returns a reader of src that swaps names by the rules of the body's kind.
func (x *requestRewrite) newSwapReader(src io.Reader) io.Reader {
	if x.from.IsFormData() {
		return x.newMultipartReader(src)
	}
	k, bad := bodyKind(x.req.Header)
	return x.newRewriteReader(src, k, bad)
}

// newRewriteReader returns a reader of src that runs through the writer for k.
func (x *requestRewrite) newRewriteReader(src io.Reader, k bodySyntax, bad *Ambiguity) io.Reader {
	return &rewriteReader{src: src, w: x.newBodyWriter(k, bad)}
}

func (x *requestRewrite) newBodyWriter(k bodySyntax, bad *Ambiguity) bodyWriter {
	switch {
	case bad != nil:
		return &refuser{nameBuffer{x: x, bad: bad}}
	case k == kindText || k == kindNone:
		return &sniffer{bodyWriter: x.newWriter(kindRaw), x: x, kind: k}
	}
	return x.newWriter(k)
}

// bodyWriter rewrites text that arrives in pieces. push and finish append the decided bytes to dst.
type bodyWriter interface {
	pushText(dst, src []byte) []byte
	finishText(dst []byte) []byte
	// findFault returns why the pushed text must not be sent, or nil.
	findFault() error
	// isHolding reports whether the reader should hold back the output, because later text may make a swap ambiguous.
	isHolding() bool
}

func (x *requestRewrite) newWriter(k bodySyntax) bodyWriter {
	switch k {
	case kindJSON, kindLines:
		return newJSONWriter(x, k == kindLines)
	case kindForm:
		return newFormWriter(x, catalog.SurfaceBody)
	case kindXML:
		return &xmlWriter{textWriter: textWriter{nameBuffer: nameBuffer{x: x}, coded: escapeXML}}
	}
	return &textWriter{nameBuffer: nameBuffer{x: x}}
}

// sniffer chooses a kind by the first byte that is not white space. It begins with the writer of plain text.
type sniffer struct {
	bodyWriter
	x      *requestRewrite
	kind   bodySyntax
	chosen bool
}

func (s *sniffer) pushText(dst, src []byte) []byte {
	if !s.chosen {
		head := bytes.TrimLeft(src, " \t\r\n")
		if len(head) == 0 {
			return append(dst, src...)
		}
		s.bodyWriter, s.chosen = s.chooseWriter(head[0]), true
	}
	return s.bodyWriter.pushText(dst, src)
}

func (s *sniffer) chooseWriter(first byte) bodyWriter {
	// Other JSON values have no fields, so they may be treated as text.
	if first != '{' && first != '[' {
		return s.bodyWriter
	}
	w := newJSONWriter(s.x, false)
	w.guessed = true
	if s.kind == kindNone {
		w.undeclared = errUntyped
	}
	return w
}

// refuser passes on a body that is ambiguous from the start. It fails at the first name that is declared for bodies.
type refuser struct{ nameBuffer }

func (w *refuser) pushText(dst, src []byte) []byte { return w.passThrough(dst, src) }

func (w *refuser) finishText(dst []byte) []byte { return w.endPassThrough(dst) }

// rewriteReader reads a source through a writer.
type rewriteReader struct {
	src io.Reader
	w   bodyWriter
	in  [8 << 10]byte
	out []byte
	pos int
	err error
	// full means that the held bytes reached coding.ExactUpTo and leave, until the writer holds nothing.
	full bool
}

func (r *rewriteReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.pos == len(r.out) || r.isWaiting() {
		if r.err != nil {
			return 0, r.err
		}
		if r.pos == len(r.out) {
			// Everything was read, so the buffer can be used again.
			r.out, r.pos = r.out[:0], 0
		}
		n, err := r.src.Read(r.in[:])
		r.out = r.w.pushText(r.out, r.in[:n])
		if r.err = err; err == io.EOF {
			r.out = r.w.finishText(r.out)
		}
		// After a fault no held byte may leave: it could contain a swapped value.
		if f := r.w.findFault(); f != nil {
			r.out, r.pos, r.err = nil, 0, f
		}
	}
	n := copy(p, r.out[r.pos:])
	r.pos += n
	return n, nil
}

// isWaiting reports whether a swap is still held back. If the source fails, the held bytes are dropped.
func (r *rewriteReader) isWaiting() bool {
	if !r.w.isHolding() || r.err == io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
		r.full = false
		return false
	}
	// The memory for held bytes is bounded. Later ambiguity then fails the body in the middle.
	if r.full = r.full || len(r.out)-r.pos >= coding.ExactUpTo; r.full {
		return false
	}
	if r.err != nil {
		r.pos = len(r.out)
	}
	return true
}
