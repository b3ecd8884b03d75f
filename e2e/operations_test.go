package e2e

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// described are some operations of httpbin, as a document would describe them.
const described = `{"format":1,"server":"https://httpbin.test","auth":[{"token":"HTTPBIN_TOKEN","place":"header:Authorization","value":"Bearer HTTPBIN_TOKEN"}],"operations":4,"types":1}
{"m":"GET","p":"/get","s":"Tell what was asked","a":"Told"}
{"m":"GET","p":"/bearer","s":"Check a bearer token","a":"{ authenticated: boolean; token: string }"}
{"m":"POST","p":"/status/{code}","s":"Answer with a status"}
{"m":"GET","p":"/status/{code}","s":"Answer with a status"}
{"type":"Told","ts":"{ url: string }"}
`

// TestNearMiss: a model finds an operation by a question, and a request that is none, or that the API refuses, tells it
// which one was meant.
func TestNearMiss(t *testing.T) {
	world.RunInOneMode(t, "mcp-server and the proxy decide it")
	w := world.Start(t, world.Config{Change: func(apis []world.API) []world.API {
		for i, a := range apis {
			if a.Name == "httpbin" {
				apis[i].Operations = described
				apis[i].Config["operations"] = map[string]any{"only": false}
			}
		}
		return apis
	}})
	answer, err := w.Session().CallTool(t.Context(), &mcp.CallToolParams{Name: "list_apis", Arguments: map[string]any{"query": "check a token", "api": "httpbin"}})
	if err != nil {
		t.Fatal(err)
	}
	found := ""
	if text, ok := answer.Content[0].(*mcp.TextContent); ok {
		found = text.Text
	}
	if !strings.Contains(found, "GET /bearer  Check a bearer token\n  answers { authenticated: boolean; token: string }") {
		t.Errorf("search:\n%s", found)
	}
	for _, row := range []struct{ code, want string }{
		{`await fetch("https://httpbin.test/gett?x=1");`, "GET /gett is no operation of httpbin; nearest: GET /get."},
		{`await fetch("https://httpbin.test/get", {method: "POST", body: "x"});`, "POST /get is no operation of httpbin, but GET is."},
		{`await fetch("https://httpbin.test/status/400");`, `GET /status/{code} of httpbin takes other input: list_apis with "operation": "GET /status/{code}" shows which.`},
		{`await fetch("https://httpbin.test/status/422", {method: "POST", body: "x"});`, `POST /status/{code} of httpbin takes other input: list_apis with "operation": "POST /status/{code}" shows which.`},
		{`await fetch("https://httpbin.test/status/404");`, ""}, // a right operation, and no such thing
		{`await fetch("https://httpbin.test/get");`, ""},
	} {
		res := w.MustExecute(t, row.code, "httpbin")
		if row.want == "" && strings.Contains(res.Notes, "of httpbin") || !strings.Contains(res.Notes, row.want) {
			t.Errorf("%s\n got %q\nwant %q", row.code, res.Notes, row.want)
		}
		if len(res.Receipt.Exchanges) != 1 {
			t.Errorf("%s: %d exchanges", row.code, len(res.Receipt.Exchanges))
		}
	}
}
