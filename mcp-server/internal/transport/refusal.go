package transport

import (
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// refusals maps the start of the SDK's text for a message that it refuses with status 400 to the answer that clients
// expect. TestRefusedMessages fails if a new version of the SDK has other texts.
var refusals = []struct {
	begins string
	code   int64
	status int
}{
	{"JSON RPC not handled", jsonrpc.CodeMethodNotFound, http.StatusOK},
	{"invalid request", jsonrpc.CodeInvalidRequest, http.StatusBadRequest},
	{"malformed payload", jsonrpc.CodeParseError, http.StatusBadRequest},
}

// explainRefusal converts the SDK's plain text about a refused message to a JSON-RPC error with the message's ID, for
// which the client waits. It accepts an unknown notification, as MCP requires.
func (s *responseStream) explainRefusal(text []byte) (status int, answer []byte) {
	for _, r := range refusals {
		if !strings.HasPrefix(string(text), r.begins) {
			continue
		}
		var id jsonrpc.ID // stays empty if the message cannot be read
		if m, err := jsonrpc.DecodeMessage(s.body); err == nil {
			request, ok := m.(*jsonrpc.Request)
			if ok && !request.IsCall() && r.code == jsonrpc.CodeMethodNotFound {
				s.header.Del("Content-Type")
				// A notification must not be answered with an error: JSON-RPC 2.0, section 4.1.
				return http.StatusAccepted, nil
			}
			if ok {
				id = request.ID
			}
		}
		s.header.Set("Content-Type", "application/json")
		answer, _ = jsonrpc.EncodeMessage(&jsonrpc.Response{ID: id, Error: &jsonrpc.Error{
			Code: r.code, Message: strings.TrimSpace(string(text)),
		}})
		return r.status, answer
	}
	return http.StatusBadRequest, text
}
