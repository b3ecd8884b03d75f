package scrub

import (
	"bytes"
	"io"
	"strconv"
	"sync"

	"github.com/codeforge-mcp/codeforge/proxy/internal/charset"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
)

// scrubBody replaces the body of the response by a scrubbed one. how decodes its characters.
func (x *responseScrub) scrubBody(encodings []string, how charset.Reading) error {
	resp := x.resp
	known := resp.ContentLength
	scrubbed := func(src io.Reader) io.Reader {
		return x.scrubber.set.NewReader(src, func(id int) (string, error) { return x.replaceValue(id), nil })
	}
	var text *charset.Reader
	b := coding.NewBody(resp.Body)
	b.AddDecoder(encodings)
	// Two searches: code can undo the decoding by a wrong charset, so the raw bytes are searched besides the text.
	b.AddReader(func(src io.Reader) io.Reader { text = charset.NewReader(src, how, scrubbed); return text })
	b.AddReader(func(src io.Reader) io.Reader { return x.options.Framing.WrapMessages(src, scrubbed) })
	b.AddReader(func(src io.Reader) io.Reader { return &trailerReader{src, x} })
	resp.Header.Del("Content-Encoding")
	// The body leaves in UTF-8, so the head must not name the former character set.
	how.DeclareUTF8(resp.Header)
	// swap.DropRange removes Range from a request with a credential, so the server must not offer ranges.
	if len(x.options.Sent) > 0 {
		resp.Header.Del("Accept-Ranges")
	}
	resp.Body = b
	// A buffer doubles when it is full, so the body may take twice its length.
	ahead := 2 * known
	if len(encodings) > 0 {
		ahead = 4 * coding.ExactUpTo
	}
	// A body streams if its length is unknown, if it is long, or if the memory account has no room.
	if known < 0 || known > coding.ExactUpTo || !x.options.Held.TryTake(ahead) {
		x.dropLength()
		return nil
	}
	changed, err := x.readExact(b)
	// Without a change, identical bytes leave, and the digests stay valid.
	if err == nil && resp.ContentLength >= 0 && (changed || len(encodings) > 0 || text.HasDecoder()) {
		x.dropDigests(resp.Header, changed)
	}
	return err
}

// dropLength sends a body whose final length is unknown. It drops Content-Length and digests.
func (x *responseScrub) dropLength() {
	x.resp.ContentLength = -1
	x.resp.Header.Del("Content-Length")
	x.dropDigests(x.resp.Header, len(x.options.Sent) > 0)
}

// readExact reads a body of known length to its end, so that the exact new length can be announced. If the decoded body
// has 2*coding.ExactUpTo bytes or more, it streams. changed means that a credential was replaced.
func (x *responseScrub) readExact(b *coding.Body) (changed bool, err error) {
	before := x.report.Count()
	buffer := bodyBuffers.Get().(*bytes.Buffer)
	buffer.Reset()
	x.resp.Body = &bufferedBody{Body: b, buffer: buffer}
	// The decoded body may be longer than its announced length: stop at a bound.
	switch _, err := io.CopyN(buffer, b, 2*coding.ExactUpTo); {
	case err == nil:
		x.dropLength()
		return false, nil
	case err != io.EOF: //nolint:errorlint // an io.Reader ends with this value itself
		return false, err
	}
	x.resp.ContentLength = int64(buffer.Len())
	x.resp.Header.Set("Content-Length", strconv.Itoa(buffer.Len()))
	return x.report.Count() != before, nil
}

// bodyBuffers is a pool for bodies that are read before the head leaves.
var bodyBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// bufferedBody is a body whose beginning is in a buffer of bodyBuffers.
type bufferedBody struct {
	*coding.Body
	mu     sync.Mutex // Close may be called while Read waits
	buffer *bytes.Buffer
}

func (b *bufferedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.buffer != nil && b.buffer.Len() > 0 {
		defer b.mu.Unlock()
		return b.buffer.Read(p)
	}
	b.mu.Unlock()
	return b.Body.Read(p)
}

func (b *bufferedBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buffer != nil {
		bodyBuffers.Put(b.buffer)
		b.buffer = nil
	}
	return b.Body.Close()
}

// trailerReader scrubs the trailers at the end of a body. They are complete only after its last byte.
type trailerReader struct {
	io.Reader
	x *responseScrub
}

func (r *trailerReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
		r.x.scrubTrailer()
	}
	return n, err
}

// scrubTrailer scrubs the trailers. HTTP delivers them after the body.
func (x *responseScrub) scrubTrailer() {
	//defence:scrub-headers
	x.scrubHeaders(x.resp.Trailer, "trailer:")
	if len(x.options.Sent) > 0 || x.report.Count() > 0 {
		x.dropDigests(x.resp.Trailer, true)
	}
}
