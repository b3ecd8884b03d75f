package broker

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// The tests of this file have as data what the tests of Forgemax, code-executor-MCP and codemcp promise.

// listed is a server with tools of these names, which all echo.
func listed(t *testing.T, name string, change func(*mcpserver.Settings), tools ...string) proxyapi.API {
	t.Helper()
	var all []string
	for _, tool := range tools {
		all = append(all, definition(tool, "A tool", "text"))
	}
	file := t.TempDir() + "/tools.json"
	testkit.Must(t, os.WriteFile(file, []byte("["+strings.Join(all, ",")+"]"), 0o600))
	return hostile(t, name, change, "lists="+file)
}

// TestGroups: Forgemax's strict groups are servers that exclude each other, its open groups are what excludes nothing.
// What counts is use, by a call or by reading a resource, and only within one run.
func TestGroups(t *testing.T) {
	excluding := func(others ...string) func(*mcpserver.Settings) {
		return func(s *mcpserver.Settings) { s.ExclusiveWith = others }
	}
	w := newWorld(t, 8,
		listed(t, "vault", excluding("slack"), "secrets.list"), listed(t, "database", excluding("slack"), "query"),
		listed(t, "slack", nil, "messages.send"), // one direction is enough
		listed(t, "narsil", nil, "scan"), listed(t, "random", nil, "tool"),
	)
	const read = "$read"
	for n, uses := range [][]struct {
		server, tool string
		denied       bool
	}{
		{{"random", "tool", false}},
		{{"vault", "secrets.list", false}, {"narsil", "scan", false}, {"random", "tool", false}},
		{{"vault", "secrets.list", false}, {"database", "query", false}},
		{{"vault", "secrets.list", false}, {"slack", "messages.send", true}, {"database", "query", false}},
		{{"slack", "messages.send", false}, {"vault", "secrets.list", true}, {"narsil", "scan", false}}, // a fresh run
		{{"vault", read, false}, {"database", "query", false}, {"slack", "messages.send", true}},
		{{"vault", "secrets.list", false}, {"slack", read, true}},
		{{"slack", read, false}, {"vault", "$resources", true}},
	} {
		run := "s1-r" + string(rune('a'+n))
		for _, u := range uses {
			method, body := http.MethodPost, `{"text":"hi","uri":"file:///logs"}`
			if u.tool == "$resources" {
				method, body = http.MethodGet, ""
			}
			got := w.send(t.Context(), run, method, "/"+u.server+"/"+u.tool, body, 0)
			if (got.Code == exclusive) != u.denied || u.denied && !strings.Contains(got.Error, "vault") && !strings.Contains(got.Error, "slack") {
				t.Errorf("row %d, %s.%s: %d %s", n, u.server, u.tool, got.status, got.body)
			}
		}
	}
}

// TestAllowedForms: the forms in which code-executor's tests try to get past a list of allowed tools.
func TestAllowedForms(t *testing.T) {
	w := newWorld(t, 4, listed(t, "filesystem", func(s *mcpserver.Settings) { s.Allow = []string{"read_file"} },
		"read_file", "write_file", "read", "read_file_extra", "readFile", "READ_FILE", "*", ".*", "read_fil?"))
	call := func(tool string) answer {
		return w.send(t.Context(), "s1-r1", http.MethodPost, "/filesystem/"+url.PathEscape(tool), `{"text":"called"}`, 0)
	}
	if got := call("read_file"); got.text() != "called" {
		t.Fatalf("the allowed tool: %s", got.body)
	}
	for _, form := range []string{
		"write_file", "nonexistent", "read", "file", "read_file_extra", "*", ".*", "read_fil?", "**", "READ_FILE", "Read_File", "readFile",
		"read%5Ffile", base64.StdEncoding.EncodeToString([]byte("read_file")), `read\u005ffile`, `\x72ead_file`, "   ", "read_file\x00",
		"read_file\n", " read_file", "shell__exec", "query", "delete_user", "read_file|write_file", "mcp__filesystem__write_file",
		"read_file;write_file", "read_file,write_file", "[write_file]", "../filesystem/write_file", "write_file#read_file",
	} {
		if got := call(form); got.status == http.StatusOK {
			t.Errorf("%q was called: %s", form, got.body)
		}
	}
	tools, _ := w.broker.KnownTools("filesystem")
	if len(tools) != 1 || tools[0].Name != "read_file" {
		t.Errorf("code and models see %v", tools) // code-executor shows all of them
	}
}

// TestNearest: Forgemax's cases of a name that is almost right.
func TestNearest(t *testing.T) {
	w := newWorld(t, 4, listed(t, "narsil", nil, "find_symbols", "parse"))
	for tool, want := range map[string]string{
		"fnd_symbols": `"find_symbols"`, "find_symbol": `"find_symbols"`, "prase": `"parse"`, "zzzzz": "", "completely_different": "",
	} {
		got := w.call("/narsil/"+tool, `{"text":""}`)
		if got.Code != toolNotFound || got.Retryable || !strings.Contains(got.Hint, want) ||
			want == "" && strings.Contains(got.Hint, "mean") {
			t.Errorf("%s: %s", tool, got.body)
		}
	}
}

// TestHungTool: a tool that never answers holds up no other call, of its server or another, and its own caller only for
// as long as that allows. In codemcp one such tool stops all clients.
func TestHungTool(t *testing.T) {
	w := newWorld(t, 4, hostile(t, "a", nil), hostile(t, "b", nil))
	m := newMeeting(t)
	hung := make(chan answer, 1)
	go func() { hung <- w.send(t.Context(), "s1-r1", http.MethodPost, "/a/never", m.call, 3*time.Second) }()
	m.await(1)
	for _, path := range []string{"/a/echo", "/b/echo", "/a/echo"} {
		if got := w.send(t.Context(), "s2-r2", http.MethodPost, path, `{"text":"hi"}`, testkit.Patience); got.text() != "hi" {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	select {
	case got := <-hung:
		t.Errorf("the call that hangs has ended already: %s", got.body)
	default:
	}
	if got := <-hung; got.Code != timedOut {
		t.Errorf("%s", got.body)
	}
}
