package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// notion is a real MCP server, whose host the upstream plays.
const notion = "@notionhq/notion-mcp-server@2.5.2"

// TestHeldCall: a call of a real server's tool that waits is shown in the console with its arguments; approved there, the
// server gets it once and as it was shown, and refused there, not at all.
// Promise: exact-approvals
func TestHeldCall(t *testing.T) {
	w := world.Start(t, world.Config{Registry: true, APIs: []world.API{{Name: "notion", Config: map[string]any{
		"description": "Notion pages", "domains": []string{"api.notion.com"}, "credentials": map[string]any{"NOTION_AUTH_TOKEN": "ntn_0123456789abcdef"},
		"mcp": map[string]any{"package": "npm:" + notion, "env": map[string]string{"NOTION_TOKEN": "NOTION_AUTH_TOKEN"}},
		"rules": []any{
			map[string]any{"tools": []string{"API-post-search"}, "then": "approve", "by": "any"},
			map[string]any{"tools": []string{"API-get-*"}, "then": "allow"},
		},
	}}}})
	w.MustExecute(t, `await mcp.notion["API-get-self"]({});`) // installed, before anybody waits
	b := newTab(t, nil)
	b.open(t, address(t, w))
	b.wait(t, "document.querySelector('nav.rail')")
	for key, want := range map[string]string{"a": "answered", "d": "approval_denied"} {
		sought := fmt.Sprintf("sought%d", time.Now().UnixNano())
		done := later(t, w, 90, fmt.Sprintf(`console.log(await mcp.notion["API-post-search"]({ query: %q, page_size: 7 }).then(() => "answered", (e) => e.code));`, sought))
		b.see(t, ".rail .badge.hot", "1")
		b.press(t, "n")
		b.see(t, ".verb", "CALL notion/API-post-search")
		b.see(t, ".page", sought)
		if n := len(w.Upstream.Seen(sought)); n != 0 {
			t.Errorf("%d requests of the server before the answer", n)
		}
		b.decidable(t)
		b.press(t, key)
		if r := <-done; strings.TrimSpace(r.Out) != want {
			t.Errorf("the code saw %s, want %s", r.JSON, want)
		}
		seen := w.Upstream.Seen(sought)
		if (want == "answered") != (len(seen) == 1) || len(seen) == 1 && !strings.Contains(string(seen[0].Body), `"page_size":7`) {
			t.Errorf("%s: the server sent %d requests %+v", want, len(seen), seen)
		}
		b.see(t, ".pane", "No request waits for you")
	}
	b.clean(t)
}
