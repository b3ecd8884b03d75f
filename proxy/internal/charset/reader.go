package charset

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/simplifiedchinese"
)

// declarationWindow is the number of bytes at the beginning of a text that are searched for a declaration (HTML,
// section 13.2.3.2).
const declarationWindow = 1024

// Reader is a body converted to UTF-8. If the set is a superset of ASCII, the body is unchanged. Its error is sticky.
type Reader struct {
	src    io.Reader
	how    Reading
	before func(io.Reader) io.Reader
	cur    io.Reader // nil: not chosen yet
	raw    io.Reader // src as read through before
	seen   []byte    // the beginning of markup, up to window, which may contain a declaration
	err    error
}

// NewReader returns a Reader of src. before wraps the source of a decoder, and so sees the raw bytes.
func NewReader(src io.Reader, how Reading, before func(io.Reader) io.Reader) *Reader {
	r := &Reader{src: src, how: how, before: before}
	if how.enc == nil && !how.text {
		r.cur = src
	}
	return r
}

// Read waits only for the first bytes, which determine the set: two, four if these may be a mark, or eight if these may
// be UTF-16 or UTF-32. The number depends only on the bytes themselves.
func (r *Reader) Read(p []byte) (int, error) {
	if r.err == nil && r.cur == nil {
		r.err = r.chooseDecoder()
	}
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.cur.Read(p)
	if r.raw == nil && r.how.markup && n > 0 && len(r.seen) < declarationWindow {
		switched, unknown := r.readDeclaration(p[:n])
		if unknown != nil {
			r.err = unknown
			return 0, unknown
		}
		if switched {
			return r.Read(p) // at most once, because raw is set now
		}
	}
	r.err = err
	return n, err
}

// HasDecoder reports whether the bytes read so far differ from the source's bytes.
func (r *Reader) HasDecoder() bool { return r.raw != nil }

// Stop releases the buffers of before.
func (r *Reader) Stop() {
	if s, ok := r.raw.(interface{ Stop() }); ok {
		s.Stop()
	}
	if r.err == nil {
		r.err = io.ErrClosedPipe
	}
}

// chooseDecoder chooses the set by the first bytes.
func (r *Reader) chooseDecoder() error {
	var first [8]byte
	// A slow stream must not wait for more bytes than the decision needs.
	n, err := io.ReadAtLeast(r.src, first[:], 2)
	if err == nil && n < 4 && canBeMark(first[:n]) {
		n, err = r.readMore(first[:4], n)
	}
	if err == nil && n < len(first) && r.how.enc == nil && guessUnmarked(first[:n]) != nil {
		n, err = r.readMore(first[:], n)
	}
	//nolint:errorlint // an io.Reader ends with these values themselves
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	// A short body and a broken connection look the same: ask the source again.
	if err == io.ErrUnexpectedEOF { //nolint:errorlint // as above
		err = r.readRealEnd()
	}
	if err != nil && err != io.EOF { //nolint:errorlint // as above
		return err
	}
	enc, err := r.how.chooseEncoding(first[:n])
	if err != nil {
		return err
	}
	r.cur = io.MultiReader(bytes.NewReader(first[:n]), r.src)
	if enc != nil {
		r.startDecoder(r.cur, enc)
	}
	return nil
}

// readMore fills p. The first n bytes have been read.
func (r *Reader) readMore(p []byte, n int) (int, error) {
	more, err := io.ReadFull(r.src, p[n:])
	return n + more, err
}

// readRealEnd returns the real end of the source. io.ReadAtLeast turns EOF into io.ErrUnexpectedEOF, but a broken
// upstream connection gives the same error.
func (r *Reader) readRealEnd() error {
	_, err := r.src.Read(make([]byte, 1))
	return err
}

func (r *Reader) startDecoder(src io.Reader, enc encoding.Encoding) {
	// The raw bytes are searched too: the declared set may be a lie.
	r.raw = r.before(src)
	r.cur = enc.NewDecoder().Reader(r.raw)
}

// canBeMark reports whether the bytes after the first two may matter.
func canBeMark(head []byte) bool {
	switch head[0] {
	case 0, 0xFE, 0xFF, 0xEF, 0x2B, 0xDD, 0x0E, 0xFB, 0x4C:
		return true
	}
	return head[1] == 0
}

// chooseEncoding returns the set of a body, by the head and the first bytes. Nil means a superset of ASCII.
func (r Reading) chooseEncoding(head []byte) (encoding.Encoding, error) {
	has := func(mark string) bool { return strings.HasPrefix(string(head), mark) }
	// These sets cannot be decoded here.
	if has("\x2b\x2f\x76") || has("\xdd\x73\x66\x73") || has("\x0e\xfe\xff") || has("\xfb\xee\x28") {
		return nil, ErrUnknown // UTF-7, UTF-EBCDIC, SCSU, BOCU-1
	}
	short := r.enc == utf16LE || r.enc == utf16BE
	var mark encoding.Encoding
	switch {
	case has("\xff\xfe\x00\x00") && !short:
		mark = utf32LE
	case has("\x00\x00\xfe\xff"):
		mark = utf32BE
	case has("\xff\xfe"):
		mark = utf16LE
	case has("\xfe\xff"):
		mark = utf16BE
	}
	switch {
	case r.enc == nil && mark != nil:
		return mark, nil
	case r.enc == nil:
		return guessUnmarked(head), nil
	case r.marked && (mark == nil || isUTF16(mark) != short):
		// Without a mark, code could make a text look like either byte order.
		return nil, ErrUnknown
	case r.marked:
		return mark, nil
	// Clients differ: some believe the mark, others the header.
	case mark != nil && mark != r.enc:
		return nil, ErrUnknown
	}
	return r.enc, nil
}

func isUTF16(e encoding.Encoding) bool { return e == utf16LE || e == utf16BE }

// guessUnmarked recognises sets by the zero bytes of ASCII characters (RFC 4627, section 3), if the rest is also text:
// many binary formats begin with zeros. It recognises EBCDIC by the bytes of "<?xm" (XML, appendix F).
func guessUnmarked(head []byte) encoding.Encoding {
	for _, enc := range []encoding.Encoding{utf32BE, utf32LE, utf16BE, utf16LE} {
		if isTextStart(head, enc) {
			return enc
		}
	}
	if strings.HasPrefix(string(head), "\x4c\x6f\xa7\x94") {
		return charmap.CodePage037
	}
	return nil
}

// isTextStart reports whether head is the beginning of a text in a set. The first character must be at most U+00FF.
func isTextStart(head []byte, enc encoding.Encoding) bool {
	var buf [16]byte
	n, _, _ := enc.NewDecoder().Transform(buf[:], head, false)
	text := string(buf[:n])
	first, _ := utf8.DecodeRuneInString(text)
	return n > 0 && first <= 0xFF && !strings.ContainsFunc(text, func(c rune) bool {
		return c == utf8.RuneError || unicode.IsControl(c) && !strings.ContainsRune("\t\n\f\r", c)
	})
}

// readDeclaration searches the beginning of markup for a declaration, and switches to the declared decoder from p on.
// Only sets with shift sequences matter, because they are ASCII up to the first shift. Text that declares UTF-16 in
// ASCII is not UTF-16.
func (r *Reader) readDeclaration(p []byte) (switched bool, err error) {
	// Browsers look for a declaration only in the first bytes.
	r.seen = append(r.seen, p[:min(len(p), declarationWindow-len(r.seen))]...)
	text := strings.TrimPrefix(strings.ToLower(string(r.seen)), "\xef\xbb\xbf")
	var found []string
	switch i := strings.Index(text, "<meta"); {
	case strings.HasPrefix(text, "@charset"):
		found = findLabels(strings.Replace(text, "@charset", "charset=", 1), "charset")
	case strings.HasPrefix(text, "<?xml"):
		end := strings.Index(text+"?>", "?>")
		found = findLabels(text[:min(end, len(text))], "encoding")
	case i >= 0:
		found = findLabels(text[i:], "charset")
	}
	for _, label := range found {
		switch foldLabel(label) {
		case "utf7", "unicode11utf7", "xunicode20utf7", "csunicode11utf7", "csutf7", "scsu", "csscsu", "bocu1", "csbocu1",
			"iso2022kr", "csiso2022kr", "iso2022cn", "iso2022cnext",
			"iso2022jp1", "iso2022jp2", "iso2022jp3", "iso2022jp2004", "iso2022jpext":
			return false, ErrUnknown
		}
		if enc, err := LookupEncoding(label); err == nil && (enc == japanese.ISO2022JP || enc == simplifiedchinese.HZGB2312) {
			r.startDecoder(io.MultiReader(bytes.NewReader(bytes.Clone(p)), r.cur), enc)
			return true, nil
		}
	}
	return false, nil
}
