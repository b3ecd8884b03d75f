package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
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
	"github.com/codeforge-mcp/codeforge/internal/voice"
	"github.com/codeforge-mcp/codeforge/proxy/internal/charset"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/dialguard"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
	"github.com/codeforge-mcp/codeforge/proxy/internal/mint"
	"github.com/codeforge-mcp/codeforge/proxy/internal/plan"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

type counter = atomic.Int64

var (
	errPanic  = errors.New("a bug in the proxy")
	errStatus = errors.New("the upstream's status is not that of a final response")
)

// scrubResponse scrubs a response and removes the headers of the connection that it arrived on.
func (x *exchange) scrubResponse(resp *http.Response, method string) *http.Response {
	x.trim(resp.Header)
	resp.Trailer = nil // not announced, because the proxy can scrub a trailer's name only once it has arrived
	upstreamBody := resp.Body
	if err := x.compression.judge(resp, method); err != nil {
		_ = upstreamBody.Close()
		return x.failureResponse(err)
	}
	if !x.takeWindows(coding.ParseResponse(resp.Header)) { // the proxy asked for no such encoding either
		_ = upstreamBody.Close()
		return x.failureResponse(scrub.ErrEncoding)
	}
	late := x.watchLateness(resp.Header, resp.ContentLength, func() bool { return x.scrubbed.Count() > 0 })
	if late != nil {
		resp.Body = &arrivingBody{resp.Body, late}
	}
	whole := resp.ContentLength > 0
	o := scrub.Options{
		Method: method, Sent: x.sent(), KeepETag: keepsETag(x.snap.Rules.Catalog.Match(x.host)),
		Framing: x.framingOf(resp.Header), Held: x.held,
	}
	report, err := x.snap.Scrub.Response(resp, o)
	x.scrubbed = report
	// Scrub everything else first: the signature's scrubber relies on an already decoded body.
	if err == nil {
		err = x.scrubSignature(resp, scrub.Options{Method: method, KeepETag: o.KeepETag, Framing: o.Framing})
	}
	if err != nil {
		_ = upstreamBody.Close()
		return x.failureResponse(err)
	}
	if resp.Header.Get("Content-Type") == "" {
		resp.Header["Content-Type"] = nil // keeps net/http from guessing one
	}
	// The client of a stream waits for each piece. A body of known length needs no flushes.
	x.w.flush = resp.ContentLength < 0
	x.w.bulk = whole && x.w.flush
	x.note.Type = mediaType(resp.Header)
	x.debugResponse(resp)
	// HEAD, 204 and 304 have no end to wait for.
	if resp.Body == nil || resp.Body == http.NoBody {
		x.whole = true
		return resp
	}
	x.seen = x.sees(resp)
	resp.Body = &watched{ReadCloser: resp.Body, x: x, late: late}
	return resp
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

// keepsETag reports whether all APIs that hold a host and have credentials keep the ETag of responses.
func keepsETag(holders []*catalog.API) bool {
	return !slices.ContainsFunc(holders, func(a *catalog.API) bool { return len(a.Credentials) > 0 && !a.KeepETag })
}

// sent lists the token names whose credentials have left so far. A signing key does not leave, but a session token
// beside the signature does.
func (x *exchange) sent() []string {
	var out []string
	if x.minted.token {
		out = append(out, x.minted.signed[0].Name)
	}
	for _, s := range x.swapped.swaps() {
		out = append(out, s.Name)
	}
	return out
}

// trim removes hop-by-hop headers, and Alt-Svc, which would lead clients past the proxy.
func (x *exchange) trim(h http.Header) {
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

// fail answers with the refusal for an error.
func (x *exchange) fail(err error) {
	status, r := x.noteFailure(err)
	x.w.json(status, r)
}

// failureResponse is like fail, but returns a response for goproxy to write.
func (x *exchange) failureResponse(err error) *http.Response {
	status, r := x.noteFailure(err)
	body := refusalBody(r)
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Content-Type":   {"application/json"},
			"Content-Length": {strconv.Itoa(len(body))},
		},
		ContentLength: int64(len(body)),
		Body:          io.NopCloser(bytes.NewReader(body)),
	}
}

// noteFailure records why there is no response and returns the client's answer. Only this function maps errors to
// answers.
func (x *exchange) noteFailure(err error) (int, proxyapi.Refusal) {
	host := x.host
	x.note.Cause = err
	x.cut = context.Cause(x.ctx)
	var v policy.Verdict
	var ambiguity *swap.Ambiguity
	var ambiguous *formdata.Error
	var missing *mint.Error
	var planned *notPlannedError
	// The order matters: an error that code caused is answered as such, before the rest counts as the upstream's failure.
	switch {
	case errors.Is(err, membudget.ErrFull):
		v = policy.Refuse(policy.CodeTooMany, host, nil)
	case errors.As(err, &planned):
		v = planned.v
	case errors.As(err, &missing):
		v = policy.RefuseCredential(missing.Code, missing.Name, host)
	case x.toBroker && x.scrubbed == nil:
		v = x.callFailure(err)
	case errors.As(err, &ambiguity):
		v = policy.Ambiguous(ambiguity.Reason, host)
	case errors.As(err, &ambiguous):
		v = policy.Ambiguous(ambiguous.Sentence(), host)
	case errors.Is(err, swap.ErrCarriesValue):
		v = policy.Refuse(policy.CodeCredentialSent, host, nil)
	case errors.Is(err, policy.ErrOverrideUnseen):
		v = policy.RefuseOverride(err, host, x.verdict.APIs)
	case x.scrubbed == nil && unreadable(err):
		v = policy.Refuse(policy.CodeBodyUnreadable, host, nil)
	default:
		code := upstream.Classify(err)
		switch {
		case errors.Is(err, scrub.ErrEncoding):
			code = upstream.CodeEncoding
		case errors.Is(err, charset.ErrUnknown):
			code = upstream.CodeCharset
		case errors.Is(err, errCompressed):
			code = upstream.CodeCompressed
		}
		failure := upstream.Failure{Code: code, Host: x.note.Host, Cause: err}
		if len(x.verdict.APIs) > 0 {
			failure.API = x.verdict.APIs[0].Name
		}
		v = policy.Verdict{Status: upstream.Status(code), Refusal: failure.Refusal()}
		if x.lease.Kind() == policy.KindInstall {
			hint := installHint(code, err, voice.Text{Model: v.Refusal.Hint, Person: v.Refusal.Person})
			v.Refusal.Hint, v.Refusal.Person = hint.Model, hint.Person
		}
	}
	v = v.For(x.lease)
	x.note.Outcome, x.note.Code = proxyapi.OutcomeFailed, v.Refusal.Code
	// Refusals by the proxy are denials. Only failures of the upstream or of the network count as failed.
	if v.Status == http.StatusForbidden || v.Status == http.StatusBadRequest || errors.Is(err, dialguard.ErrRefused) ||
		planned != nil || errors.Is(err, membudget.ErrFull) {
		x.note.Outcome = proxyapi.OutcomeDenied
	}
	hint := []proxyapi.Hint{v.Hint()}
	if v.Refusal.Code == upstream.CodeBroken && x.cut != nil {
		hint = x.unanswered() // the client disconnected or the run ended: the connection is not at fault
		if errors.Is(x.cut, errReloaded) {
			hint = nil // setting the outcome adds this hint
		}
	}
	x.note.Hints = append(x.note.Hints, hint...)
	return v.Status, v.Refusal
}

// unreadable reports whether an error says that a body does not match its headers. Before there is a response, the body
// is the request's.
func unreadable(err error) bool {
	return errors.Is(err, swap.ErrEncoding) || errors.Is(err, coding.ErrBroken) || errors.Is(err, coding.ErrRatio)
}

func refusalBody(r proxyapi.Refusal) []byte {
	body, err := json.Marshal(r)
	if err != nil {
		return []byte(`{"error":"The request was refused."}`)
	}
	return append(body, '\n')
}

// watched notes how an upstream's body ended. If the body broke off, finish aborts the answer.
type watched struct {
	io.ReadCloser
	x    *exchange
	late *lateness
}

func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.late.leave(n)
	if s := b.x.seen; s != nil {
		s.Write(p[:min(n, plan.MaxRead-s.Len())])
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
			defer a.uncork()
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

// uncork sends the bytes that a write and its flush produced.
func (a *responseWriter) uncork() {
	if err := a.conn.Uncork(); err != nil && a.err == nil {
		a.err = err
	}
}

// buffers holds the buffers through which bodies are copied.
var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// ReadFrom implements io.ReaderFrom with a pooled buffer.
func (a *responseWriter) ReadFrom(r io.Reader) (int64, error) {
	buf := buffers.Get().(*[64 << 10]byte)
	defer buffers.Put(buf)
	// UncorkSoon may still hold the last piece.
	if a.bulk && a.conn != nil {
		defer a.uncork()
	}
	// The wrappers hide ReadFrom and WriteTo, which would call this method again or pass by Write.
	return io.CopyBuffer(struct{ io.Writer }{a}, struct{ io.Reader }{r}, buf[:])
}

func (a *responseWriter) Flush() { _ = http.NewResponseController(a.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController reach the connection.
func (a *responseWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// json answers with a refusal.
func (a *responseWriter) json(status int, r proxyapi.Refusal) {
	body := refusalBody(r)
	a.Header().Set("Content-Type", "application/json")
	a.Header().Set("Content-Length", strconv.Itoa(len(body)))
	a.WriteHeader(status)
	_, _ = a.Write(body)
}

// stack lists the functions and lines of this goroutine's calls, without values: they could hold a credential.
func stack() string {
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
