package policy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
)

// MaxForm is how many bytes of a form are looked at for an override. Longer forms to an API that restricts methods
// are refused.
const MaxForm = 1 << 20

// ErrOverrideUnseen is for a body that overrides the method, or is too long to be looked at.
var ErrOverrideUnseen = errors.New("the body overrides the method, or is too long to tell")

// BodyOverrides looks for an override in the body of a request to an API that restricts methods. A form is read and
// put back, and its overrides are listed. Any other body is wrapped: reading it fails with ErrOverrideUnseen when it has
// such a field, or one that may be one and whose value is a method that permits refuses. It fails with a *formdata.Error
// where servers differ in what the fields are. A body that a framework would look into leaves decoded, and one with parts
// as package formdata writes it; any other is looked at decoded, and leaves as it came.
func BodyOverrides(r *http.Request, permits func(method string) bool) ([]string, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	r.GetBody = nil // what it gives is not looked at
	kind, err := formdata.RequestType(r.Header)
	if err != nil {
		return nil, err
	}
	form, inJSON := strings.Contains(kind.Media, "urlencoded"), isJSON(kind.Media)
	encodings, err := coding.Parse(r.Header)
	if !form && !inJSON && !kind.Multipart() && kind.Media != "" {
		return nil, guardOther(r, encodings, err, permits)
	}
	if err := kind.CheckCharset(); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, ErrOverrideUnseen
	}
	takeOff(r, encodings)
	switch {
	case form:
		return formOverrides(r)
	case kind.Multipart():
		return nil, guardParts(r, kind, permits)
	case inJSON:
		guard(r, &both{&jsonLexer{permits: permits}, &anyForm{permits: permits}})
	default:
		guard(r, &both{&pairs{permits: permits}, &quotedNames{}}) // Rack takes a body without a type for a form
	}
	return nil, nil
}

// takeOff takes a body's encodings off.
func takeOff(r *http.Request, encodings []string) {
	if len(encodings) == 0 {
		return
	}
	body := coding.NewBody(r.Body)
	body.Decode(encodings)
	r.Body, r.ContentLength = body, -1
	r.Header.Del("Content-Encoding")
	r.Header.Del("Content-Length")
}

// guardOther looks at a body that is no form and no JSON by its type. An encoding may be a part of what is stored, so it
// stays: but not deflate, which servers read in two ways, nor one that would be decoded twice in megabytes.
func guardOther(r *http.Request, encodings []string, err error, permits func(string) bool) error {
	look := &both{&quotedNames{}, &anyForm{permits: permits}}
	switch {
	case err != nil && namesCoding(r.Header):
		return ErrOverrideUnseen
	case len(encodings) == 0: // also one that no framework takes off, as aws-chunked and aes128gcm
	case slices.Contains(encodings, "deflate") || coding.Large(encodings):
		takeOff(r, encodings)
	default:
		body := coding.NewBody(r.Body)
		body.Audit(func(copied *coding.Body) {
			copied.Decode(encodings)
			copied.Through(func(src io.Reader) io.Reader {
				return &guarded{ReadCloser: io.NopCloser(src), scanner: look, left: -1}
			})
		})
		return coding.Ahead(r, body, false)
	}
	guard(r, look)
	return nil
}

// namesCoding reports whether Content-Encoding names, among others, one that frameworks take off.
func namesCoding(h http.Header) bool {
	list := strings.ToLower(strings.Join(h["Content-Encoding"], ","))
	return slices.ContainsFunc([]string{"gzip", "deflate", "compress", "br", "zstd"}, func(coding string) bool {
		return slices.ContainsFunc(strings.FieldsFunc(list, func(c rune) bool { return strings.ContainsRune(" \t,;\"", c) }), func(word string) bool {
			return strings.TrimPrefix(word, "x-") == coding
		})
	})
}

// isJSON reports whether a type is JSON. That of gRPC and Connect is in frames, and nobody looks for a method there.
func isJSON(media string) bool {
	return strings.Contains(media, "json") &&
		!strings.HasPrefix(media, "application/grpc") && !strings.HasPrefix(media, "application/connect+")
}

// formOverrides reads a form and puts it back.
func formOverrides(r *http.Request) ([]string, error) {
	form, err := io.ReadAll(io.LimitReader(r.Body, MaxForm+1))
	if err != nil {
		return nil, err
	}
	if len(form) > MaxForm || (&quotedNames{}).scan(form) != nil { // JSON by another of its types
		return nil, ErrOverrideUnseen
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(form), r.Body}
	return ParameterOverrides(string(form)), nil
}

// guardParts looks at the names of parts as they leave.
func guardParts(r *http.Request, kind formdata.Type, permits func(string) bool) error {
	to := kind.Fresh()
	r.Header["Content-Type"] = []string{to.String()}
	// A longer body streams, and the server is told its length before it is read.
	exact := r.ContentLength > coding.ExactUpTo && len(to.Boundary()) == len(kind.Boundary())
	body := coding.NewBody(r.Body)
	body.Through(func(src io.Reader) io.Reader {
		return formdata.NewReader(src, formdata.Config{From: kind, To: to, Exact: exact,
			Open: func(p *formdata.Part, content io.Reader) (io.Reader, error) {
				return openPart(kind, p, content, permits)
			}})
	})
	return coding.Ahead(r, body, !exact)
}

// openPart refuses a part that is an override. A part that is no form's field may be named by its file or its id.
func openPart(kind formdata.Type, p *formdata.Part, content io.Reader, permits func(string) bool) (io.Reader, error) {
	c := claimOf(p.Name)
	if !kind.FormData() {
		c = max(c, claimOf(p.FileName), claimOf(p.ID))
	}
	switch c {
	case fullClaim:
		return nil, ErrOverrideUnseen
	case verbClaim:
		value := make([]byte, maxLexed)
		n, err := io.ReadFull(content, value)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF { //nolint:errorlint // ReadFull's own values
			return nil, err
		}
		if v := verb(string(value[:n])); v != "" && !permits(v) || isPadding(string(value[:n]), maxLexed) {
			return nil, ErrOverrideUnseen
		}
		return io.MultiReader(bytes.NewReader(value[:n]), content), nil
	}
	return content, nil
}

// scanner looks at a body as it streams. An error breaks the body off.
type scanner interface {
	scan(text []byte) error
	end() error
}

// guarded is a body whose reading fails when its scanner says so, before its last byte at the latest.
type guarded struct {
	io.ReadCloser
	scanner scanner
	left    int64 // bytes until the end, or negative where that is not known
	err     error
}

func guard(r *http.Request, s scanner) {
	left := r.ContentLength
	if left <= 0 {
		left = -1
	}
	r.Body = &guarded{ReadCloser: r.Body, scanner: s, left: left}
}

// Read implements io.Reader.
func (g *guarded) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.ReadCloser.Read(p)
	bad := g.scanner.scan(p[:n])
	if g.left > 0 {
		g.left -= int64(n)
	}
	if bad == nil && (err == io.EOF || g.left == 0) { //nolint:errorlint // an io.Reader ends with this value itself
		bad = g.scanner.end()
	}
	if bad != nil {
		g.err = bad
		return 0, bad
	}
	return n, err
}

// both is two scanners.
type both [2]scanner

func (b *both) scan(text []byte) error { return errors.Join(b[0].scan(text), b[1].scan(text)) }
func (b *both) end() error             { return errors.Join(b[0].end(), b[1].end()) }

// pairs looks for overrides in what may be a form.
type pairs struct {
	permits     func(method string) bool
	name, value []byte
	inValue     bool
}

// maxName is how much of a name is looked at, without spaces before it.
const maxName = 512

func (s *pairs) scan(text []byte) error {
	for _, b := range text {
		switch {
		case b == '&' || b == ';' || b == '\n' || b == '\r':
			if err := s.end(); err != nil {
				return err
			}
		case s.inValue:
			if len(s.value) < maxName {
				s.value = append(s.value, b)
			}
		case b == '=':
			if s.inValue = true; claimOf(string(s.name)) == fullClaim {
				return ErrOverrideUnseen
			}
		case (b == ' ' || b == '+') && len(s.name) == 0, len(s.name) == maxName:
		default:
			s.name = append(s.name, b)
		}
	}
	return nil
}

// end ends a pair.
func (s *pairs) end() error {
	if s.inValue && claimOf(string(s.name)) == verbClaim {
		if v := verb(decode(string(s.value))); v != "" && !s.permits(v) || isPadding(string(s.value), maxName) {
			return ErrOverrideUnseen
		}
	}
	s.name, s.value, s.inValue = s.name[:0], s.value[:0], false
	return nil
}

// quotedNames looks for a quoted name and a colon in text of any kind, which some servers read as JSON. It knows nothing of
// the text's structure, and so cannot be led astray by it.
type quotedNames struct {
	word   []byte // since a quote, at most maxLexed
	in     bool   // word may go on
	closed bool   // word ended with a quote, and only spaces followed it
}

func (q *quotedNames) scan(text []byte) error {
	for _, b := range text {
		switch {
		case b == 0: // without its NULs UTF-16 reads as ASCII
		case b == '"' || b == '\'' || b == '`':
			q.closed, q.in = q.in, true
			if !q.closed {
				q.word = q.word[:0]
			}
			if q.closed && claimOf(unescape(q.word)) != fullClaim {
				q.closed, q.word = false, q.word[:0]
			}
		case q.closed && b == ':':
			return ErrOverrideUnseen
		case q.closed && strings.IndexByte(" \t\r\n\\", b) >= 0:
		default:
			if q.closed {
				q.closed, q.word = false, q.word[:0]
			}
			if q.in = q.in && len(q.word) < maxLexed; q.in {
				q.word = append(q.word, b)
			}
		}
	}
	return nil
}

func (q *quotedNames) end() error { return nil }

// unescape takes the escapes of JSON off as decode does those of a form.
func unescape(text []byte) string {
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text)
	}
	return decode(strings.NewReplacer(`\u`, "%u", `\U`, "%u", `\x`, "%", `\X`, "%", `\`, "").Replace(string(text)))
}
