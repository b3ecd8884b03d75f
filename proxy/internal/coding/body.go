package coding

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// ExactUpTo is the size in bytes up to which a body of known length is rewritten before its head leaves, so that its new
// length is known. A longer one that may change has no known length.
const ExactUpTo = 256 << 10

// Body is a body that is read through other readers. Its error is sticky; Close may come while Read waits.
type Body struct {
	src   io.ReadCloser
	mu    sync.Mutex
	top   io.Reader
	stops []interface{ Stop() }
	err   error
}

// NewBody begins with the body itself.
func NewBody(src io.ReadCloser) *Body { return &Body{src: src, top: src} }

// Through puts a reader on top. If it can be stopped, Close stops it. It must come before the first Read.
func (b *Body) Through(wrap func(io.Reader) io.Reader) {
	b.top = wrap(b.top)
	if s, ok := b.top.(interface{ Stop() }); ok {
		b.stops = append(b.stops, s)
	}
}

// Decode takes encodings off.
func (b *Body) Decode(encodings []string) {
	if len(encodings) > 0 {
		b.Through(func(r io.Reader) io.Reader { return NewReader(r, encodings) })
	}
}

// Read reads from the top. A panic there is an error of this body: it may be read where nobody recovers, as by
// http.Transport, and what made a decoder or a parser panic came from outside.
func (b *Body) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	defer func() {
		if recover() != nil {
			n, err = 0, ErrBroken
		}
		b.err = err
	}()
	return b.top.Read(p)
}

// Close closes the source first, which ends a Read that waits, and then gives the buffers back.
func (b *Body) Close() error {
	err := b.src.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = io.ErrClosedPipe
	}
	for _, s := range b.stops {
		s.Stop()
	}
	b.stops = nil
	return err
}

// Ahead makes body the request's. One of known small length is read to its end, which gives its length and its error
// before the request leaves. A longer one streams; its length is kept unless it may change.
func Ahead(req *http.Request, body io.ReadCloser, changes bool) error {
	req.Body, req.GetBody = body, nil
	if req.ContentLength > 0 && req.ContentLength <= ExactUpTo {
		var buf bytes.Buffer
		_, err := io.CopyN(&buf, body, 2*ExactUpTo)
		if err != nil && err != io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
			return err
		}
		if err == io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
			exact(req, body, buf.Bytes())
			return nil
		}
		req.Body = prefixed{io.MultiReader(&buf, body), body}
		changes = true
	}
	if changes {
		req.ContentLength = -1
		req.Header.Del("Content-Length")
	}
	return nil
}

// exact makes data the whole body.
func exact(req *http.Request, body io.Closer, data []byte) {
	req.ContentLength = int64(len(data))
	if req.Header.Get("Content-Length") != "" {
		req.Header.Set("Content-Length", strconv.Itoa(len(data)))
	}
	req.Body = prefixed{bytes.NewReader(data), body}
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}

// prefixed reads from one and closes another.
type prefixed struct {
	io.Reader
	io.Closer
}
