package servers

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// guarded is a remote server with a tool whoami, which answers requests with a key alone.
func guarded(name string, knows func(*http.Request) bool) http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "whoami", Description: "Who the user is"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " knows you"}}}, nil, nil
	})
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !knows(r) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// fifteen are the servers of testdata/fifteen.json: a call of it in which {} is the server, and what its JSON contains;
// or what the import says of one that is not called.
var fifteen = map[string]struct{ code, want, why string }{
	"codeforge":     {why: "it is CodeForge itself"},
	"notion":        {code: `{}["API-get-self"]({})`, want: "Notion says hi"},
	"GitHub (work)": {why: "started in a container"},
	"filesystem":    {code: `{}.write_file({ path: "a.txt", content: "written" })`, want: "wrote to a.txt"},
	"windows":       {code: `{}.get_figma_data({ fileKey: "abc123" })`, want: "Figma says hi"},
	"linear":        {code: `{}.whoami({})`, want: "Linear says hi"},
	"stripe":        {code: `{}.whoami({})`, want: "Stripe says hi"},
	"zapier":        {code: `{}.whoami({})`, want: "zapier knows you"},
	"query":         {code: `{}.whoami({})`, want: "query knows you"},
	"headers":       {code: `{}.whoami({})`, want: "headers knows you"},
	"from-env":      {code: `{}.whoami({})`, want: "Sentry says hi"},
	"postgres":      {why: "a connection that is not HTTP"},
	"python":        {why: "the version of pypi:mcp-server-git is not exact"},
	"shell":         {why: "a line of shell"},
	"local":         {code: `{}.get_me({})`, want: "github-says-hi"},
}

// shapes are what keys begin with where somebody looks.
var shapes = map[string]string{"notion": "ntn_", "work": "ghp_", "local": "ghp_", "linear": "lin_api_", "stripe": "rk_live_", "windows": "figd_"}

// TestImportFifteen: of the fifteen servers in another program's file each is imported, switched on and called, or it is
// said why not; the file has CodeForge alone then, and its keys are in config.json files and the copy of it, which only
// its owner reads.
func TestImportFifteen(t *testing.T) {
	world.RunInOneMode(t, "the command line and the proxy decide it")
	root, err := world.Root()
	testkit.Must(t, err)
	key := func(name string) string { return shapes[name] + "canaryZ9" + strings.Repeat("0a7Q", 5) + name }
	hosts := map[string]http.Handler{
		"evil.test": guarded("zapier", func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/"+key("zapier")+"/") }),
		"h2.evil.test": guarded("query", func(r *http.Request) bool {
			return r.URL.Query().Get("api_key") == key("query") && r.URL.Query().Get("tools") == "a,b"
		}),
		"xn--bcher-kva.evil.test": guarded("headers", func(r *http.Request) bool {
			return r.Header.Get("X-Api-Key") == key("headers") && r.Header.Get("Authorization") == "Token "+key("other") && r.Header.Get("X-Team") == "core"
		}),
	}
	w := world.Start(t, world.Config{Registry: true, APIs: []world.API{}, Hosts: hosts, Env: map[string]string{"SANDBOX_PROGRAMS": world.ProgramsDir(root)}})
	apis := filepath.Join(w.Dir, "apis")
	examples, err := filepath.Glob(filepath.Join(root, "apis", "*", "config.json.example"))
	testkit.Must(t, err)
	for _, path := range examples { // as in a clone
		dir := filepath.Join(apis, filepath.Base(filepath.Dir(path)))
		text, err := os.ReadFile(path)
		testkit.Must(t, err)
		testkit.Must(t, os.MkdirAll(dir, 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "config.json.example"), text, 0o644))
	}
	text, err := os.ReadFile("testdata/fifteen.json")
	testkit.Must(t, err)
	file := filepath.Join(w.Dir, "claude_desktop_config.json")
	filled := regexp.MustCompile(`KEY:([a-z]+)`).ReplaceAllStringFunc(string(text), func(s string) string { return key(strings.TrimPrefix(s, "KEY:")) })
	filled = strings.Replace(filled, "http://localhost:8080/mcp", w.URL, 1)
	testkit.Must(t, os.WriteFile(file, []byte(filled), 0o600))
	tool := func(args ...string) string {
		t.Helper()
		c, err := w.Command(append(append([]string{"mcp"}, args...), "--apis", apis)...)
		testkit.Must(t, err)
		c.Env = with(c.Env, "SENTRY_KEY", key("sentry"))
		out, code, err := world.Tool(t.Context(), c)
		if err != nil || code != 0 || strings.Contains(out, "canaryZ9") {
			t.Fatalf("codeforge mcp %q: %d, %v\n%s", args, code, err, out)
		}
		return out
	}
	shown := tool("import", file, "--json")
	if after, err := os.ReadFile(file); err != nil || string(after) != filled || strings.Contains(shown, `"written":true`) {
		t.Errorf("showing has written: %v", err)
	}
	out := tool("import", file, "--write", "--clients")
	for name, s := range fifteen {
		if !strings.Contains(out, name) || !strings.Contains(strings.Join(strings.Fields(out), " "), s.why) {
			t.Errorf("%s: the import does not say %q:\n%s", name, s.why, out)
		}
	}
	if after, err := os.ReadFile(file); err != nil || strings.Contains(string(after), "canaryZ9") || strings.Contains(string(after), "npx") || !strings.Contains(string(after), "dark") {
		t.Errorf("the client's file: %v\n%s", err, after)
	}
	onlyTheirs(t, w.Dir)
	for name, s := range fifteen {
		if s.code != "" {
			tool("enable", name)
		}
	}
	testkit.WaitFor(t, func() bool { // the proxy notices the files by itself
		r := w.MustExecute(t, `console.log(1)`, "local", "headers", "notion", "stripe", "from-env", "filesystem", "linear", "windows", "zapier", "query")
		return r.Out == "1\n"
	})
	for name, s := range fifteen {
		if s.code == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			code := fmt.Sprintf("console.log(JSON.stringify(await %s));", strings.Replace(s.code, "{}", fmt.Sprintf("mcp[%q]", name), 1))
			res, err := w.Do(ctx, w.Session(), world.Run{Code: code, APIs: []string{name}, Timeout: 150})
			if err != nil || res.IsError || !strings.Contains(res.Out, s.want) || strings.Contains(res.JSON, "canaryZ9") {
				t.Errorf("%v: out %.2000q, notes %q", err, res.Out, res.Notes)
			}
		})
	}
	if strings.Contains(w.Logs(), "canaryZ9") {
		t.Error("the log has a key")
	}
}

// onlyTheirs fails if a key is in a file but the config.json files and the copy, or if others may read one of those.
func onlyTheirs(t *testing.T, dir string) {
	t.Helper()
	found := 0
	testkit.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // gone meanwhile
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "canaryZ9") {
			return nil //nolint:nilerr // gone meanwhile
		}
		found++
		info, err := d.Info()
		testkit.Must(t, err)
		if d.Name() != "config.json" && !strings.Contains(path, "/.backup/") || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s (%v) has a key", path, info.Mode())
		}
		return nil
	}))
	if found < 9 {
		t.Errorf("%d files have a key: nothing was searched", found)
	}
}

// with is a map with one more entry.
func with(m map[string]string, key, value string) map[string]string {
	out := map[string]string{key: value}
	for k, v := range m {
		out[k] = v
	}
	return out
}
