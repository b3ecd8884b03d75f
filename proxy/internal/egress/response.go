package egress

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

type byteCounter = atomic.Int64

var (
	errPanic  = errors.New("a bug in the proxy")
	errStatus = errors.New("the upstream's status is not that of a final response")
)

// scrubResponse takes a response through its steps.
func (x *exchange) scrubResponse(resp *http.Response) *http.Response {
	upstreamBody := resp.Body
	for _, do := range responseSteps {
		if err := do(x, resp); err != nil {
			_ = upstreamBody.Close()
			return x.refusal(err)
		}
	}
	return resp
}

// removeHopHeaders removes the headers of the connection that a response arrived on.
func (x *exchange) removeHopHeaders(resp *http.Response) error {
	trim(resp.Header)
	resp.Trailer = nil // not announced, because the proxy can scrub a trailer's name only once it has arrived
	return nil
}

// checkCompression refuses a compressed body if the host may not compress.
func (x *exchange) checkCompression(resp *http.Response) error {
	return x.compression.check(resp, x.out.Method)
}

// reserveWindows reserves memory for the decoders of a body. The proxy asked for no such encoding.
func (x *exchange) reserveWindows(resp *http.Response) error {
	if !x.takeWindows(coding.ParseResponse(resp.Header)) {
		return scrub.ErrEncoding
	}
	return nil
}

// scrubAnswer replaces credentials by their names.
func (x *exchange) scrubAnswer(resp *http.Response) (err error) {
	x.w.bulk = resp.ContentLength > 0 // scrubbing makes the length unknown
	x.scrubbed, err = x.snap.Scrub.ScrubResponse(resp, scrub.Options{
		Method: x.out.Method, Sent: x.listSent(), KeepETag: canKeepETag(x.holders()),
		Framing: x.framingOf(resp.Header), Held: x.held,
	})
	return err
}

// setDelivery decides how the body reaches the client.
func (x *exchange) setDelivery(resp *http.Response) error {
	if resp.Header.Get("Content-Type") == "" {
		resp.Header["Content-Type"] = nil // keeps net/http from guessing one
	}
	// The client of a stream waits for each piece. A body of known length needs no flushes.
	x.w.flush = resp.ContentLength < 0
	x.w.bulk = x.w.bulk && x.w.flush
	x.note.Type = mediaType(resp.Header)
	return nil
}

// watchEnd notes how the body ends.
func (x *exchange) watchEnd(resp *http.Response) error {
	// HEAD, 204 and 304 have no end to wait for.
	if resp.Body == nil || resp.Body == http.NoBody {
		x.whole = true
		return nil
	}
	x.seen = x.newCapture(resp)
	resp.Body = &watchedBody{ReadCloser: resp.Body, x: x, late: x.answer}
	return nil
}

// mediaType returns the type of a response, or "" if it is not one of proxyapi.MediaTypes.
func mediaType(h http.Header) string {
	t, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	t = strings.ToLower(strings.TrimSpace(t))
	if !slices.Contains(proxyapi.MediaTypes(), t) {
		return ""
	}
	return t
}

// canKeepETag reports whether all APIs that hold a host and have credentials keep the ETag of responses.
func canKeepETag(holders []*catalog.API) bool {
	return !slices.ContainsFunc(holders, func(a *catalog.API) bool { return len(a.Credentials) > 0 && !a.KeepETag })
}

// listSent lists the token names whose credentials have left so far. A signing key does not leave, but a session token
// beside the signature does.
func (x *exchange) listSent() []string {
	var out []string
	if x.minted.token {
		out = append(out, x.minted.signed[0].Name)
	}
	for _, s := range x.swapped.Swapped() {
		out = append(out, s.Name)
	}
	return out
}

// trim removes hop-by-hop headers, and Alt-Svc, which would lead clients past the proxy.
func trim(h http.Header) {
	for _, v := range h["Connection"] {
		for _, name := range strings.Split(v, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
	delete(h, "Alt-Svc")
	delete(h, headerPlanned) // only CodeForge sends this header; an upstream could fake a recorded step
}

// watchedBody notes how an upstream's body ended. If the body broke off, finish aborts the answer.
type watchedBody struct {
	io.ReadCloser
	x    *exchange
	late *lateWatch
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.late.countLeft(p[:n])
	if s := b.x.seen; s != nil {
		s.Write(p[:min(n, approval.MaxRead-s.Len())])
	}
	switch err { //nolint:errorlint // io.Reader's own sentinel
	case nil:
	case io.EOF:
		// An upstream that notices the abort may still end its body properly, so EOF alone does not prove a whole body.
		if cause := context.Cause(b.x.ctx); cause != nil {
			b.x.cut = cause
			return n, cause
		}
		b.x.whole = true
	default:
		b.x.bodyErr = err
	}
	return n, err
}

// responseWriter is the response writer that goproxy sees. It counts bytes, and flushes bodies of unknown length as
// they arrive.
type responseWriter struct {
	http.ResponseWriter
	status int
	first  time.Time // of the head
	bytes  int64
	flush  bool
	bulk   bool           // a long complete body, whose pieces may be coalesced; not a stream of events
	err    error          // writing failed: the client disconnected
	conn   *entrance.Conn // corked while a piece is written; nil for HTTP/2
}

func (a *responseWriter) WriteHeader(status int) {
	if a.status == 0 {
		a.status, a.first = status, time.Now()
	}
	a.ResponseWriter.WriteHeader(status)
	if a.flush { // the client needs the head before the first byte of the body arrives
		a.Flush()
	}
}

func (a *responseWriter) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status, a.first = http.StatusOK, time.Now()
	}
	// Chunk framing and flush make several writes: the cork joins them.
	if a.flush && a.conn != nil {
		a.conn.Cork()
		if a.bulk {
			defer a.conn.UncorkSoon()
		} else {
			defer a.sendCorked()
		}
	}
	n, err := a.ResponseWriter.Write(p) //nolint:gosec // passing on what the upstream sent is the purpose
	a.bytes += int64(n)
	if err == nil && a.flush {
		err = http.NewResponseController(a.ResponseWriter).Flush()
	}
	if err != nil && !errors.Is(err, http.ErrBodyNotAllowed) {
		a.err = err
	}
	return n, err
}

// sendCorked sends the bytes that a write and its flush produced.
func (a *responseWriter) sendCorked() {
	if err := a.conn.Uncork(); err != nil && a.err == nil {
		a.err = err
	}
}

// copyBuffers holds the buffers through which bodies are copied.
var copyBuffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// ReadFrom implements io.ReaderFrom with a pooled buffer.
func (a *responseWriter) ReadFrom(r io.Reader) (int64, error) {
	buf := copyBuffers.Get().(*[64 << 10]byte)
	defer copyBuffers.Put(buf)
	// UncorkSoon may still hold the last piece.
	if a.bulk && a.conn != nil {
		defer a.sendCorked()
	}
	// The wrappers hide ReadFrom and WriteTo, which would call this method again or pass by Write.
	return io.CopyBuffer(struct{ io.Writer }{a}, struct{ io.Reader }{r}, buf[:])
}

func (a *responseWriter) Flush() { _ = http.NewResponseController(a.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController reach the connection.
func (a *responseWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// send answers with a response, and closes its body.
func (a *responseWriter) send(resp *http.Response) {
	defer resp.Body.Close()
	maps.Copy(a.Header(), resp.Header)
	a.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(a, resp.Body)
}

// formatStack lists the functions and lines of this goroutine's calls, without values: they could hold a credential.
func formatStack() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	var b strings.Builder
	for {
		f, more := frames.Next()
		b.WriteString(f.Function + ":" + strconv.Itoa(f.Line) + " ")
		if !more {
			return b.String()
		}
	}
}
