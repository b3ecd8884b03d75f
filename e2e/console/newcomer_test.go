package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// Two real MCP servers from npm. The second one ends at once, because it is given no key.
const (
	works = "@modelcontextprotocol/server-everything@2026.8.31"
	ends  = "@stripe/mcp@0.3.3"
)

// packaged are APIs that are nothing but a package from npm.
func packaged(list []world.API) []world.API {
	for name, pkg := range map[string]string{"everything": works, "payments": ends} {
		list = append(list, world.API{Name: name, Config: map[string]any{
			"description": "the server " + name, "mcp": map[string]any{"package": "npm:" + pkg},
		}})
	}
	return list
}

// TestNewcomer asks what somebody does who sees the console for the first time, and goes only where the page shows a way:
// which server is down and why, which skill changed last and how, whether the ledger is whole.
func TestNewcomer(t *testing.T) {
	w := world.Start(t, world.Config{Registry: true, Change: packaged, Slots: 2})
	b := newTab(t, nil)
	b.open(t, address(t, w))
	b.see(t, ".rail", "Servers")
	lookAtPages(t, b, "empty")
	t.Run("first steps", func(t *testing.T) {
		b.wait(t, `document.querySelectorAll("[aria-label='First steps'] li").length === 3`)
		step := func(n int, want string) {
			t.Helper()
			b.see(t, fmt.Sprintf("[aria-label='First steps'] li:nth-child(%d)", n), want)
		}
		step(1, "done") // the world has sent messages, and it has APIs
		step(2, "done")
		step(3, "not yet")
		sound(t, b, "first steps")
		b.clean(t)
	})
	w.MustExecute(t, `console.log(await mcp.everything.echo({ message: "hi" }));`)
	w.MustExecute(t, `// Asks the payments
console.log(await mcp.payments.list_customers({}).catch((e) => e.code + ": " + e.message));`)
	for i, text := range []string{"page", "page * 2", "page * 2 + 1"} {
		w.MustExecute(t, fmt.Sprintf("// Writes number %d\nDeno.writeTextFileSync('/skills/offsets.ts', '/** @description Where a page begins */\\n// kept\\nexport const offset = (page: number) => %s;\\n')", i+1, text))
		if i == 1 { // something else changes between, and before the last
			w.MustExecute(t, "Deno.writeTextFileSync('/skills/zones.ts', '/** @description Time zones */\\nexport const zone = 1;\\n')")
		}
	}
	click := func(selector, text string) {
		t.Helper()
		e := fmt.Sprintf("[...document.querySelectorAll(%q)].find((e) => e.innerText.includes(%q))", selector, text)
		b.wait(t, e)
		eval[bool](t, b, e+".click() || true")
	}

	t.Run("which server is down", func(t *testing.T) {
		b.wait(t, "document.querySelector('.rail a[href=\"#/servers\"] .badge.err')?.innerText === '1'")
		click(".rail a", "Servers")
		b.see(t, ".tiles", "1 down")
		row := func(name string) string {
			return eval[string](t, b, fmt.Sprintf("[...document.querySelectorAll('tbody tr')].find((e) => e.innerText.includes(%q))?.innerText ?? ''", name))
		}
		if text := row("payments"); !strings.Contains(text, "Failing") && !strings.Contains(text, "Down") {
			t.Errorf("the server that is down is shown as %q", text)
		}
		if text := row("everything"); strings.Contains(text, "Failing") || strings.Contains(text, "Down") || !strings.Contains(text, "tokens") {
			t.Errorf("the other is shown as %q", text)
		}
		b.see(t, ".note.bad", "payments")
		b.see(t, ".note.bad", "API key") // the server's own words
		seen(t, b, "servers")
		sound(t, b, "servers")
		click("tbody a", "everything")
		b.see(t, "main", "Tools of everything")
		b.see(t, "main", "get-sum")
		b.see(t, "main", "a b")
		click("tbody a", "payments")
		b.see(t, "main", "Log of payments")
		b.see(t, ".out", "API key")
		seen(t, b, "server")
		b.clean(t)
	})

	t.Run("which skill changed last and how", func(t *testing.T) {
		click(".rail a", "Skills")
		b.see(t, ".pane li:first-child", "offsets")
		b.see(t, ".pane li:first-child", "v3")
		b.see(t, ".pane li:first-child", "ago")
		b.see(t, ".pane li:nth-child(2)", "zones")
		b.see(t, ".page", "Version 3 against 2") // it is open, without a click
		b.see(t, ".diff .del", "page * 2;")
		b.see(t, ".diff .add", "page * 2 + 1;")
		b.see(t, ".page", "codeforge-e2e")
		seen(t, b, "skills")
		sound(t, b, "skills")
		click(".version a", "r") // by which run
		b.see(t, ".page .title", "Writes number 3")
		b.clean(t)
	})

	t.Run("whether the ledger is whole", func(t *testing.T) {
		w.MustExecute(t, "await fetch('https://httpbin.test/anything', { headers: { Authorization: 'Bearer HTTPBIN_TOKEN' } })")
		click(".rail a", "Ledger")
		b.see(t, "section[aria-label=Entries]", "Unbroken")
		b.see(t, "section[aria-label=Entries]", "chained by the proxy")
		eval[bool](t, b, "document.querySelector('section[aria-label=Entries]').scrollIntoView() === undefined")
		seen(t, b, "ledger")
		sound(t, b, "ledger")
		b.clean(t)
	})
}

// lookAtPages goes to each page on a desktop, a tablet and a phone. Nothing there may be wider than the screen.
func lookAtPages(t *testing.T, b *tab, name string) {
	t.Helper()
	schemes := []string{"light"}
	if os.Getenv("CODEFORGE_SEEN") != "" {
		schemes = append(schemes, "dark")
	}
	defer b.screen(t, 1440, 900)
	defer b.prefer(t, "prefers-color-scheme", "light", "prefers-reduced-motion", "reduce")
	for _, width := range []int64{1440, 768, 390} {
		b.screen(t, width, 900)
		for _, scheme := range schemes {
			b.prefer(t, "prefers-color-scheme", scheme, "prefers-reduced-motion", "reduce")
			for _, p := range consolePages {
				b.turn(t, p.key, p.page)
				b.wait(t, "document.querySelector('main h1') && !document.querySelector('[aria-busy]')")
				seen(t, b, fmt.Sprint(name, "-", p.page, "-", width, "-", scheme))
				if n := eval[int64](t, b, "Math.max(document.documentElement.scrollWidth, document.querySelector('main').scrollWidth)"); n > width {
					t.Errorf("%s, %s: %d pixels wide on a screen of %d", name, p.page, n, width)
				}
			}
		}
	}
	b.screen(t, 1440, 900)
	b.turn(t, "r", "runs")
}

// consolePages are the pages of the console, and the key that leads to each.
var consolePages = []struct{ key, page string }{
	{"l", "ledger"}, {"a", "apis"}, {"s", "servers"}, {"k", "skills"}, {"b", "alerts"}, {"e", "settings"}, {"h", "held"}, {"r", "runs"},
}

// seen writes a screenshot for whoever looks at what a test saw, when CODEFORGE_SEEN names a folder.
func seen(t *testing.T, b *tab, name string) {
	t.Helper()
	if dir := os.Getenv("CODEFORGE_SEEN"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), b.picture(t), 0o600); err != nil {
			t.Error(err)
		}
	}
}
