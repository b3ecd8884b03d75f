package swap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/textproto"
	"sort"
)

// ErrMalformed is for a multipart body that is not well formed.
var ErrMalformed = errors.New("the request's multipart body is malformed")

// multipart reads src with names swapped in its parts.
func (x *exchange) multipart(src io.Reader, contentType string) io.Reader {
	_, params, _ := mime.ParseMediaType(contentType)
	last := &lastError{src: src}
	return &multipartReader{x: x, src: last, parts: multipart.NewReader(last, params["boundary"]), boundary: params["boundary"]}
}

// multipartReader writes a multipart body anew, part by part, as it was understood.
type multipartReader struct {
	x        *exchange
	src      *lastError
	parts    *multipart.Reader
	boundary string
	head     bytes.Buffer
	part     io.Reader
	began    bool
	err      error
}

func (m *multipartReader) Read(p []byte) (int, error) {
	for len(p) > 0 {
		if m.head.Len() > 0 {
			return m.head.Read(p)
		}
		if m.part != nil {
			n, err := m.part.Read(p)
			if err == io.EOF {
				m.part, err = nil, nil
			} else if err != nil {
				m.finish(err)
				err = m.err
			}
			if n > 0 || err != nil {
				return n, err
			}
			continue
		}
		if m.err != nil {
			return 0, m.err
		}
		m.next()
	}
	return 0, nil
}

// lastError remembers how a source ended; the library puts its own words around it.
type lastError struct {
	src io.Reader
	err error
}

func (l *lastError) Read(p []byte) (int, error) {
	n, err := l.src.Read(p)
	if err != nil {
		l.err = err
	}
	return n, err
}

// next begins the next part, or ends the body.
func (m *multipartReader) next() {
	part, err := m.parts.NextRawPart()
	if m.began {
		m.head.WriteString("\r\n")
	}
	m.began = true
	if err != nil {
		m.finish(err)
		return
	}
	fmt.Fprintf(&m.head, "--%s\r\n", m.boundary)
	writeHeader(&m.head, part.Header)
	m.part = part
	if part.FileName() == "" {
		w := &textWriter{words: words{x: m.x}, field: part.FormName(), only: true}
		m.part = &rewriteReader{src: part, w: w}
	}
}

// finish ends the body, or breaks it off.
func (m *multipartReader) finish(err error) {
	if err == io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
		fmt.Fprintf(&m.head, "--%s--\r\n", m.boundary)
		m.err = io.EOF
		return
	}
	m.head.Reset()
	m.err = ErrMalformed
	if m.src.err != nil && m.src.err != io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
		m.err = m.src.err
	}
}

func writeHeader(b *bytes.Buffer, h textproto.MIMEHeader) {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, v := range h[name] {
			fmt.Fprintf(b, "%s: %s\r\n", name, v)
		}
	}
	b.WriteString("\r\n")
}
