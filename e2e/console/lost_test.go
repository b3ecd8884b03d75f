package console

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// losing is a script that loses what matches of what the page asks: lose.before never arrives, lose.after is not
// answered, lose.cut is answered in part, and the stream is silent while lose.silent. It makes the time for silence short.
const losing = `globalThis.lose = {};
{ const real = fetch, wait = setTimeout;
globalThis.setTimeout = (f, ms, ...rest) => wait(f, ms === 40000 ? 1500 : ms, ...rest);
const is = (what, path, init) => { const [method, part, times] = what ?? []; if (!part || (init?.method ?? "GET") !== method || !path.includes(part) || !times) return false; what[2]--; return true; };
globalThis.fetch = async (path, init) => {
  if (lose.silent && path.includes("/live?")) return new Response(new ReadableStream({ start(c) { init.signal.addEventListener("abort", () => c.error(init.signal.reason)); } }));
  if (is(lose.before, path, init)) throw new TypeError("Failed to fetch");
  const r = await real(path, init);
  if (is(lose.after, path, init)) throw new TypeError("Failed to fetch");
  if (is(lose.cut, path, init)) return new Response((await r.text()).slice(0, 20), r);
  return r;
}; }`

// TestLost: what the network loses makes the page say nothing that is not so: neither that nothing waits, nor that a
// decision counted, or did not.
func TestLost(t *testing.T) {
	if world.CurrentMode() != world.Embedded {
		t.Skip("embedded mode only: the page is the same in Docker mode")
	}
	w := world.Start(t, world.Config{Change: withAsked, Slots: 4})
	b := newTab(t, nil)
	if _, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: losing}); err != nil {
		t.Fatal(err)
	}
	b.open(t, address(t, w))
	b.wait(t, "document.querySelector('nav.rail')")
	lose := func(what, method, part string, times int) {
		t.Helper()
		eval[bool](t, b, fmt.Sprintf("(lose = { %s: [%q, %q, %d] }) !== null", what, method, part, times))
	}
	refund := func() <-chan world.Result {
		return later(t, w, 90, "const r = await fetch('https://"+asked+"/anything/refunds', { method: 'POST' });\nconsole.log(r.status);\n")
	}
	open := func() {
		t.Helper()
		to(t, b, "#/held")
		b.see(t, ".verb", "/anything/refunds")
		b.decidable(t)
	}

	for _, how := range []string{"before", "cut"} {
		lose(how, "GET", "api/held", 2)
		done := refund()
		b.see(t, ".rail .badge.hot", "1")
		open()

		lose("before", "POST", "api/held/", 1)
		b.press(t, "a")
		b.see(t, ".toast", "not known whether that counted")
		b.see(t, ".rail .badge.hot", "1")
		open()
		lose("after", "POST", "api/held/", 1)
		b.press(t, "a")
		b.see(t, ".toast", "not known whether that counted")
		if r := <-done; !strings.HasPrefix(r.Out, "200") {
			t.Errorf("the code saw %s", r.JSON)
		}
		b.wait(t, "!document.querySelector('.rail .badge.hot')")
	}

	t.Run("a silent stream", func(t *testing.T) {
		eval[bool](t, b, "(lose = { silent: true }).silent && (location.hash = '#/runs?x') && true")
		b.see(t, ".rail .foot", "Not connected")
		eval[bool](t, b, "(lose = {}) !== null")
		done := refund()
		b.see(t, ".rail .badge.hot", "1")
		open()
		b.press(t, "d")
		<-done
		b.wait(t, "!document.querySelector('.rail .badge.hot')")
	})

	t.Run("a session that has ended", func(t *testing.T) {
		done := refund()
		open()
		eval[bool](t, b, "(lose = { silent: true }).silent")
		if !eval[bool](t, b, "fetch('/console/api/sessions/this', { method: 'DELETE', headers: { Authorization: 'Bearer ' + sessionStorage.getItem('codeforge-bearer') } }).then((r) => r.ok)") {
			t.Error("the session does not end")
		}
		b.press(t, "a")
		b.see(t, "[role=alert]", "The session has ended, so the change was not made")
		b.open(t, address(t, w))
		b.wait(t, "document.querySelector('nav.rail')")
		open()
		b.press(t, "d")
		<-done
	})
	b.complaints()
}
