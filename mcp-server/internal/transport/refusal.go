package transport

import (
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// refusals maps the beginnings of the SDK's texts for a message that it refuses with status 400 to the answers that
// clients expect. TestRefusedMessages fails if a new version of the SDK has other texts.
var refusals = []struct {
	begins string
	code   int64
	status int
}{
	{"JSON RPC not handled", jsonrpc.CodeMethodNotFound, http.StatusOK},
	{"invalid request", jsonrpc.CodeInvalidRequest, http.StatusBadRequest},
	{"malformed payload", jsonrpc.CodeParseError, http.StatusBadRequest},
}

// explain turns the SDK's plain text about a refused message into an error of JSON-RPC with the message's id, which the
// client waits for. It accepts a notification that the server does not know, as the protocol wants.
func (s *stream) explain(text []byte) (status int, answer []byte) {
	for _, r := range refusals {
		if !strings.HasPrefix(string(text), r.begins) {
			continue
		}
		var id jsonrpc.ID // stays empty if the message cannot be read
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
