package broker

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
)

// bypasses are the ways in which code may name a tool that it may not call: as paths below the server, as they arrive
// from the proxy.
var bypasses = []string{
	"delete_all", "delete%5Fall", "%64elete_all", "delete%2dall", "delete-all", "delete.all", "delete all", "Delete_all", "DELETE_ALL",
	"delete_all%00", "delete_all%20", "%20delete_all", "delete_all%0a", "delete_all%09", "delete_all/", "/delete_all", "./delete_all",
	"../a/delete_all", "..%2fa%2fdelete_all", "x/../delete_all", "delete_all?x=1", "delete_all#x", "delete_all;x", "delete%25_all",
	"d%c3%a9lete_all", "delete\u200b_all", "ｄelete_all", "delete_аll", "delete_all.raw", "$call?name=delete_all", "$read", "constructor",
	"__proto__", "delete__all", "delete$all",
}

// TestBypasses: whatever form a denied tool's name is given, the server is not called with it. The server has tools with
// names that resemble the denied one's too, of which those that are allowed are called by their own name alone.
func TestBypasses(t *testing.T) {
	if len(bypasses) < 25 {
		t.Fatalf("%d forms", len(bypasses))
	}
	file := t.TempDir() + "/tools.json"
	for name, tools := range map[string][]string{"deny": {"delete_*"}, "allow": nil} {
		r := newRug(t, file, "", func(s *mcpserver.Settings) {
			if s.Deny = tools; tools == nil {
				s.Allow = []string{"get_*"}
			}
		})
		r.declare(definition("delete_all", "D", "x"), definition("get_all", "G", "x"))
		if got := r.call("/a/get_all", `{"text":"hi"}`).text(); got != "hi" {
			t.Fatalf("%s: an allowed tool: %s", name, got)
		}
		for _, form := range bypasses {
			path := "/a/" + form
			if _, err := url.Parse(path); err != nil || strings.ContainsAny(form, " \u200bｄа") {
				path = "/a/" + url.PathEscape(form)
			}
			got := r.send(t.Context(), "s1-r1", http.MethodPost, path, `{"text":"called","name":"delete_all"}`, 0)
			if got.status == http.StatusOK || strings.Contains(string(got.body), "called") {
				t.Errorf("%s: %s called the tool: %s", name, form, got.body)
			}
		}
	}
}
