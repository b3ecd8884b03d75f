package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
)

// MaxForm is how many bytes of a form are searched for an override. If the API restricts methods, a longer form is
// refused.
const MaxForm = 1 << 20

// formCost is the memory, in bytes, that a form of MaxForm takes during the search: the form, its text, and a list of
// methods.
const formCost = 4 * MaxForm

// ErrOverrideUnseen is for a body that overrides the method, or is too long to be checked.
var ErrOverrideUnseen = errors.New("the body overrides the method, or is too long to be checked")

// The reasons for an ErrOverrideUnseen other than a field of the body.
var (
	errLongForm = fmt.Errorf("%w: a long form", ErrOverrideUnseen)
	errCoding   = fmt.Errorf("%w: an unknown encoding", ErrOverrideUnseen)
)

// BodyOverrides looks for an override in the body of a request to an API that restricts methods. It reads a form ahead
// and lists the form's overrides. It wraps any other body: reading fails with ErrOverrideUnseen at a field that
// overrides the method, or that may do so with a method that permits refuses. Reading fails with a *formdata.Error if
// servers differ in how they split the fields. A body that a framework would parse leaves decoded, and a multipart body
// in the form that package formdata writes. Any other body is searched decoded, and leaves unchanged.
func BodyOverrides(r *http.Request, permits func(method string) bool) ([]string, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	r.GetBody = nil // a body from GetBody would not be searched
	kind, err := formdata.ParseRequestType(r.Header)
	if err != nil {
		return nil, err
	}
	form, inJSON := strings.Contains(kind.Media, "urlencoded"), isJSON(kind.Media)
	encodings, err := coding.Parse(r.Header)
	// Frameworks parse these types, and a body without a type, into parameters.
	if !form && !inJSON && !kind.IsMultipart() && kind.Media != "" {
		return nil, scanOther(r, encodings, err, permits)
	}
	if err := kind.CheckCharset(); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, errCoding
	}
	decodeBody(r, encodings)
	switch {
	case form:
		return listFormOverrides(r)
	case kind.IsMultipart():
		return nil, scanParts(r, kind, permits)
	case inJSON:
		attachScanner(r, &twoScanners{newJSONLexer(permits), &pairScanner{permits: permits}})
	default:
		// Rack reads a body without a type as a form.
		attachScanner(r, &twoScanners{&pairScanner{permits: permits, isForm: true}, &quotedNames{}})
	}
	return nil, nil
}

// decodeBody removes the encodings of a body, and its length, which then is unknown.
func decodeBody(r *http.Request, encodings []string) {
	if len(encodings) == 0 {
		return
	}
	coding.BodyOf(r).AddDecoder(encodings)
	r.ContentLength = -1
	r.Header.Del("Content-Encoding")
	r.Header.Del("Content-Length")
}

// scanOther searches a body that is neither a form nor JSON by its type. The server may store the encoded bytes, so
// the encoding stays. It is removed only for deflate, which servers read in two ways, and for encodings with windows of
// megabytes, which must not be decoded twice.
func scanOther(r *http.Request, encodings []string, err error, permits func(string) bool) error {
	look := &twoScanners{&quotedNames{}, &pairScanner{permits: permits}}
	switch {
	case err != nil && hasFrameworkCoding(r.Header):
		return errCoding
	case len(encodings) == 0: // or with encodings that no framework removes, such as aws-chunked and aes128gcm
	case slices.Contains(encodings, "deflate") || coding.NeedsLargeWindow(encodings):
		decodeBody(r, encodings)
	default:
		coding.BodyOf(r).AddWatcher(func(copied *coding.Body) {
			copied.AddDecoder(encodings)
			copied.AddReader(func(src io.Reader) io.Reader { return &scannedReader{src: src, scanner: look, left: -1} })
		})
		return coding.ReadAhead(r, false)
	}
	attachScanner(r, look)
	return nil
}

// hasFrameworkCoding reports whether Content-Encoding includes an encoding that frameworks remove.
func hasFrameworkCoding(h http.Header) bool {
	list := strings.ToLower(strings.Join(h["Content-Encoding"], ","))
	words := strings.FieldsFunc(list, func(c rune) bool { return strings.ContainsRune(" \t,;\"", c) })
	return slices.ContainsFunc(words, func(word string) bool {
		switch strings.TrimPrefix(word, "x-") {
		case "gzip", "deflate", "compress", "br", "zstd":
			return true
		}
		return false
	})
}

// isJSON reports whether a type is JSON. It excludes the JSON of gRPC and Connect, which is framed: no server looks for
// a method there.
func isJSON(media string) bool {
	return strings.Contains(media, "json") &&
		!strings.HasPrefix(media, "application/grpc") && !strings.HasPrefix(media, "application/connect+")
}

// listFormOverrides reads a form ahead and lists its overrides.
func listFormOverrides(r *http.Request) ([]string, error) {
	form, whole, err := coding.PeekBody(r, MaxForm, formCost)
	if err != nil {
		return nil, err
	}
	if !whole {
		return nil, errLongForm
	}
	// A server that trusts another type of the request may read JSON.
	if err := (&quotedNames{}).scanText(form); err != nil {
		return nil, err
	}
	return ParameterOverrides(string(form)), nil
}

// scanParts checks the names of parts, in the form in which they leave.
func scanParts(r *http.Request, kind formdata.Type, permits func(string) bool) error {
	to := kind.WithNewBoundary()
	r.Header["Content-Type"] = []string{to.String()}
	// A longer body streams, and the server gets its length before the proxy has read it.
	exact := r.ContentLength > coding.ExactUpTo && len(to.Boundary()) == len(kind.Boundary())
	coding.BodyOf(r).AddReader(func(src io.Reader) io.Reader {
		return formdata.NewReader(src, formdata.Config{From: kind, To: to, Exact: exact,
			Open: func(p *formdata.Part, content io.Reader) (io.Reader, error) {
				return openPart(kind, p, content, permits)
			}})
	})
	return coding.ReadAhead(r, !exact)
}

// openPart refuses a part that overrides the method. Outside multipart/form-data, a file name or Content-ID may name
// the part.
func openPart(kind formdata.Type, p *formdata.Part, content io.Reader, permits func(string) bool) (io.Reader, error) {
	c := findClaim(p.Name)
	if !kind.IsFormData() {
		c = max(c, findClaim(p.FileName), findClaim(p.ID))
	}
	switch c {
	case fullClaim:
		return nil, ErrOverrideUnseen
	case verbClaim:
		// The value decides whether the part may leave, so it is read ahead and put back.
		value := make([]byte, maxLexed)
		n, err := io.ReadFull(content, value)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF { //nolint:errorlint // ReadFull's own values
			return nil, err
		}
		if v := findVerb(string(value[:n])); v != "" && !permits(v) || isPadding(string(value[:n]), maxLexed) {
			return nil, ErrOverrideUnseen
		}
		return io.MultiReader(bytes.NewReader(value[:n]), content), nil
	}
	return content, nil
}

// bodyScanner checks a body as it streams. An error ends the body.
type bodyScanner interface {
	scanText(text []byte) error
	scanEnd() error
}

// scannedReader is a reader of a body. Read fails if its scanner does, at the latest before the last byte.
type scannedReader struct {
	src     io.Reader
	scanner bodyScanner
	left    int64 // bytes until the end, or negative if unknown
	err     error
}

func attachScanner(r *http.Request, s bodyScanner) {
	left := r.ContentLength
	if left <= 0 {
		left = -1
	}
	coding.BodyOf(r).AddReader(func(src io.Reader) io.Reader { return &scannedReader{src: src, scanner: s, left: left} })
}

func (g *scannedReader) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.src.Read(p)
	bad := g.scanner.scanText(p[:n])
	if g.left > 0 {
		g.left -= int64(n)
	}
	// Withhold the last byte until the scanner has agreed: a server may act on a body of complete length.
	if bad == nil && (err == io.EOF || g.left == 0) { //nolint:errorlint // an io.Reader ends with this value itself
		bad = g.scanner.scanEnd()
	}
	// The bytes of this Read stay back too: they may hold the override.
	if bad != nil {
		g.err = bad
		return 0, bad
	}
	return n, err
}

type twoScanners [2]bodyScanner

func (b *twoScanners) scanText(text []byte) error {
	return errors.Join(b[0].scanText(text), b[1].scanText(text))
}
func (b *twoScanners) scanEnd() error { return errors.Join(b[0].scanEnd(), b[1].scanEnd()) }

// quotedNames finds a quoted name and a colon in text of any type, which some servers read as JSON. It ignores the
// structure of the text, so the structure cannot mislead it.
type quotedNames struct {
	word   []byte // since a quote, at most maxLexed
	in     bool   // inside the quotes, so word may continue
	closed bool   // word ended with a quote, and only spaces have followed
}

func (q *quotedNames) scanText(text []byte) error {
	for _, b := range text {
		switch {
		case b == 0: // UTF-16 text without its NULs is ASCII
		case b == '"' || b == '\'' || b == '`':
			q.closed, q.in = q.in, true
			if !q.closed {
				q.word = q.word[:0]
			}
			// The end of one string may begin another: without its grammar every quote can be either.
			if q.closed && findClaim(unescapeJSON(q.word)) != fullClaim {
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

func (q *quotedNames) scanEnd() error { return nil }

// unescapeJSON removes the escapes of JSON, as decodeEscapes removes those of a form.
func unescapeJSON(text []byte) string {
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text)
	}
	return decodeEscapes(escapesToPercent.Replace(string(text)))
}

// escapesToPercent is made once: a body may consist of words with escapes.
var escapesToPercent = strings.NewReplacer(`\u`, "%u", `\U`, "%u", `\x`, "%", `\X`, "%", `\`, "")
