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

// payloads holds the texts that DEBUG_MODE logs of an exchange: the request before swapping, the response after
// scrubbing. Credentials and redacted strings are removed from both. A nil payloads logs no text.
type payloads struct {
	request, response string // heads
	up, down          copied
}

// copied keeps the first bytes of a body, twice as many as are logged. So a string that must not be logged is found
// whole even if the log cuts it.
type copied struct {
	mu   sync.Mutex
	data []byte
}

func (c *copied) keep(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data = append(c.data, p[:min(len(p), 2*maxPayload-len(c.data))]...)
}

// text returns the text to log, cleaned before it is cut.
func (c *copied) text(clean func(string) string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := clean(string(c.data))
	return text[:min(len(text), maxPayload)]
}

// tee copies the first bytes of a body while it is read.
type tee struct {
	io.ReadCloser
	to *copied
}

func (t *tee) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	t.to.keep(p[:n])
	return n, err
}

// debugRequest keeps the beginning of a request for the log.
func (x *exchange) debugRequest() error {
	if !x.conf.Debug {
		return nil
	}
	out := x.out
	x.debug = &payloads{request: headText(out.Header)}
	if out.Body != nil && out.Body != http.NoBody {
		out.Body = &tee{ReadCloser: out.Body, to: &x.debug.up}
	}
	return nil
}

// debugResponse keeps the beginning of an answer for the log.
func (x *exchange) debugResponse(resp *http.Response) error {
	if x.debug == nil {
		return nil
	}
	x.debug.response = headText(resp.Header)
	if resp.Body != nil {
		resp.Body = &tee{ReadCloser: resp.Body, to: &x.debug.down}
	}
	return nil
}

// headText writes header names in lower case, because Loggable finds credentials only in lower-case headers.
func headText(h http.Header) string {
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
		slog.String("body", p.up.text(x.loggable)))
	log.Debug("<<< "+x.note.URL, slog.Int("status", x.w.status), slog.String("head", p.response),
		slog.String("body", p.down.text(x.loggable)))
}
