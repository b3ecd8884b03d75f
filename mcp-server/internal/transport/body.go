package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tools"
)

// readBody reads the whole body of a POST, so that its size and number of messages are known before the SDK parses it.
// It returns false if it has answered the request.
func (h *Handler) readBody(s *responseStream, w http.ResponseWriter, r *http.Request, in *weighedBody) bool {
	if r.Method != http.MethodPost {
		return true
	}
	_ = s.rc.SetReadDeadline(time.Now().Add(h.cfg.ReadTime)) // not supported: no deadline
	in.Reader = http.MaxBytesReader(w, r.Body, h.cfg.MaxBody)
	body, err := io.ReadAll(in)
	// Without a deadline from here on: an event stream may last for hours.
	_ = s.rc.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		http.Error(s, "the request has more bytes than are allowed", http.StatusRequestEntityTooLarge)
		return false
	case errors.Is(err, errHeld):
		s.Header().Set("Retry-After", "1")
		http.Error(s, err.Error(), http.StatusServiceUnavailable)
		return false
	case err != nil:
		http.Error(s, "the request could not be read", http.StatusBadRequest)
		return false
	}
	if why := h.explainTooLarge(body); why != "" {
		http.Error(s, why, http.StatusRequestEntityTooLarge)
		return false
	}
	s.body = body
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return true
}

// weighedBody is a body that counts its bytes until release. Reading fails if all bodies together are too large.
type weighedBody struct {
	io.Reader
	held       *atomic.Int64
	read, most int64
}

// Read implements io.Reader.
func (b *weighedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += int64(n)
	if b.held.Add(int64(n)) > b.most {
		return n, errHeld
	}
	return n, err
}

func (b *weighedBody) releaseBytes() { b.held.Add(-b.read) }

// explainTooLarge returns why a body is too large, or "". It refuses a batch of too many messages, and a message with a
// long part other than the params of a tool call. The SDK refuses text that is not JSON.
func (h *Handler) explainTooLarge(body []byte) string {
	first := bytes.TrimLeft(body, " \t\r\n")
	batch := len(first) > 0 && first[0] == '['
	// Counted without decoding, because a batch of tiny messages takes many times the memory when decoded.
	if batch && countMessages(first, h.cfg.MaxBatch) > h.cfg.MaxBatch {
		return "the batch has more messages than are allowed"
	}
	//defence:message-bounds permits
	if len(body) <= tools.MaxParams {
		return ""
	}
	all := []json.RawMessage{first}
	if batch && json.Unmarshal(first, &all) != nil {
		return ""
	}
	for _, raw := range all {
		m, err := jsonrpc.DecodeMessage(raw)
		if err != nil {
			continue
		}
		rest := len(raw)
		if r, ok := m.(*jsonrpc.Request); ok && r.Method == "tools/call" {
			rest -= len(r.Params)
		}
		// Twice, because escapes and white space may lengthen the text; package tools bounds the params exactly.
		if rest > 2*tools.MaxParams {
			return "the message has more bytes than are allowed"
		}
	}
	return ""
}

// countMessages counts the elements of a JSON array, up to one more than most.
func countMessages(array []byte, most int) int {
	n := 0
	for _, err := range jsonread.ListSpans(string(array)) {
		if err != nil || n > most {
			break
		}
		n++
	}
	return n
}

// wantsTask reports whether a message has the parameter task. Batches have no tasks: the protocol versions with tasks
// have no batches.
func wantsTask(body []byte) bool {
	// This saves decoding: most messages do not contain the name, and a body may be large.
	if !bytes.Contains(body, []byte(`"task"`)) {
		return false
	}
	// Task stays encoded: a decoded list of tiny values would take many times the memory of the body.
	var m struct {
		Params struct {
			Task json.RawMessage `json:"task"`
		} `json:"params"`
	}
	return json.Unmarshal(body, &m) == nil && bytes.HasPrefix(m.Params.Task, []byte("{"))
}
