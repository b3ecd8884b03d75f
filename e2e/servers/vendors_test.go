package servers

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/canary"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// vendor is one real server with one call of it.
type vendor struct {
	// name is the API's; pkg is a package from npm, else command a program of the operator's.
	name, pkg string
	command   []string
	// host is where the call leads; empty: nowhere. also is another host that the server wants.
	host, also string
	// env is the environment in which {} stands for the token name; args likewise.
	env  map[string]string
	args []string
	// more are other fields of mcp.
	more map[string]any
	// tools is how many tools there are at least.
	tools int
	// code is an expression; its JSON contains want.
	code, want string
}

// vendors are the servers that the tests run: the four reference servers and seven of companies from npm, and GitHub's.
var vendors = []vendor{
	{
		name: "github", command: []string{"github-mcp-server", "stdio"}, tools: 20, host: "api.github.com",
		env:  map[string]string{"GITHUB_PERSONAL_ACCESS_TOKEN": "{}"},
		code: `await mcp.github.get_me({})`, want: "github-says-hi",
	},
	{
		name: "everything", pkg: everything, tools: 10,
		code: `await mcp.everything.echo({ message: "hi" })`, want: "Echo: hi",
	},
	{
		name: "memory", pkg: "@modelcontextprotocol/server-memory@2026.8.31", tools: 9,
		env: map[string]string{"MEMORY_FILE_PATH": "~/memory.json"}, // otherwise beside its own code, which is read-only
		code: `(await mcp.memory.create_entities({ entities: [{ name: "n", entityType: "t", observations: ["o"] }] }),
  await mcp.memory.read_graph())`,
		want: `"name":"n"`,
	},
	{
		name: "thinking", pkg: "@modelcontextprotocol/server-sequential-thinking@2026.8.31", tools: 1,
		code: `await mcp.thinking.sequentialthinking({ thought: "x", nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 })`,
		want: `"thoughtHistoryLength":1`,
	},
	{
		name: "filesystem", pkg: "@modelcontextprotocol/server-filesystem@2026.8.31", tools: 10, args: []string{"."},
		code: `(await mcp.filesystem.write_file({ path: "a.txt", content: "written" }),
  await mcp.filesystem.read_text_file({ path: "a.txt" }))`,
		want: "written",
	},
	{
		name: "notion", pkg: "@notionhq/notion-mcp-server@2.5.2", tools: 20, host: "api.notion.com",
		env:  map[string]string{"NOTION_TOKEN": "{}"},
		code: `await mcp.notion["API-get-self"]({})`, want: "Notion says hi",
	},
	{
		name: "sentry", pkg: "@sentry/mcp-server@0.36.0", tools: 10, host: "sentry.io",
		env:  map[string]string{"SENTRY_ACCESS_TOKEN": "{}"},
		code: `await mcp.sentry.whoami({})`, want: "Sentry says hi",
	},
	{
		name: "firecrawl", pkg: "firecrawl-mcp@3.22.2", tools: 10, host: "api.firecrawl.dev",
		env:  map[string]string{"FIRECRAWL_API_KEY": "{}"},
		code: `await mcp.firecrawl.firecrawl_map({ url: "https://example.com" })`, want: "firecrawl-says-hi",
	},
	{
		name: "figma", pkg: "figma-developer-mcp@0.13.2", tools: 2, host: "api.figma.com", args: []string{"--stdio"},
		env:  map[string]string{"FIGMA_API_KEY": "{}"},
		code: `await mcp.figma.get_figma_data({ fileKey: "abc123" })`, want: "Figma says hi",
	},
	{
		name: "playwright", pkg: "@playwright/mcp@0.0.83", tools: 20, more: map[string]any{"permissions": []string{"run"}},
		// There is no browser, which the server itself says: its process, its pipes and its error are real.
		code: `await mcp.playwright.browser_navigate({ url: "https://example.com" }).catch((e) => e.message)`, want: "browser",
	},
	{
		name: "context7", pkg: "@upstash/context7-mcp@4.1.1", tools: 2, host: "context7.com",
		env:  map[string]string{"CONTEXT7_API_KEY": "{}"},
		code: `await mcp.context7["resolve-library-id"]({ libraryName: "x", query: "x" })`, want: "Context7 says hi",
	},
	{
		name: "supabase", pkg: "@supabase/mcp-server-supabase@0.13.0", host: "api.supabase.com", also: "supabase.com",
		env:  map[string]string{"SUPABASE_ACCESS_TOKEN": "{}"},
		code: `await mcp.supabase.list_organizations({})`, want: "Supabase says hi",
	},
}

// token is the name of a server's credential.
func (v vendor) token() string { return strings.ToUpper(v.name) + "_AUTH_TOKEN" }

// api is the server's folder. The key is a canary; a server without a host needs none.
func (v vendor) api(key *canary.Canary) world.API {
	spec := map[string]any{"package": "npm:" + v.pkg}
	if v.pkg == "" {
		spec = map[string]any{"command": v.command}
	}
	if len(v.args) > 0 {
		spec["args"] = v.args
	}
	for k, value := range v.more {
		spec[k] = value
	}
	env := map[string]string{}
	for k, value := range v.env {
		env[k] = strings.ReplaceAll(value, "{}", v.token())
	}
	if len(env) > 0 {
		spec["env"] = env
	}
	config := map[string]any{"description": "the server " + v.name, "mcp": spec}
	if v.host != "" {
		config["domains"], config["credentials"] = strings.Fields(v.host+" "+v.also), map[string]any{v.token(): key.Value()}
	}
	return world.API{Name: v.name, Config: config}
}

// TestVendors installs each server, lists its tools and calls one. The company's host gets the key, and nothing in the
// server's slot has it.
func TestVendors(t *testing.T) {
	world.RunInOneMode(t, "the packages decide it; TestMainJob installs and calls one in each mode")
	keys, apis := map[string]*canary.Canary{}, []world.API{}
	for _, v := range vendors {
		keys[v.name] = canary.New(v.token())
		apis = append(apis, v.api(keys[v.name]))
	}
	leaks := canary.Join(keys)
	root, err := world.Root()
	if err != nil {
		t.Fatal(err)
	}
	w := world.Start(t, world.Config{Registry: true, APIs: apis, Env: map[string]string{"SANDBOX_PROGRAMS": world.ProgramsDir(root)}})
	for _, v := range vendors {
		t.Run(v.name, func(t *testing.T) {
			w.Upstream.Forget()
			code := fmt.Sprintf("const n = (await mcp.%s.$tools()).length;\nconsole.log(n >= %d, JSON.stringify(%s));", v.name, v.tools, v.code)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			res, err := w.Do(ctx, w.Session(), world.Run{Code: code, APIs: []string{v.name}, Timeout: 150})
			if err != nil || res.IsError || !strings.HasPrefix(res.Out, "true ") || !strings.Contains(res.Out, v.want) {
				t.Errorf("%v: out %.2000q, notes %q", err, res.Out, res.Notes)
			}
			if where := leaks.Find([]byte(res.JSON)); where != "" {
				t.Errorf("the result has a key: %s", where)
			}
			if v.host == "" {
				return
			}
			injected(t, w, v, keys[v.name].Value())
			if !caused(res.Receipt, v.host) {
				t.Errorf("the receipt does not show what the call caused: %+v", res.Receipt.Exchanges)
			}
			if w.Mode == world.Embedded { // the event may come a moment after the run's end
				testkit.WaitFor(t, func() bool { return caused(recorded(t, w, res.Receipt.Run), v.host) })
			}
			if os.Geteuid() == 0 {
				searchSlot(t, v, keys[v.name].Value())
			}
		})
	}
	if where := leaks.Find([]byte(w.Logs())); where != "" {
		t.Errorf("the log has a key: %s", where)
	}
}

// recorded is what codeforge receipt shows of a run.
func recorded(t *testing.T, w *world.World, run string) (r proxyapi.Receipt) {
	t.Helper()
	out, code, err := world.Tool(t.Context(), world.Command{
		Dir: w.Dir, Args: []string{"receipt", run, "--json", "--state", w.Process.State},
	})
	if err != nil || code != 0 {
		t.Fatalf("codeforge receipt: exit code %d, %v\n%s", code, err, out)
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// caused reports whether a receipt shows a request with a swapped credential to a host below a call of a tool.
func caused(r proxyapi.Receipt, host string) bool {
	for _, x := range r.Exchanges {
		for _, c := range x.Caused {
			if x.CalledTool() != "" && c.Host == host && len(c.Swapped) > 0 {
				return true
			}
		}
	}
	return false
}

// injected checks that the company's host got the key in place of the name.
func injected(t *testing.T, w *world.World, v vendor, key string) {
	t.Helper()
	for _, s := range w.Upstream.Seen("") {
		if s.Name != v.host {
			continue
		}
		for _, values := range s.Header {
			if strings.Contains(strings.Join(values, " "), key) {
				return
			}
		}
	}
	t.Errorf("%s got no request with the key", v.host)
}

// searchSlot searches the processes of the running server: their environments, memory and files have the token name,
// and not the key.
func searchSlot(t *testing.T, v vendor, key string) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	named, searched := 0, 0
	for _, p := range processes {
		cmdline, _ := os.ReadFile(filepath.Join(p, "cmdline")) // gone meanwhile
		shown := "npm:" + v.pkg
		if v.pkg == "" {
			shown = v.command[0]
		}
		if !bytes.Contains(cmdline, []byte(shown)) {
			continue
		}
		searched++
		environ, _ := os.ReadFile(filepath.Join(p, "environ"))
		for name, data := range map[string][]byte{"command line": cmdline, "environment": environ, "memory": memory(t, p), "files": files(p)} {
			if bytes.Contains(data, []byte(v.token())) {
				named++
			}
			for _, form := range []string{key, base64.StdEncoding.EncodeToString([]byte(key))} {
				if bytes.Contains(data, []byte(form)) {
					t.Errorf("the %s of %s has the key", name, cmdline)
				}
			}
		}
	}
	if searched == 0 || named < 2 { // the name is in environment and memory: otherwise nothing was read
		t.Errorf("searched %d processes, and found the name %d times", searched, named)
	}
}

// memory is what a process can read of its own memory and has to itself.
func memory(t *testing.T, proc string) []byte {
	t.Helper()
	maps, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(filepath.Join(proc, "mem"))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	var all []byte
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || !strings.HasPrefix(mode, "rw") || to-from > 256<<20 {
			continue
		}
		part := make([]byte, to-from)
		if n, _ := mem.ReadAt(part, from); n > 0 { // some regions cannot be read
			all = append(all, part[:n]...)
		}
	}
	return all
}

// files are what a process sees in the folders that it may write.
func files(proc string) []byte {
	var all []byte
	for _, dir := range []string{"home", "tmp"} {
		_ = filepath.WalkDir(filepath.Join(proc, "root", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil //nolint:nilerr // what the slot cannot read does not count
			}
			data, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			all = append(all, data...)
			return nil
		})
	}
	return all
}
