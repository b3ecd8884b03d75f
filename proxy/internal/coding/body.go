package coding

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/membudget"
)

// ExactUpTo bounds the bodies that are rewritten before their head leaves, in bytes. Only their new length is known in
// advance. A longer body that may change leaves without a length.
const ExactUpTo = 256 << 10

// Body is a body that is read through a chain of readers. Each step that reads or changes the text adds a reader on
// top. The error of Read is sticky. Close may be called while Read waits.
type Body struct {
	src   io.ReadCloser
	mu    sync.Mutex
	top   io.Reader
	stops []interface{ Stop() }
	err   error
}

// NewBody returns a chain with only src.
func NewBody(src io.ReadCloser) *Body { return &Body{src: src, top: src} }

// BodyOf returns the chain of a request's body, or nil if the request has no body. The chain becomes the body. The
// steps of an exchange replace a body only with BodyOf.
func BodyOf(req *http.Request) *Body {
	if req.Body == nil || req.Body == http.NoBody {
		return nil
	}
	b, ok := req.Body.(*Body)
	if !ok {
		b = NewBody(req.Body)
		req.Body = b
	}
	return b
}

// Split returns the present chain, and begins a new chain on top of it. After a reader of the new chain failed, the
// caller can still read the rest below. A nil Body has no rest. The caller must not call Split while Read waits.
func (b *Body) Split() *Body {
	if b == nil {
		return nil
	}
	below := &Body{src: b.src, top: b.top, stops: b.stops, err: b.err}
	b.src, b.top, b.stops, b.err = below, below, nil, nil
	return below
}

// AddReader puts a reader on top of the chain. If the reader has a Stop method, Close calls it. The caller must not
// call AddReader while Read waits.
func (b *Body) AddReader(wrap func(io.Reader) io.Reader) {
	b.top = wrap(b.top)
	if s, ok := b.top.(interface{ Stop() }); ok {
		b.stops = append(b.stops, s)
	}
}

// AddObserver calls see with each piece that leaves the present top of the chain.
func (b *Body) AddObserver(see func(p []byte)) {
	b.AddReader(func(src io.Reader) io.Reader { return io.TeeReader(src, observer(see)) })
}

// observer is a Writer that never fails.
type observer func(p []byte)

func (o observer) Write(p []byte) (int, error) {
	o(p)
	return len(p), nil
}

// AddDecoder puts a decoder for the encodings on top of the chain.
func (b *Body) AddDecoder(encodings []string) {
	if len(encodings) > 0 {
		b.AddReader(func(r io.Reader) io.Reader { return NewReader(r, encodings) })
	}
}

// Read reads from the top of the chain. A panic in a reader becomes ErrBroken: data from outside caused it, and a
// caller such as http.Transport does not recover.
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

// WholeReader is a reader that may return its whole text at once. If ok is false, the caller must read the text.
type WholeReader interface {
	ReadWhole() (text []byte, ok bool, err error)
}

// readTopWhole returns the whole body, if the topmost reader is a WholeReader that has it.
func (b *Body) readTopWhole() (text []byte, ok bool, err error) {
	top, ok := b.top.(WholeReader)
	if !ok {
		return nil, false, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return nil, false, b.err
	}
	defer func() {
		if recover() != nil {
			text, ok, err = nil, false, ErrBroken
		}
		// The text was returned as a whole, so a later Read must not return it again.
		if b.err = err; ok && err == nil {
			b.err = io.EOF
		}
	}()
	return top.ReadWhole()
}

// Close closes the source first, which ends a waiting Read. Then it stops the readers.
func (b *Body) Close() error {
	err := b.src.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopReaders()
	return err
}

// stopReaders stops the readers of the chain. The caller holds mu.
func (b *Body) stopReaders() {
	if b.err == nil {
		b.err = io.ErrClosedPipe
	}
	for _, s := range b.stops {
		s.Stop()
	}
	b.stops = nil
}

// ReleaseBody stops the readers of a request's body, and keeps the source open. Call it at the end of an exchange:
// http.Transport closes only the body of a request that it got. A body that is being read stays, because its reader
// closes it.
func ReleaseBody(req *http.Request) {
	if req == nil {
		return
	}
	for b, ok := req.Body.(*Body); ok && b.mu.TryLock(); b, ok = b.src.(*Body) {
		b.stopReaders()
		b.mu.Unlock()
	}
}

// putBack puts text that was read back before the rest. end is the error after the text, or nil for the rest.
func (b *Body) putBack(text []byte, end error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := b.top
	if end = cmp.Or(end, b.err); end != nil {
		rest = endReader{end}
	}
	b.top, b.err = io.MultiReader(bytes.NewReader(text), rest), nil
}

// endReader is a reader at its end.
type endReader struct{ err error }

func (e endReader) Read([]byte) (int, error) { return 0, e.err }

// ReadAhead reads a short body of known length to its end, so that the new length and any error are known before the
// request leaves. The caller has added its readers to the chain of BodyOf.
//
// For more than membudget.Free decoded bytes, ReadAhead takes memory of the request's account. A longer body streams,
// and keeps its length unless changes is true.
func ReadAhead(req *http.Request, changes bool) error {
	body := BodyOf(req)
	req.GetBody = nil // it would return the text before the change
	if req.ContentLength > 0 && req.ContentLength <= ExactUpTo {
		data, whole, err := body.readTopWhole()
		if err == nil && !whole {
			data, err = membudget.FromContext(req.Context()).ReadAll(req.Context(), body, 2*ExactUpTo, 2*ExactUpTo)
		}
		if err != nil {
			body.putBack(nil, err) // a caller that continues must not send only the rest
			return err
		}
		// ReadAll stops at the bound, so a full buffer means that more may follow.
		if whole || len(data) < 2*ExactUpTo {
			body.putBack(data, io.EOF)
			setExactLength(req, data)
			return nil
		}
		body.putBack(data, nil)
		changes = true
	}
	// Go sends a request of unknown length in chunks.
	if changes {
		req.ContentLength = -1
		req.Header.Del("Content-Length")
	}
	return nil
}

// PeekBody reads a request's body up to limit bytes, and puts these bytes back. If the body is longer, whole is false
// and the text is longer than limit. For a body of more than membudget.Free bytes, it first takes cost bytes of the
// request's account.
func PeekBody(req *http.Request, limit, cost int) (text []byte, whole bool, err error) {
	body := BodyOf(req)
	if body == nil {
		return nil, true, nil
	}
	held := membudget.FromContext(req.Context())
	if text, err = held.ReadAll(req.Context(), body, int64(limit)+1, int64(cost)); err != nil {
		return nil, false, err
	}
	if len(text) <= limit {
		body.putBack(text, io.EOF)
		return text, true, nil
	}
	body.putBack(text, nil)
	return text, false, nil
}

// setExactLength announces the length of a whole body, which can be sent again after a failed connection.
func setExactLength(req *http.Request, data []byte) {
	req.ContentLength = int64(len(data))
	if req.Header.Get("Content-Length") != "" {
		req.Header.Set("Content-Length", strconv.Itoa(len(data)))
	}
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}
