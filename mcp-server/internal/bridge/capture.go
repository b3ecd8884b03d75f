package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/frame"
)

// capture is what a transport saw of one request and its answer, and the SDK does not tell.
type capture struct {
	mu       sync.Mutex
	sent     bool            // a part of it may have reached the server
	raw      json.RawMessage // the result as the server wrote it
	answered chan struct{}   // closed when the server has answered
	status   int             // the last HTTP status that was an error, or that came with an answer that was not a message
	body     string          // the text about that response, for the error
	large    bool            // a part of the answer was larger than a message may be
}

type captureKey struct{}

// withCapture makes a context for a request whose answer is to be captured.
func withCapture(ctx context.Context) (context.Context, *capture) {
	c := &capture{answered: make(chan struct{})}
	return context.WithValue(ctx, captureKey{}, c), c
}

// captureOf is the capture of a request's context, or nil.
func captureOf(ctx context.Context) *capture {
	c, _ := ctx.Value(captureKey{}).(*capture)
	return c
}

// answer notes the server's answer.
func (c *capture) answer(raw json.RawMessage) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = raw
	select {
	case <-c.answered:
	default:
		close(c.answered)
	}
}

// send notes that the request is being sent. From now on the server may carry it out.
func (c *capture) send() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = true
}

// refuse notes a response that says no.
func (c *capture) refuse(status int, body string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.body = status, body
}

// read finds the message in a text and notes it if it is an answer. Some servers send a batch of one message. ok is
// false if the text is not a message.
func (c *capture) read(text []byte) (message []byte, ok bool) {
	for _, one := range batch(text) {
		m, err := jsonrpc.DecodeMessage(one)
		if err != nil {
			return nil, false
		}
		message = one
		if r, is := m.(*jsonrpc.Response); is {
			c.answer(r.Result)
			break
		}
	}
	return message, message != nil
}

// noteMisread notes an answer that should have been a message: explain shows it instead of the SDK's error.
func (c *capture) noteMisread(status int, kind string, text []byte) {
	c.refuse(status, fmt.Sprintf("with Content-Type %.80q, and no message of MCP: %s", kind, beginning(text)))
}

// beginning returns the part of a text that an error shows.
func beginning(text []byte) string {
	return strings.ToValidUTF8(string(text[:min(len(text), maxErrorText)]), "\uFFFD")
}

// tooLarge notes that the answer was larger than a message may be.
func (c *capture) tooLarge() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.large = true
}

// codeTooLarge is the code of the answers that a transport gives in place of those that are too large.
const codeTooLarge = -31999

// tooLargeAnswer is what the SDK is given in place of a message that is too large, if it is an answer.
func tooLargeAnswer(s *skim) (*jsonrpc.Response, bool) {
	id, err := jsonrpc.MakeID(s.answers())
	if err != nil || !id.IsValid() {
		return nil, false
	}
	return &jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: codeTooLarge, Message: tooLarge().Message}}, true
}

// tooLarge is the error of a request whose answer is too large.
func tooLarge() *frame.Error {
	return &frame.Error{Code: frame.ResultTooLarge, Message: fmt.Sprintf(
		"the server's answer is larger than %d MiB or nests deeper than %d", frame.MaxMessage>>20, frame.MaxDepth)}
}
