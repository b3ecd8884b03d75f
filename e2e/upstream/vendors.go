package upstream

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// vendors are the hosts that real MCP servers call, at the public address, each with one answer to every request: what
// the tool that the tests call expects.
var vendors = map[string]string{
	"api.github.com":     `{"login":"github-says-hi","id":1,"type":"User","html_url":"https://github.com/github-says-hi"}`,
	"api.open-meteo.com": `{"current":{"temperature_2m":21.5}}`, // for codeforge try
	"api.notion.com":     `{"object":"user","id":"11111111-1111-1111-1111-111111111111","name":"Notion says hi","type":"bot","bot":{}}`,
	"sentry.io":          `{"id":"1","name":"Sentry says hi","email":"me@example.com"}`,
	"api.firecrawl.dev":  `{"success":true,"links":[{"url":"https://example.com/firecrawl-says-hi"}]}`,
	"api.figma.com": `{"name":"Figma says hi","lastModified":"2026-01-01T00:00:00Z","version":"1","schemaVersion":0,"thumbnailUrl":"",` +
		`"role":"owner","editorType":"figma","components":{},"componentSets":{},"styles":{},` +
		`"document":{"id":"0:0","name":"Document","type":"DOCUMENT","children":[]}}`,
	"context7.com": `{"results":[{"id":"/context7/says-hi","title":"Context7 says hi","description":"d","branch":"main",` +
		`"lastUpdateDate":"2026-01-01","state":"finalized","totalTokens":1,"totalSnippets":1,"stars":1,"trustScore":9,"versions":[]}]}`,
	"api.tavily.com":       `{"query":"x","results":[{"title":"Tavily says hi","url":"https://example.com","content":"c","score":1}]}`,
	"api.search.brave.com": `{"type":"search","web":{"type":"search","results":[{"title":"Brave says hi","url":"https://example.com","description":"d"}]}}`,
	"supabase.com":         `{"data":{"schema":"type Query { schema: String! }"}}`,
	"api.stripe.com":       `{"id":"cus_1","object":"customer","email":"a@example.com"}`,
	"api.openai.com": `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",` +
		`"message":{"role":"assistant","content":"OpenAI says hi"}}]}`,
	"slack.com":                     `{"ok":true,"team":"Slack says hi"}`,
	"s3.eu-central-1.amazonaws.com": "S3 says hi",
	"api.supabase.com":              `[{"id":"supabase-says-hi","slug":"supabase-says-hi","name":"Supabase says hi"}]`,
}

// mcpVendors are the hosts of companies' own MCP servers, at the public address, each with what its only tool says.
var mcpVendors = map[string]string{"mcp.stripe.com": "Stripe says hi", "mcp.linear.app": "Linear says hi"}

// serveVendors adds their routes, except for hosts that a test serves by itself.
func serveVendors(mux *http.ServeMux, own map[string]http.Handler) {
	for host, answer := range vendors {
		if own[host] != nil {
			continue
		}
		mux.HandleFunc(host+"/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer)
		})
	}
	for host, says := range mcpVendors {
		mux.Handle(host+"/", mcpVendor(says))
	}
}

// mcpVendor is a company's own MCP server: one tool, which says hi.
func mcpVendor(says string) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "vendor", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{
		Name: "whoami", Description: "Says who is asking", InputSchema: json.RawMessage(`{"type":"object"}`),
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
	}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: says}}}, nil
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
}
