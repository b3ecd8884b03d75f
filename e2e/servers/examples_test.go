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
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

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

// example is what apis/ has of a server, with a canary as its key.
type example struct {
	api world.API
	// token is the name of its credential, and key the value; both are empty without one.
	token string
	key   *canary.Canary
	// program is a part of the command line of its processes; empty: it has no process.
	program string
}

// readExample reads config.json.example of a server.
func readExample(root, name string) (x example, err error) {
	text, err := os.ReadFile(filepath.Join(root, "apis", name, "config.json.example"))
	if err != nil {
		return x, err
	}
	x.api.Name = name
	if err := json.Unmarshal(text, &x.api.Config); err != nil {
		return x, err
	}
	credentials, _ := x.api.Config["credentials"].(map[string]any)
	for token, value := range credentials {
		x.token, x.key = token, canary.New(token)
		if about, ok := value.(map[string]any); ok {
			about["value"] = x.key.Value()
		} else {
			credentials[token] = x.key.Value()
		}
	}
	server, _ := x.api.Config["mcp"].(map[string]any)
	if command, ok := server["command"].([]any); ok {
		x.program, _ = command[0].(string)
	} else {
		x.program, _ = server["package"].(string)
	}
	return x, nil
}

// mustRead is readExample for a test.
func mustRead(t *testing.T, name string) example {
	t.Helper()
	root, err := world.Root()
	testkit.Must(t, err)
	x, err := readExample(root, name)
	testkit.Must(t, err)
	return x
}

// TestExamples does what a user does with each example of a server: it puts the key in, lists the tools and calls one.
// The company's host gets the key, the receipt shows it, and nothing in the server's slot has it.
func TestExamples(t *testing.T) {
	world.RunInOneMode(t, "the packages decide it; TestMainJob installs and calls one in each mode")
	read, keys, apis := map[string]example{}, map[string]*canary.Canary{}, []world.API{}
	for name := range examples {
		x := mustRead(t, name)
		read[name] = x
		apis = append(apis, x.api)
		if x.key != nil {
			keys[name] = x.key
		}
	}
	leaks := canary.Join(keys)
	root, err := world.Root()
	testkit.Must(t, err)
	w := world.Start(t, world.Config{Registry: true, APIs: apis, Env: map[string]string{"SANDBOX_PROGRAMS": world.ProgramsDir(root)}})
	for name, call := range examples {
		t.Run(name, func(t *testing.T) {
			w.Upstream.Forget()
			server := fmt.Sprintf("mcp[%q]", name)
			code := fmt.Sprintf("console.log((await %s.$tools()).length > 0, JSON.stringify(await %s));", server, strings.Replace(call.code, "{}", server, 1))
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			res, err := w.Do(ctx, w.Session(), world.Run{Code: code, APIs: []string{name}, Timeout: 150})
			if err != nil || res.IsError || !strings.HasPrefix(res.Out, "true ") || !strings.Contains(res.Out, call.want) {
				t.Errorf("%v: out %.2000q, notes %q", err, res.Out, res.Notes)
			}
			if where := leaks.Find([]byte(res.JSON)); where != "" {
				t.Errorf("the result has a key: %s", where)
			}
			if call.host == "" {
				return
			}
			x := read[name]
			injected(t, w, call.host, x.key.Value())
			if x.program == "" {
				return
			}
			if !caused(res.Receipt, call.host) {
				t.Errorf("the receipt does not show what the call caused: %+v", res.Receipt.Exchanges)
			}
			if w.Mode == world.Embedded { // the event may come a moment after the run's end
				testkit.WaitFor(t, func() bool { return caused(recorded(t, w, res.Receipt.Run), call.host) })
			}
			if os.Geteuid() == 0 {
				searchSlot(t, x.program, x.token, x.key.Value())
			}
		})
	}
	if where := leaks.Find([]byte(w.Logs())); where != "" {
		t.Errorf("the log has a key: %s", where)
	}
}
