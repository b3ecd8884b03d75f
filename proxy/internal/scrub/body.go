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
	b := &scrubbedBody{x: x, src: resp.Body, decoded: coding.NewReader(resp.Body, encodings)}
	// Two searches: code can undo the decoding by a wrong charset, so the raw bytes are searched besides the text.
	b.text = charset.NewReader(b.decoded, how, scrubbed)
	b.scrubbed = x.options.Framing.WrapMessages(b.text, scrubbed)
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
	return x.readExact(b, encodings)
}

// dropLength sends a body whose final length is unknown. It drops Content-Length and digests.
func (x *responseScrub) dropLength() {
	x.resp.ContentLength = -1
	x.resp.Header.Del("Content-Length")
	x.dropDigests(x.resp.Header, len(x.options.Sent) > 0)
}

// readExact reads a body of known length to its end, so that the exact new length can be announced. If the decoded body
// has 2*coding.ExactUpTo bytes or more, it streams.
func (x *responseScrub) readExact(b *scrubbedBody, encodings []string) error {
	before := x.report.Count()
	b.buffer = bodyBuffers.Get().(*bytes.Buffer)
	b.buffer.Reset()
	// The decoded body may be longer than its announced length: stop at a bound.
	_, err := io.CopyN(b.buffer, b, 2*coding.ExactUpTo)
	b.ahead = b.buffer.Bytes()
	if err == nil {
		x.dropLength()
		return nil
	}
	if err != io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
		return err
	}
	x.resp.ContentLength = int64(len(b.ahead))
	x.resp.Header.Set("Content-Length", strconv.Itoa(len(b.ahead)))
	// Without a replacement, identical bytes leave, and the digests stay valid.
	if changed := x.report.Count() != before; changed || len(encodings) > 0 || b.text.HasDecoder() {
		x.dropDigests(x.resp.Header, changed)
	}
	return nil
}

// bodyBuffers is a pool for bodies that are read before the head leaves.
var bodyBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// scrubbedBody is a scrubbed body. At the end of the body it scrubs the trailers.
type scrubbedBody struct {
	x        *responseScrub
	src      io.ReadCloser
	decoded  *coding.Reader
	text     *charset.Reader
	mu       sync.Mutex // Close may be called while Read waits
	scrubbed io.Reader
	buffer   *bytes.Buffer
	ahead    []byte // the rest of buffer
	err      error
}

func (b *scrubbedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ahead) > 0 {
		n := copy(p, b.ahead)
		b.ahead = b.ahead[n:]
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.scrubbed.Read(p)
	if err != nil {
		b.err = err
		// The trailers are complete only after the last byte of the body.
		if err == io.EOF { //nolint:errorlint // an io.Reader ends with this value itself
			b.x.scrubTrailer()
		}
	}
	return n, err
}

// Close closes the source first, which ends a waiting Read. Then it returns the buffers to their pools.
func (b *scrubbedBody) Close() error {
	// Closing before locking: a waiting Read holds mu.
	err := b.src.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = io.ErrClosedPipe
	}
	// ahead points into the buffer, which another response may take from the pool.
	b.ahead = nil
	if b.buffer != nil {
		bodyBuffers.Put(b.buffer)
		b.buffer = nil
	}
	b.scrubbed.(interface{ Stop() }).Stop()
	b.text.Stop()
	b.decoded.Stop()
	return err
}

// scrubTrailer scrubs the trailers. HTTP delivers them after the body.
func (x *responseScrub) scrubTrailer() {
	//defence:scrub-headers
	x.scrubHeaders(x.resp.Trailer, "trailer:")
	if len(x.options.Sent) > 0 || x.report.Count() > 0 {
		x.dropDigests(x.resp.Trailer, true)
	}
}
