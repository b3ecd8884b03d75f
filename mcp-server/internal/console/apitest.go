package console

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/proxy/probe"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// testTime bounds the test of an API.
const testTime = 20 * time.Second

// testAPI sends one harmless request to an API, from a run with only this API, like codeforge api test.
func (c *Console) testAPI(r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), testTime)
	defer cancel()
	apis := c.cfg.Catalog().APIs
	i := slices.IndexFunc(apis, func(a proxyapi.API) bool { return a.Name == r.PathValue("name") })
	if i < 0 {
		return nil, &pageError{http.StatusConflict, "This API is not active."}
	}
	if apis[i].Server != nil {
		return probe.Verdict{Text: "an MCP server is tested in a terminal: codeforge mcp test " + apis[i].Name}, nil
	}
	p, err := probe.New(apis[i], "/")
	if err != nil {
		return probe.Verdict{Text: err.Error()}, nil
	}
	o, err := c.cfg.Execute(ctx, execution.RunRequest{
		Session: "console", Code: "// Test of the API " + apis[i].Name + ", from the console\n" + p.Script(),
		APIs: []string{apis[i].Name}, Timeout: testTime,
	})
	if err != nil {
		return probe.Verdict{Text: "it could not be run: " + err.Error()}, nil
	}
	return p.ExplainReceipt(o.Receipt, ""), nil
}
