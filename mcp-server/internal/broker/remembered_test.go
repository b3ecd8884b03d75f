package broker

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// countKnown returns the number of known tools of a server.
func countKnown(t *testing.T, w *world, server string) int {
	t.Helper()
	tools, ok := w.broker.KnownTools(server)
	if ok != (len(tools) > 0) {
		t.Errorf("%s: %d tools, known %v", server, len(tools), ok)
	}
	return len(tools)
}

// TestRemembered: after a restart tools are known without a start, until a server is configured otherwise.
func TestRemembered(t *testing.T) {
	dir, a := t.TempDir(), hostile(t, "a", nil)
	first := newWorldIn(t, dir, 4, a)
	if n := countKnown(t, first, "a"); n != 0 {
		t.Errorf("%d tools before the server was ever started", n)
	}
	first.pid("s1-r1", "a")
	all := countKnown(t, first, "a")
	first.broker.Close(t.Context())

	second := newWorldIn(t, dir, 4, a)
	if n := countKnown(t, second, "a"); n != all {
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
	second.change("2", hostile(t, "a", func(s *mcpserver.Settings) { s.TimeoutMS = 9000 }))
	if n := countKnown(t, second, "a"); n != 0 {
		t.Errorf("%d tools of a server that is configured otherwise", n)
	}
}

// TestRememberedIsNoTruth: a call does not rely on what was remembered. The tools of a server that declares others than
// the accepted ones, and those in a damaged file or one of commit 1076a279, are unknown after a restart.
func TestRememberedIsNoTruth(t *testing.T) {
	dir, a := t.TempDir(), hostile(t, "a", nil)
	path := filepath.Join(dir, "a.json")
	restart := func(change func(*acceptedTools)) *world {
		t.Helper()
		text, err := os.ReadFile(path)
		testkit.Must(t, err)
		var have acceptedTools
		testkit.Must(t, json.Unmarshal(text, &have))
		change(&have)
		text, err = json.Marshal(have)
		testkit.Must(t, err)
		testkit.Must(t, os.WriteFile(path, text, 0o600))
		return newWorldIn(t, dir, 4, a)
	}
	w := newWorldIn(t, dir, 4, a)
	w.pid("s1-r1", "a")
	all := countKnown(t, w, "a")
	w.broker.Close(t.Context())

	w = restart(func(have *acceptedTools) {
		have.Tools["gone"] = json.RawMessage(`{"name":"gone","inputSchema":{}}`)
	})
	if n := countKnown(t, w, "a"); n != all+1 {
		t.Fatalf("%d tools are remembered", n)
	}
	if got := w.call("/a/gone", `{}`); got.Code != toolNotFound {
		t.Errorf("a tool that is gone: %s", got.body)
	}
	if got := w.call("/a/echo", `{"text":"hi"}`); got.text() != "hi" {
		t.Errorf("another tool: %s", got.body)
	}
	w.broker.Close(t.Context())

	for _, row := range []struct {
		name   string
		change func(*acceptedTools)
	}{
		{"the accepted tools are others", func(*acceptedTools) {}},
		{"a file of 1076a279", func(have *acceptedTools) { delete(have.Tools, "gone"); have.Digest = "" }},
	} {
		w = restart(row.change)
		if n := countKnown(t, w, "a"); n != 0 {
			t.Errorf("%s: %d tools are remembered", row.name, n)
		}
		if got := w.call("/a/echo", `{"text":"hi"}`); got.text() != "hi" {
			t.Errorf("%s: %s", row.name, got.body)
		}
		w.broker.Close(t.Context())
	}
	for _, text := range []string{"", "{", `{"digest":1}`} {
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
		if n := countKnown(t, newWorldIn(t, dir, 4, a), "a"); n != 0 {
			t.Errorf("a damaged file is believed: %q", text)
		}
	}
}
