package operator

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// TestPeersErrors: an error of sandboxd or the proxy reaches the operator as a sentence, without its status and code.
func TestPeersErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{operatorapi.ErrNoServer, `404 {"code":"no_server","error":"there is no such MCP server, or it is not active"}`},
		{fmt.Errorf("starting: %w", &rpc.Error{API: "sandboxd", Status: 404, Code: "no_server", Text: "no"}), `409 {"code":"refused","error":"starting: no"}`},
		{&rpc.Error{API: "sandboxd", Status: 404, Text: "no such path"}, `409 {"code":"refused","error":"no such path"}`},
	} {
		w := httptest.NewRecorder()
		writeAnswer(w, nil, c.err)
		if got := fmt.Sprintf("%d %s", w.Code, w.Body); got != c.want+"\n" {
			t.Errorf("%v: %s", c.err, got)
		}
	}
}
