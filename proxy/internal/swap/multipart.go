package swap

import (
	"io"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/disarm"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
)

// types reads the type of a form with parts that is swapped into. It leaves with a boundary that its author could not know.
func (x *exchange) types() (err error) {
	values := x.req.Header["Content-Type"]
	if !strings.Contains(strings.ToLower(strings.Join(values, ",")), "multipart/form-data") {
		return nil
	}
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

// multipart reads src with names swapped in its parts.
func (x *exchange) multipart(src io.Reader) io.Reader {
	return formdata.NewReader(src, formdata.Config{From: x.from, To: x.to, Open: (&fields{x: x}).open})
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
