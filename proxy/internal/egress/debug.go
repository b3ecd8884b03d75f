package egress

import (
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
)

// maxPayload is how many bytes of a body DEBUG_MODE logs.
const maxPayload = 4 << 10

// debugPayloads holds the texts that DEBUG_MODE logs of an exchange: the request before swapping, the response after
// scrubbing. Credentials and redacted strings are removed from both. A nil payloads logs no text.
type debugPayloads struct {
	request, response string // heads
	up, down          bodyStart
}

// bodyStart keeps the first bytes of a body.
type bodyStart struct {
	most int
	mu   sync.Mutex
	data []byte
}

func (c *bodyStart) addBytes(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data = append(c.data, p[:min(len(p), c.most-len(c.data))]...)
}

// cleanText returns the text to log, cleaned before it is cut.
func (c *bodyStart) cleanText(clean func(string) string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := clean(string(c.data))
	return text[:min(len(text), maxPayload)]
}

// keepForLog keeps the beginning of the request, if debug is on.
func (m *requestMessage) keepForLog(debug bool) error {
	if !debug {
		return nil
	}
	// Twice as many bytes as are logged: a string that must not be logged is found whole even if the log cuts it.
	m.debug = &debugPayloads{
		request: formatHead(m.out.Header), up: bodyStart{most: 2 * maxPayload}, down: bodyStart{most: 2 * maxPayload},
	}
	if body := coding.BodyOf(m.out); body != nil {
		body.AddObserver(m.debug.up.addBytes)
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

// writeLog logs both payloads. status is that of the answer.
func (p *debugPayloads) writeLog(to *slog.Logger, n *receipt.Note, status int, clean func(string) string) {
	if p == nil {
		return
	}
	log := to.With(logline.Tag("debug"), slog.String("run", n.Run))
	log.Debug(">>> "+n.Method+" "+n.URL, slog.String("head", p.request), slog.String("body", p.up.cleanText(clean)))
	log.Debug("<<< "+n.URL, slog.Int("status", status), slog.String("head", p.response),
		slog.String("body", p.down.cleanText(clean)))
}
