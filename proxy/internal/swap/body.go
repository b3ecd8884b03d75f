package swap

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
)

// ErrEncoding is the error for a request body that does not match its Content-Encoding.
var ErrEncoding = errors.New("the request's content encoding is broken")

// rewriteBody rewrites the body. If no credential of the exchange declares the body, every byte stays, including the
// encoding and the length. The body is searched for values and names in any case.
func (x *requestRewrite) rewriteBody() error {
	req := x.req
	b := coding.BodyOf(req)
	if b == nil {
		return nil
	}
	encodings, err := coding.Parse(req.Header)
	if err != nil {
		// A server that does not know the encoding cannot read a value through it either. Nothing is swapped.
		encodings = nil
	}
	swaps := !x.o.Insecure && slices.ContainsFunc(x.o.Allowed, func(c catalog.Credential) bool {
		return slices.ContainsFunc(c.Surfaces, func(s catalog.Surface) bool { return s.Kind == catalog.SurfaceBody })
	})
	if len(encodings) > 0 && !swaps {
		// Search a decoded copy, so that the request leaves in its original encoding.
		b.AddWatcher(func(copied *coding.Body) { x.buildChain(copied, encodings, false) })
		b.AddReader(func(r io.Reader) io.Reader { return plainErrors{r} })
		return coding.ReadAhead(req, false)
	}
	if swaps && err == nil {
		if err := x.readContentType(); err != nil {
			return err
		}
	}
	x.buildChain(b, encodings, swaps && err == nil)
	if len(encodings) > 0 {
		// The rewritten body leaves decoded.
		req.Header.Del("Content-Encoding")
	}
	if swaps {
		DropRange(req)
	}
	return coding.ReadAhead(req, swaps)
}

// DropRange removes the headers that ask for a range, so that the server answers with the whole body. A range could cut
// a credential in two, which the scrubber would not find.  Servers have other names for Range, such as Request-Range
// and X-Ms-Range.
func DropRange(req *http.Request) {
	for _, name := range ListRangeHeaders(req) {
		//defence:range
		delete(req.Header, name)
	}
}

// ListRangeHeaders returns the names of the headers that DropRange removes.
func ListRangeHeaders(req *http.Request) (out []string) {
	separator := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }
	for name := range req.Header {
		words := strings.FieldsFunc(strings.ToLower(name), separator)
		switch {
		case !slices.Contains(words, "range") && !slices.Contains(words, "ranges"):
		// Content-Range, and the range of a copy's source, describe a write. The answer to such a request has no
		// ranges.
		case slices.Contains(words, "source"), words[0] == "content":
		// A PUT may say with a name such as X-Ms-Range which bytes to write.
		case req.Method == http.MethodPut && len(words) > 2:
		default:
			out = append(out, name)
		}
	}
	return out
}

// buildChain decodes the body, searches it for values, and swaps token names or reports them.
func (x *requestRewrite) buildChain(b *coding.Body, encodings []string, swaps bool) {
	b.AddDecoder(encodings)
	b.AddReader(func(r io.Reader) io.Reader { return plainErrors{r} })
	if swaps && x.isShort() {
		// A short body is searched and rewritten at once, because its exact length can then be announced.
		b.AddReader(func(r io.Reader) io.Reader { return &wholeBody{x: x, src: r} })
		return
	}
	b.AddReader(x.wrapMessages(func(r io.Reader) io.Reader { return x.s.newSearchReader(r, x.o.Found) }))
	if swaps {
		b.AddReader(x.newSwapReader)
		return
	}
	b.AddReader(x.wrapMessages(x.newNameReporter))
}

// wrapMessages applies a reader to each message of the body.
func (x *requestRewrite) wrapMessages(wrap func(io.Reader) io.Reader) func(io.Reader) io.Reader {
	return func(src io.Reader) io.Reader { return x.o.Framing.WrapMessages(src, wrap) }
}

// plainErrors turns the errors of package coding into ErrEncoding.
type plainErrors struct{ src io.Reader }

func (p plainErrors) Read(b []byte) (int, error) {
	n, err := p.src.Read(b)
	if errors.Is(err, coding.ErrBroken) || errors.Is(err, coding.ErrRatio) {
		err = ErrEncoding
	}
	return n, err
}

// newNameReporter reports the token names in a body that is not rewritten.
func (x *requestRewrite) newNameReporter(src io.Reader) io.Reader {
	at := requestSpot{kind: catalog.SurfaceBody, whole: true}
	return x.s.names.NewReader(src, func(id int) (string, error) {
		name := x.s.all[id].Name
		x.report.addSeen(SeenName{name, at.hintName(), x.explainUnswapped(name)})
		return name, nil
	})
}

// explainUnswapped returns the code for not swapping a name in a body that no credential declares.
func (x *requestRewrite) explainUnswapped(name string) string {
	switch {
	case !slices.ContainsFunc(x.o.Allowed, func(c catalog.Credential) bool { return c.Name == name }):
		return CodeOther
	case x.o.Insecure:
		return CodeInsecure
	}
	return CodeUndeclared
}
