package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
)

// wireCapture records the parts of a request and its answer that the transport sees and the SDK does not report.
type wireCapture struct {
	mu       sync.Mutex
	sent     bool            // a part of the request may have reached the server
	raw      json.RawMessage // the result exactly as the server wrote it
	answered chan struct{}   // closed when the server has answered
	status   int             // the last HTTP status that was an error, or that came with a body that was not a message
	body     string          // the text of that response, for the error
	large    bool            // a part of the answer was larger than MaxMessage
}

type captureKey struct{}

// withCapture returns a context that captures a request's answer.
func withCapture(ctx context.Context) (context.Context, *wireCapture) {
	c := &wireCapture{answered: make(chan struct{})}
	return context.WithValue(ctx, captureKey{}, c), c
}

// captureOf returns the capture of a request's context, or one without a reader.
func captureOf(ctx context.Context) *wireCapture {
	if c, ok := ctx.Value(captureKey{}).(*wireCapture); ok {
		return c
	}
	_, unread := withCapture(ctx)
	return unread
}

func (c *wireCapture) recordAnswer(raw json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = raw
	// A server may answer twice, and a second close would panic.
	select {
	case <-c.answered:
	default:
		close(c.answered)
	}
}

// recordSend records that the request is being sent. From now on the server may carry it out.
func (c *wireCapture) recordSend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = true
}

func (c *wireCapture) recordErrorStatus(status int, body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.body = status, body
}

// readMessage decodes the message in a text and records it if it is an answer. It accepts a batch, because some servers
// send a batch of one message. ok is false if the text is not a message.
func (c *wireCapture) readMessage(text []byte) (message []byte, ok bool) {
	for _, one := range splitBatch(text) {
		m, err := jsonrpc.DecodeMessage(one)
		if err != nil {
			return nil, false
		}
		message = one
		// One answer is enough: the batch belongs to one request.
		if r, is := m.(*jsonrpc.Response); is {
			c.recordAnswer(r.Result)
			break
		}
	}
	return message, message != nil
}

// noteMisread records an answer that is not a message. explain shows this text instead of the SDK's error.
func (c *wireCapture) noteMisread(status int, kind string, text []byte) {
	c.recordErrorStatus(status, fmt.Sprintf("with Content-Type %.80q, and no message of MCP: %s", kind, startOfText(text)))
}

// startOfText returns the start of a text for an error message.
func startOfText(text []byte) string {
	return strings.ToValidUTF8(string(text[:min(len(text), maxErrorText)]), "\uFFFD")
}

// tooLarge records that the answer was larger than MaxMessage.
func (c *wireCapture) tooLarge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.large = true
}

// codeTooLarge is the error code of the answers that replace answers that are too large.
const codeTooLarge = -31999

// replaceLargeAnswer returns the answer that replaces a message that is too large. It returns false if the message is
// not an answer.
func replaceLargeAnswer(s *messageSkimmer) (*jsonrpc.Response, bool) {
	id, err := jsonrpc.MakeID(s.answeredID())
	// An invalid ID means a notification or a request, which has no answer to replace.
	if err != nil || !id.IsValid() {
		return nil, false
	}
	return &jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: codeTooLarge, Message: tooLarge().Message}}, true
}

// tooLarge returns the error of a request whose answer is too large.
func tooLarge() *bridgewire.Error {
	return &bridgewire.Error{Code: bridgewire.ResultTooLarge, Message: fmt.Sprintf(
		"the server's answer is larger than %d MiB or nests deeper than %d", bridgewire.MaxMessage>>20, bridgewire.MaxDepth)}
}
