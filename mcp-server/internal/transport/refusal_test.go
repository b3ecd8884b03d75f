package transport_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/transport"
)

// TestRefusedMessages: a message that the server cannot carry out is answered in JSON-RPC, with its id. A notification
// that it does not know is ignored.
func TestRefusedMessages(t *testing.T) {
	f := serve(t, transport.Config{})
	id := f.begin(t)
	for _, c := range []struct {
		name, version, session, body string
		status, code                 int
	}{
		{"an unknown method", oldVersion, id, `{"jsonrpc":"2.0","id":7,"method":"tools/frobnicate","params":{}}`, http.StatusOK, -32601},
		{"an id that is a text", oldVersion, id, `{"jsonrpc":"2.0","id":"7","method":"nonsense"}`, http.StatusOK, -32601},
		{"in the first revision", "2025-03-26", id, `{"jsonrpc":"2.0","id":7,"method":"nonsense"}`, http.StatusOK, -32601},
		{"without a session", oldVersion, "", `{"jsonrpc":"2.0","id":7,"method":"nonsense"}`, http.StatusOK, -32601},
		{"without sessions", newVersion, "", strings.Replace(newCall("wait"), "tools/call", "tools/frobnicate", 1), http.StatusNotFound, -32601},
		{"an unknown notification", oldVersion, id, `{"jsonrpc":"2.0","method":"notifications/nonsense"}`, http.StatusAccepted, 0},
		{"without params", oldVersion, id, `{"jsonrpc":"2.0","id":7,"method":"tools/call"}`, http.StatusBadRequest, -32600},
		{"a notification with an id", oldVersion, id, `{"jsonrpc":"2.0","id":7,"method":"notifications/initialized"}`, http.StatusBadRequest, -32600},
		{"no JSON", oldVersion, id, `{`, http.StatusBadRequest, -32700},
	} {
		status, body := f.answer(t, c.version, c.session, c.body)
		var got struct {
			Version string `json:"jsonrpc"`
			ID      any
			Error   struct {
				Code    int
				Message string
			}
		}
		err := json.Unmarshal([]byte(body), &got)
		if status != c.status || (c.code == 0) != (body == "") || got.Error.Code != c.code || c.code != 0 && (err != nil || got.Version != "2.0" || got.Error.Message == "") {
			t.Errorf("%s: %d %s", c.name, status, body)
		}
		if want := strings.Contains(c.body, `"id"`); (got.ID != nil) != want {
			t.Errorf("%s: its id is %v", c.name, got.ID)
		}
	}
	if status, body := f.answer(t, oldVersion, id, call(8, "sleep")); status != http.StatusOK || !strings.Contains(body, "slept") {
		t.Errorf("afterwards: %d %s", status, body)
	}
}
