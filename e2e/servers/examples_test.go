package servers

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// packages are those of examples whose servers are not in vendors.
var packages = []string{"@stripe/mcp@0.3.3", "tavily-mcp@0.2.22", "@brave/brave-search-mcp-server@2.1.4"}

// examples are calls of the servers that apis/ has examples of: an expression of code in which {} is the server, what
// its JSON contains, and the host that gets the key; empty if there is none.
var examples = map[string]struct{ code, want, host string }{
	"github-mcp": {`{}.get_me({})`, "github-says-hi", "api.github.com"},
	"notion":     {`{}["API-get-self"]({})`, "Notion says hi", "api.notion.com"},
	"linear-mcp": {`{}.whoami({})`, "Linear says hi", "mcp.linear.app"},
	"sentry":     {`{}.whoami({})`, "Sentry says hi", "sentry.io"},
	"context7":   {`{}["resolve-library-id"]({ libraryName: "x", query: "x" })`, "Context7 says hi", "context7.com"},
	"filesystem": {`{}.write_file({ path: "a.txt", content: "written" })`, "wrote to a.txt", ""},
	"memory":     {`{}.create_entities({ entities: [{ name: "n", entityType: "t", observations: ["o"] }] })`, "\"name\":\"n\"", ""},
	// There is no browser at the address of the example: the server says so.
	"playwright": {`{}.browser_navigate({ url: "https://example.com" }).catch((e) => e.message)`, "browser.example.com", ""},
	"figma":      {`{}.get_figma_data({ fileKey: "abc123" })`, "Figma says hi", "api.figma.com"},
	"firecrawl":  {`{}.firecrawl_map({ url: "https://example.com" })`, "firecrawl-says-hi", "api.firecrawl.dev"},
	"supabase":   {`{}.list_organizations({})`, "Supabase says hi", "api.supabase.com"},
	"stripe-mcp": {`{}.whoami({})`, "Stripe says hi", "mcp.stripe.com"},

	"tavily":              {`{}.tavily_search({ query: "x" })`, "Tavily says hi", "api.tavily.com"},
	"brave-search-mcp":    {`{}.brave_web_search({ query: "x" })`, "Brave says hi", "api.search.brave.com"},
	"sequential-thinking": {`{}.sequentialthinking({ thought: "x", nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 })`, `"thoughtHistoryLength":1`, ""},
}

// TestExamples does what a user does with each example of a server: it puts the key in and calls a tool. The company's
// host gets the key.
func TestExamples(t *testing.T) {
	world.RunInOneMode(t, "the packages and the proxy decide it")
	root, err := world.Root()
	if err != nil {
		t.Fatal(err)
	}
	keys, apis := map[string]*canary.Canary{}, []world.API{}
	for name := range examples {
		text, err := os.ReadFile(filepath.Join(root, "apis", name, "config.json.example"))
		if err != nil {
			t.Fatal(err)
		}
		var config map[string]any
		if err := json.Unmarshal(text, &config); err != nil {
			t.Fatal(err)
		}
		creds, _ := config["credentials"].(map[string]any)
		for token, value := range creds {
			keys[name] = canary.New(token)
			if about, ok := value.(map[string]any); ok {
				about["value"] = keys[name].Value()
			} else {
				creds[token] = keys[name].Value()
			}
		}
		apis = append(apis, world.API{Name: name, Config: config})
	}
	leaks := canary.Join(keys)
	w := world.Start(t, world.Config{Registry: true, APIs: apis, Env: map[string]string{"SANDBOX_PROGRAMS": world.ProgramsDir(root)}})
	for name, x := range examples {
		t.Run(name, func(t *testing.T) {
			w.Upstream.Forget()
			code := fmt.Sprintf("console.log(JSON.stringify(await %s));", strings.Replace(x.code, "{}", fmt.Sprintf("mcp[%q]", name), 1))
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			res, err := w.Do(ctx, w.Session(), world.Run{Code: code, APIs: []string{name}, Timeout: 150})
			if err != nil || res.IsError || !strings.Contains(res.Out, x.want) {
				t.Errorf("%v: out %.2000q, notes %q", err, res.Out, res.Notes)
			}
			if where := leaks.Find([]byte(res.JSON)); where != "" {
				t.Errorf("the result has a key: %s", where)
			}
			if x.host != "" {
				injected(t, w, vendor{host: x.host}, keys[name].Value())
			}
		})
	}
	if where := leaks.Find([]byte(w.Logs())); where != "" {
		t.Errorf("the log has a key: %s", where)
	}
}
