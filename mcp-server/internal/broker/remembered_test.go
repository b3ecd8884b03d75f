package broker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestRemembered: after a restart tools are known without a start, until a server is configured otherwise or is gone.
// A call does not rely on what was remembered.
func TestRemembered(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "definitions")
	a, b := hostile(t, "a", nil), hostile(t, "b", nil)
	files := func() (all []string) {
		entries, err := os.ReadDir(dir)
		testkit.Must(t, err)
		for _, e := range entries {
			if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", e.Name(), info, err)
			}
			all = append(all, filepath.Join(dir, e.Name()))
		}
		return all
	}
	known := func(w *world, server string) int {
		t.Helper()
		tools, ok := w.broker.KnownTools(server)
		if ok != (len(tools) > 0) {
			t.Errorf("%s: %d tools, known %v", server, len(tools), ok)
		}
		return len(tools)
	}

	first := newWorldIn(t, dir, 4, a, b)
	if n := known(first, "a"); n != 0 {
		t.Errorf("%d tools before the server was ever started", n)
	}
	first.pid("s1-r1", "a")
	first.pid("s1-r1", "b")
	all := known(first, "a")
	first.broker.Close(t.Context())

	second := newWorldIn(t, dir, 4, a, b)
	if n := known(second, "a"); n != all {
		t.Errorf("%d tools after a restart, want %d", n, all)
	}
	if tools, err := second.broker.LearnTools(t.Context(), "a"); err != nil || len(tools) != all {
		t.Errorf("learned %d tools, %v", len(tools), err)
	}
	got := second.send(t.Context(), "s1-r1", http.MethodGet, "/a", "", 0)
	if !strings.Contains(string(got.body), `"name":"echo"`) || !strings.Contains(string(got.body), `"inputSchema"`) {
		t.Errorf("$tools(): %.200s", got.body)
	}
	if second.broker.ListStates()[0].Tools == nil {
		t.Error("the status does not know the tools")
	}
	if n := second.launcher.launches; n != 0 {
		t.Errorf("%d servers were started to list tools", n)
	}
	second.pid("s1-r1", "a")

	if n := len(files()); n != 2 {
		t.Errorf("%d files for two servers", n)
	}
	other := hostile(t, "a", func(s *mcpserver.Settings) { s.TimeoutMS = 9000 })
	second.change("2", other)
	if n := known(second, "a"); n != 0 {
		t.Errorf("%d tools of a server that is configured otherwise", n)
	}
	if n := len(files()); n != 1 {
		t.Errorf("%d files for one server", n)
	}
	second.broker.Close(t.Context())

	third := newWorldIn(t, dir, 4, a, b)
	if n := known(third, "b"); n != 0 {
		t.Errorf("%d tools of a server that was gone", n)
	}
	third.broker.Close(t.Context())
}

// TestRememberedIsNoTruth: what is remembered neither hides a tool that the server has now, nor keeps one that it has
// not, nor does a damaged file stop anything.
func TestRememberedIsNoTruth(t *testing.T) {
	dir := t.TempDir()
	a := hostile(t, "a", nil)
	testkit.Must(t, toolCache(dir).writeCached("a", cacheFile{Digest: digestOf(a), Tools: raws(
		`{"name":"gone","inputSchema":{}}`, `{"name":"echo","inputSchema":{"required":["other"]}}`)}))
	w := newWorldIn(t, dir, 4, a)
	if tools, _ := w.broker.KnownTools("a"); len(tools) != 2 {
		t.Fatalf("%d tools are remembered", len(tools))
	}
	if got := w.call("/a/gone", `{}`); got.Code != toolNotFound {
		t.Errorf("a tool that is gone: %s", got.body)
	}
	if got := w.call("/a/echo", `{"text":"hi"}`); got.text() != "hi" {
		t.Errorf("a tool with other arguments: %s", got.body)
	}
	w.broker.Close(t.Context())
	for _, text := range []string{"", "{", `{"digest":1}`, strings.Repeat("x", 3*maxDefinitions)} {
		testkit.Must(t, os.WriteFile(toolCache(dir).cachePath("a"), []byte(text), 0o600))
		w := newWorldIn(t, dir, 4, a)
		if _, ok := w.broker.KnownTools("a"); ok {
			t.Errorf("a damaged file is believed: %.20q", text)
		}
		if got := w.call("/a/echo", `{"text":"hi"}`); got.text() != "hi" {
			t.Errorf("%s", got.body)
		}
		w.broker.Close(t.Context())
	}
}

// TestRememberedShapes: a file of an earlier version, which has learned shapes of results, gives the tools. The next list
// of the tools writes it without them.
func TestRememberedShapes(t *testing.T) {
	dir, a := t.TempDir(), hostile(t, "a", nil)
	path := toolCache(dir).cachePath("a")
	testkit.Must(t, os.WriteFile(path, fmt.Appendf(nil, `{"digest":%q,"tools":[{"name":"echo","inputSchema":{}}],`+
		`"shapes":{"echo":{"of":"a1b2","samples":1,"shape":{"k":1,"n":1,"m":[{"n":"id","c":1,"s":{"k":8}}]},"asked":"Bw=="}}}`,
		digestOf(a)), 0o600))
	w := newWorldIn(t, dir, 4, a)
	if tools, _ := w.broker.KnownTools("a"); len(tools) != 1 {
		t.Errorf("%d tools are remembered", len(tools))
	}
	w.call("/a/echo", `{"text":"hi"}`)
	w.broker.Close(t.Context())
	if kept, err := os.ReadFile(path); err != nil || strings.Contains(string(kept), "shapes") {
		t.Errorf("%v: %s", err, kept)
	}
}

func raws(texts ...string) (all []json.RawMessage) {
	for _, t := range texts {
		all = append(all, json.RawMessage(t))
	}
	return all
}
