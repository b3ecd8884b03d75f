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
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reload"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/wsrelay"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

var (
	errPanic  = errors.New("a bug in the proxy")
	errStatus = errors.New("the upstream's status is not that of a final response")
)

// upstreamAnswer says what came back, and how it ended.
type upstreamAnswer struct {
	left     atomic.Bool // a part of the request, its head at least, may have been sent to the upstream
	status   int         // of the upstream's answer, or 0
	late     *lateWatch  // of the body; may be nil
	scrubbed *scrub.Report
	unsigned *scrub.Report // the report on signatures of requests
	ws       *wsrelay.Report
	bodyErr  error // the upstream's body broke off
	whole    bool  // the upstream's body was read to its end
	cut      error // why the exchange was cut short, or nil
}

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

// noteReport notes what was found in the answer, and in the messages of a WebSocket.
func (a *upstreamAnswer) noteReport(n *receipt.Note, host catalog.Host, snap *reload.Snapshot, run policy.Run) {
	if a.scrubbed != nil {
		n.Sanitized = a.scrubbed.Count() + a.unsigned.Count()
		for _, f := range a.scrubbed.ListFound() {
			n.Scrubbed = append(n.Scrubbed, proxyapi.Swap{Name: f.Name, In: f.In, Count: f.Count})
		}
	}
	if a.ws != nil {
		scrubbed, redacted, up, down := a.ws.Counts()
		n.Sanitized, n.Redacted = n.Sanitized+scrubbed, n.Redacted+redacted
		n.BytesUp, n.BytesDown = n.BytesUp+up, n.BytesDown+down
		n.Swapped = append(n.Swapped, toSwaps(a.ws.Swapped())...)
		n.Hints = append(n.Hints, hintUnswapped(host, snap.Rules.Catalog, run, a.ws)...)
	}
}

// checkStatus refuses a status on which net/http panics, above 999, or that it sends as an interim answer.
func checkStatus(status int) error {
	if status < 200 || status > 999 {
		return errStatus
	}
	return nil
}

// reserveWindows reserves memory for the decoders of a body. The proxy asked for no such encoding.
func reserveWindows(ctx context.Context, resp *http.Response) error {
	if !takeWindows(ctx, resp.Header, coding.ParseResponse) {
		return scrub.ErrEncoding
	}
	return nil
}

// watchArrival watches for messages that the scrubber, which searches the body later, holds back.
func (a *upstreamAnswer) watchArrival(m *requestMessage, resp *http.Response, apis []*catalog.API) error {
	a.late = m.watchBody(resp.Header, resp.ContentLength, apis, func() bool { return a.scrubbed.Count() > 0 })
	if a.late != nil {
		body := coding.NewBody(resp.Body)
		body.AddObserver(a.late.countArrived)
		resp.Body = body
	}
	return nil
}

// scrubAnswer replaces credentials, and then the request's signature, by their names. The second search is on a decoded
// body, and costs less than a new scrubber for all credentials.
func (x *exchange) scrubAnswer(resp *http.Response) (err error) {
	x.w.bulk = resp.ContentLength > 0 // scrubbing makes the length unknown
	o := scrub.Options{
		Method: x.msg.out.Method, Sent: x.creds.listSent(), KeepETag: canKeepETag(x.holders()),
		Framing: x.msg.framingOf(resp.Header), Held: membudget.FromContext(x.ctx),
	}
	x.answer.scrubbed, err = x.snap.Scrub.ScrubResponse(resp, o)
	s := x.creds.signature.newScrubber()
	if err != nil || s == nil {
		return err
	}
	o.Sent, o.Held, o.Framing = nil, nil, x.msg.framingOf(resp.Header)
	x.answer.unsigned, err = s.ScrubResponse(resp, o)
	return err
}

// setDelivery decides how the body reaches the client.
func (a *responseWriter) setDelivery(resp *http.Response, n *receipt.Note) error {
	if resp.Header.Get("Content-Type") == "" {
		resp.Header["Content-Type"] = nil // keeps net/http from guessing one
	}
	// The client of a stream waits for each piece. A body of known length needs no flushes.
	a.flush = resp.ContentLength < 0
	a.bulk = a.bulk && a.flush
	n.Type = mediaType(resp.Header)
	return nil
}

// observeBody shows the scrubbed body to the features that read it, and notes how the body ends. ctx is that of the
// exchange.
func (a *upstreamAnswer) observeBody(ctx context.Context, resp *http.Response, m *requestMessage, p *planUse) error {
	if m.debug != nil {
		m.debug.response = formatHead(resp.Header)
	}
	// HEAD, 204 and 304 have no end to wait for.
	if resp.Body == nil || resp.Body == http.NoBody {
		a.whole = true
		return nil
	}
	body := &observedBody{ReadCloser: resp.Body, ctx: ctx, answer: a}
	if a.late != nil {
		body.observers = append(body.observers, a.late.countLeft)
	}
	if m.debug != nil {
		body.observers = append(body.observers, m.debug.down.addBytes)
	}
	// The plan keeps the JSON that a dry run's GET returned.
	if p.read != nil && p.read.Method == http.MethodGet && resp.StatusCode == http.StatusOK &&
		strings.Contains(resp.Header.Get("Content-Type"), "json") {
		p.seen = &bodyStart{most: approval.MaxRead}
		body.observers = append(body.observers, p.seen.addBytes)
	}
	resp.Body = body
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

// removeHopHeaders removes the headers of the connection that a response arrived on, and Alt-Svc, which would lead
// clients past the proxy.
func removeHopHeaders(resp *http.Response) error {
	h := resp.Header
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
	resp.Trailer = nil       // not announced, because the proxy can scrub a trailer's name only once it has arrived
	return nil
}

// observedBody shows each piece of an answer's body to its observers, and notes how the body ended. If the body broke
// off, finishExchange aborts the answer.
type observedBody struct {
	io.ReadCloser
	ctx       context.Context // of the exchange
	answer    *upstreamAnswer
	observers []func(p []byte)
}

func (b *observedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	// Bytes may arrive after a reload ended the exchange, whose scrubber does not know the new values. An upstream that
	// notices the abort may also end its body properly, so EOF does not prove a whole body.
	if cause := context.Cause(b.ctx); cause != nil {
		b.answer.cut = cause
		return 0, cause
	}
	for _, see := range b.observers {
		see(p[:n])
	}
	switch err { //nolint:errorlint // io.Reader's own sentinel
	case nil:
	case io.EOF:
		b.answer.whole = true
	default:
		b.answer.bodyErr = err
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
