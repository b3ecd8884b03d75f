package doctor

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
)

// The findings about MCP servers are what mcp-server says of them; each that failed is a warning.
func TestMCPServers(t *testing.T) {
	answer := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/servers" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(answer))
	}))
	defer srv.Close()
	c := Config{Server: mcpclient.Config{URL: srv.URL + "/mcp"}}
	answer = `{"servers":[{"name":"a","state":"running","tools":3},{"name":"b","state":"failing","problem":"no such package"}]}`
	got := checkServers(t.Context(), c)
	if len(got) != 2 || got[0].Status != OK || got[0].Text != "2 configured, 1 running; the others start with their first call" ||
		got[1].Status != Warn || got[1].Check != "MCP server b" || got[1].Text != "no such package" {
		t.Errorf("%+v", got)
	}
	for _, answer = range []string{`{"servers":[]}`, `{}`, `no json`} {
		if got := checkServers(t.Context(), c); got != nil {
			t.Errorf("%s: %+v", answer, got)
		}
	}
}
