package transport

import (
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// refusals are the texts with which the SDK refuses a message with status 400, by their beginning, and what a client
// expects instead. TestRefusedMessages fails if another version of the SDK has other texts.
var refusals = []struct {
	begins string
	code   int64
	status int
}{
	{"JSON RPC not handled", jsonrpc.CodeMethodNotFound, http.StatusOK},
	{"invalid request", jsonrpc.CodeInvalidRequest, http.StatusBadRequest},
	{"malformed payload", jsonrpc.CodeParseError, http.StatusBadRequest},
}

// explain makes the SDK's plain text about a message that it refuses an error of JSON-RPC, for the client that waits
// for one with its id. A notification that the server does not know is accepted and ignored, as the protocol wants.
func (s *stream) explain(text []byte) (status int, answer []byte) {
	for _, r := range refusals {
		if !strings.HasPrefix(string(text), r.begins) {
			continue
		}
		var id jsonrpc.ID // none, if the message cannot be read
		if m, err := jsonrpc.DecodeMessage(s.body); err == nil {
			request, ok := m.(*jsonrpc.Request)
			if ok && !request.IsCall() && r.code == jsonrpc.CodeMethodNotFound {
				s.header.Del("Content-Type")
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
