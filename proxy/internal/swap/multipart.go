package swap

import (
	"bytes"
	"io"
	"slices"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/disarm"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
)

// types reads the type of a body that is swapped into. A form with parts leaves with a boundary that its author could not
// know.
func (x *exchange) types() (err error) {
	if x.from, err = formdata.RequestType(x.req.Header); err == nil {
		err = x.from.CheckCharset()
	}
	if err != nil || !x.from.FormData() {
		return err
	}
	x.to = x.from.Fresh()
	x.req.Header["Content-Type"] = []string{x.to.String()}
	return nil
}

// rewriter reads src with names swapped as the body's kind has them.
func (x *exchange) rewriter(src io.Reader, contentType string) io.Reader {
	if t, err := formdata.ParseType([]string{contentType}); err == nil && t.FormData() {
		c := formdata.Config{From: t, To: x.to, Open: (&fields{x: x}).open}
		if x.to.Media == "" {
			c.To = t
		}
		return formdata.NewReader(src, c)
	}
	if k := kindOf(contentType, nil); k != kindRaw {
		return &rewriteReader{src: src, w: x.writer(k)}
	}
	return &rewriteReader{src: src, w: &sniffer{x: x, contentType: contentType}}
}

// sniffer decides on a kind by the first byte that is no space.
type sniffer struct {
	x           *exchange
	contentType string
	w           writer
}

func (s *sniffer) push(dst, src []byte) []byte {
	if s.w == nil {
		if head := bytes.TrimLeft(src, " \t\r\n"); len(head) == 0 {
			return append(dst, src...)
		}
		s.w = s.x.writer(kindOf(s.contentType, src))
	}
	return s.w.push(dst, src)
}

func (s *sniffer) finish(dst []byte) []byte {
	if s.w == nil {
		return dst
	}
	return s.w.finish(dst)
}

// fields swaps in the fields of a multipart form. What is in files stays as it is.
type fields struct {
	x    *exchange
	seen []string // the declared ones
}

// open begins a field.
func (f *fields) open(p *formdata.Part, content io.Reader) (io.Reader, error) {
	if f.declared(p.Name) {
		if slices.Contains(f.seen, p.Name) && !disarm.Off("multipart") {
			return nil, &formdata.Error{Reason: "the field that a credential belongs in is there twice"}
		}
		f.seen = append(f.seen, p.Name)
	}
	if p.File || p.Type.Media == "application/octet-stream" { // which is a file to busboy, whatever it is called
		return content, nil
	}
	return &rewriteReader{src: content, w: &textWriter{words: words{x: f.x}, field: p.Name, only: true}}, nil
}

// declared reports whether a field is the surface of a credential.
func (f *fields) declared(name string) bool {
	return slices.ContainsFunc(f.x.o.Allowed, func(c catalog.Credential) bool {
		return slices.Contains(c.Surfaces, catalog.Surface{Kind: catalog.SurfaceBody, Field: name})
	})
}
