package swap

import (
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
)

// readContentType reads the Content-Type of a body in which names are swapped. A multipart body leaves with a new
// boundary, which its author could not know.
func (x *requestRewrite) readContentType() (err error) {
	values := x.req.Header["Content-Type"]
	if !strings.Contains(strings.ToLower(strings.Join(values, ",")), "multipart/form-data") {
		return nil
	}
	if x.from, err = formdata.ParseRequestType(x.req.Header); err == nil {
		err = x.from.CheckCharset()
	}
	if err != nil || !x.from.IsFormData() {
		return err
	}
	x.to = x.from.WithNewBoundary()
	x.req.Header["Content-Type"] = []string{x.to.String()}
	return nil
}

// newMultipartReader returns a reader of src that swaps the names in the parts.
func (x *requestRewrite) newMultipartReader(src io.Reader) io.Reader {
	return formdata.NewReader(src, formdata.Config{From: x.from, To: x.to, Open: (&multipartFields{x: x}).openField})
}

// multipartFields swaps in the fields of a multipart form. The content of files stays unchanged.
type multipartFields struct {
	x    *requestRewrite
	seen []string // the declared fields that have occurred, in any spelling
	// operations and mapped mean that the field of this name of a GraphQL request with files has occurred.
	operations, mapped bool
}

// openField begins a field. It returns a reader of the field's content.
func (f *multipartFields) openField(p *formdata.Part, content io.Reader) (io.Reader, error) {
	for _, name := range f.x.listFields(catalog.SurfaceBody) {
		if !canBeSameName(toLooseName(url.QueryEscape(p.Name)), toLooseName(url.QueryEscape(name))) {
			continue
		}
		// Servers pick the first or the last of two equal fields, or join both.
		//defence:multipart
		if slices.Contains(f.seen, name) {
			return nil, &formdata.Error{Reason: "the field that a credential belongs in is there twice, " +
				"perhaps in another case or with brackets"}
		}
		f.seen = append(f.seen, name)
	}
	f.operations, f.mapped = f.operations || p.Name == "operations", f.mapped || p.Name == "map"
	// Strawberry writes any field that the map names into any variable, as if it were a file.
	//defence:multipart
	if f.operations && f.mapped && len(f.seen) > 0 {
		return nil, &formdata.Error{Reason: "the map of a GraphQL request may put the field that a credential belongs in " +
			"into any variable"}
	}
	switch p.Type.Media {
	case "", "text/plain": // the default type
	default: // formidable reads such a part as a file, and busboy does for some types
		return content, nil
	}
	if p.File {
		return content, nil
	}
	// The part leaves without a type, so that every server reads it as text.
	p.Type = formdata.Type{}
	return &rewriteReader{src: content, w: &textWriter{nameBuffer: nameBuffer{x: f.x}, field: p.Name}}, nil
}
