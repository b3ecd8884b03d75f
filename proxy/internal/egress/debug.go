package egress

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/logline"
)

// maxPayload is how many bytes of a body DEBUG_MODE logs.
const maxPayload = 4 << 10

// debugPayloads holds the texts that DEBUG_MODE logs of an exchange: the request before swapping, the response after
// scrubbing. Credentials and redacted strings are removed from both. A nil payloads logs no text.
type debugPayloads struct {
	request, response string // heads
	up, down          bodyStart
}

// bodyStart keeps the first bytes of a body, twice as many as are logged. So a string that must not be logged is found
// whole even if the log cuts it.
type bodyStart struct {
	mu   sync.Mutex
	data []byte
}

func (c *bodyStart) addBytes(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data = append(c.data, p[:min(len(p), 2*maxPayload-len(c.data))]...)
}

// cleanText returns the text to log, cleaned before it is cut.
func (c *bodyStart) cleanText(clean func(string) string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := clean(string(c.data))
	return text[:min(len(text), maxPayload)]
}

// tappedBody is a body that shows each piece to tap after it was read.
type tappedBody struct {
	io.ReadCloser
	tap func(p []byte)
}

func (b *tappedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.tap(p[:n])
	return n, err
}

// debugRequest keeps the beginning of a request for the log.
func (x *exchange) debugRequest() error {
	if !x.conf.Debug {
		return nil
	}
	out := x.out
	x.debug = &debugPayloads{request: formatHead(out.Header)}
	if out.Body != nil && out.Body != http.NoBody {
		out.Body = &tappedBody{out.Body, x.debug.up.addBytes}
	}
	return nil
}

// debugResponse keeps the beginning of an answer for the log.
func (x *exchange) debugResponse(resp *http.Response) error {
	if x.debug == nil {
		return nil
	}
	x.debug.response = formatHead(resp.Header)
	if resp.Body != nil {
		resp.Body = &tappedBody{resp.Body, x.debug.down.addBytes}
	}
	return nil
}

// formatHead writes header names in lower case, because CleanForLog finds credentials only in lower-case headers.
func formatHead(h http.Header) string {
	lower := http.Header{}
	for name, values := range h {
		lower[strings.ToLower(name)] = values
	}
	var b strings.Builder
	_ = lower.Write(&b)
	return b.String()
}

// logPayloads writes both payloads.
func (x *exchange) logPayloads() {
	p := x.debug
	if p == nil {
		return
	}
	log := x.conf.Log.With(logline.Tag("debug"), slog.String("run", x.note.Run))
	log.Debug(">>> "+x.note.Method+" "+x.note.URL, slog.String("head", p.request),
		slog.String("body", p.up.cleanText(x.cleanForLog)))
	log.Debug("<<< "+x.note.URL, slog.Int("status", x.w.status), slog.String("head", p.response),
		slog.String("body", p.down.cleanText(x.cleanForLog)))
}
