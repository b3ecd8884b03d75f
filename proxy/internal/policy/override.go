package policy

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/engine"
)

// MaxForm is how many bytes of a form are looked at for an override. Longer forms to an API that restricts methods
// are refused.
const MaxForm = 1 << 20

// ErrOverrideUnseen is for a body that overrides the method, or is too long to be looked at.
var ErrOverrideUnseen = errors.New("the body overrides the method, or is too long to tell")

// overrideParameters are read as the request's real method by web frameworks (_method) and by Salesforce (_HttpMethod).
var overrideParameters = []string{"_method", "_httpmethod", "x_http_method_override", "x-http-method-override"}

// verbParameters are so too by some APIs (Facebook's Graph), and mean something else in others. They count where they
// name a standard method.
var verbParameters = []string{"method", "httpmethod", "http_method"}

// ParameterOverrides lists what the override parameters of a query or form say. Both separators in use count, and
// pairs that do not decode count by what they look like.
func ParameterOverrides(query string) []string {
	var out []string
	for _, pair := range strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(pair, "=")
		if len(name) > 256 {
			continue
		}
		value = unescape(value)
		name = parameterName(name)
		if slices.Contains(overrideParameters, name) ||
			slices.Contains(verbParameters, name) && slices.Contains(standard, strings.ToUpper(strings.TrimSpace(value))) {
			out = append(out, value)
		}
	}
	return out
}

// parameterName is a parameter's name as the most lenient server reads it: PHP ends it at a NUL, takes spaces off its
// beginning, and makes underscores of dots, spaces and a bracket.
func parameterName(s string) string {
	s, _, _ = strings.Cut(strings.ToLower(unescape(s)), "\x00")
	s = strings.TrimSpace(s)
	if i := strings.IndexByte(s, '['); i > 0 {
		s = s[:i]
	}
	return strings.NewReplacer(".", "_", " ", "_", "[", "_").Replace(s)
}

func unescape(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}

// BodyOverrides looks for an override in the body of a request to an API that restricts methods. A form is read and
// put back, and its overrides are listed. Any other body is wrapped: reading it fails with ErrOverrideUnseen when it
// has a field of that name. A body that a framework would look into leaves decoded.
func BodyOverrides(r *http.Request) ([]string, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	kind := mediaType(r.Header)
	switch {
	case strings.Contains(kind, "x-www-form-urlencoded"):
		return formOverrides(r)
	case kind != "" && !strings.Contains(kind, "json") && !strings.Contains(kind, "multipart"):
		r.Body = newGuarded(r.Body, false)
		return nil, nil
	}
	encodings, err := coding.Parse(r.Header)
	if err != nil {
		return nil, ErrOverrideUnseen
	}
	if len(encodings) > 0 {
		body := coding.NewBody(r.Body)
		body.Decode(encodings)
		r.Body, r.ContentLength = body, -1
		r.Header.Del("Content-Encoding")
		r.Header.Del("Content-Length")
	}
	r.Body = newGuarded(r.Body, kind == "") // Rack takes a body without a type for a form
	return nil, nil
}

// mediaType is what any of a request's types says, in lower case. Servers differ in which of several they believe.
func mediaType(h http.Header) string {
	values := h.Values("Content-Type")
	if len(values) == 1 {
		if t, _, err := mime.ParseMediaType(values[0]); err == nil {
			return t
		}
	}
	return strings.ToLower(strings.TrimSpace(strings.Join(values, ",")))
}

// formOverrides reads a form and puts it back.
func formOverrides(r *http.Request) ([]string, error) {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, ErrOverrideUnseen
	}
	form, err := io.ReadAll(io.LimitReader(r.Body, MaxForm+1))
	if err != nil {
		return nil, err
	}
	if len(form) > MaxForm || bytes.Contains(bytes.ToLower(form), []byte(`"_method"`)) { // JSON by another of its types
		return nil, ErrOverrideUnseen
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(form), r.Body}
	return ParameterOverrides(string(form)), nil
}

// The ways in which multipart and JSON bodies name the override field, in lower case and in any escapes, and those in
// which a form does.
var (
	inFields = fieldSet(`"_method"`, `'_method'`, `name=_method`, `''_method`)
	inPairs  = fieldSet(`"_method"`, `'_method'`, `name=_method`, `''_method`, `&_method=`, `;_method=`)
)

func fieldSet(texts ...string) *engine.Set {
	var out []engine.Pattern
	for _, t := range texts {
		out = append(out, engine.Pattern{Text: t, Escaped: true})
	}
	return engine.New(out)
}

// longest is more than a field takes when all of it is escaped: what must be kept of one read for the next.
const longest = 128

// guarded is a body whose reading fails when it has an override field.
type guarded struct {
	io.ReadCloser
	fields *engine.Set
	tail   []byte // the end of what was read, cleaned
	err    error
}

// newGuarded guards a body, which may be a form.
func newGuarded(body io.ReadCloser, form bool) *guarded {
	if form {
		return &guarded{ReadCloser: body, fields: inPairs, tail: []byte("&")}
	}
	return &guarded{ReadCloser: body, fields: inFields}
}

// Read implements io.Reader.
func (g *guarded) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.ReadCloser.Read(p)
	// Without its NULs UTF-16 reads as ASCII.
	window := append(g.tail, bytes.ReplaceAll(bytes.ToLower(p[:n]), []byte{0}, nil)...)
	plain := bytes.ReplaceAll(window, []byte{'\\'}, nil) // the quoted pairs of a multipart head
	if g.fields.Contains(string(window)) || len(plain) < len(window) && g.fields.Contains(string(plain)) {
		g.err = ErrOverrideUnseen
		return 0, g.err
	}
	g.tail = append(g.tail[:0], window[max(0, len(window)-longest):]...)
	return n, err
}
