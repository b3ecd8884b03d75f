// Package console uses the web console as a person does: in Chromium, on a running CodeForge.
package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/registry"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func TestMain(m *testing.M) {
	os.Exit(world.Main(m, func(root string) {
		for _, pkg := range []string{works, ends, notion} {
			if err := registry.Fetch(root, pkg); err != nil {
				fmt.Fprintln(os.Stderr, "console:", err) // the tests find the package missing
			}
		}
	}))
}

// asked is an API whose requests wait for a person.
const asked = "d.wild.test"

// withAsked makes that of an API with rules.
func withAsked(list []world.API) []world.API {
	for _, a := range list {
		if a.Name == "ruled" {
			a.Config["rules"] = []any{
				map[string]any{"methods": []string{"POST"}, "path": "/anything/refunds", "then": "approve", "by": "any"},
				map[string]any{"methods": []string{"POST"}, "then": "approve"},
				map[string]any{"methods": []string{"GET"}, "then": "allow"},
			}
		}
	}
	return list
}

// address is a way in to the console, by codeforge console.
func address(t *testing.T, w *world.World) string {
	t.Helper()
	out, err := w.Pipe(t.Context(), "", "console", "--json")
	if err != nil {
		t.Fatalf("codeforge console: %v\n%s", err, out)
	}
	var v struct{ Address string }
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &v); err != nil {
		t.Fatalf("codeforge console: %v\n%s", err, out)
	}
	u, err := url.Parse(v.Address)
	testkit.Must(t, err)
	mcp, err := url.Parse(w.URL)
	testkit.Must(t, err)
	if u.Hostname() != "localhost" || u.Path != "/console" || !strings.HasPrefix(u.Fragment, "code=") {
		t.Fatalf("codeforge console printed %q", v.Address)
	}
	u.Host = "localhost:" + mcp.Port() // Docker publishes the tests' port elsewhere
	return u.String()
}

// hostile are texts that code may print.
var hostile = []string{
	`<img src=x onerror="document.title='owned'">`, `<script>document.title='owned'</script>`, `</pre><svg onload=alert(1)>`,
	`"><iframe src="javascript:parent.document.title='owned'">`, `javascript:document.title='owned'`, `{{constructor.constructor('x')()}}`,
	"\x1b]0;owned\x07\x1b[31mred\x1b[0m", "abc\u202eevorppa\u202c", "zero\u200bwidth\ufeff", "\u2066isolate\u2069", strings.Repeat("\x00", 3000),
	strings.Repeat("A", 30_000), "<a href=//evil.test>x</a>", "&lt;b&gt;&amp;", "${alert(1)}", "`'\"\\", "\u2028\u2029", "<math><mi//xlink:href='data:x,<script>1</script>'>",
}

// Promise: console-sessions, console-shows-text, console-decides-what-was-shown, pinned-skills, operators-decisions
func TestConsole(t *testing.T) {
	w := world.Start(t, world.Config{Change: withAsked, Slots: 4})
	b := newTab(t, nil)

	// A first run, so that there is something to see: an answer with a key in it, and a host of no API.
	code := "// Close the " + `<img src=x onerror="document.title='owned'">` + " issues \u202eelats\u202c\n" +
		"const r = await fetch('https://httpbin.test/anything/first', { headers: { Authorization: 'Bearer HTTPBIN_TOKEN' } });\n" +
		"console.log(r.status, (await r.text()).length);\n" +
		"console.error((await fetch('https://strict.test/anything', { method: 'POST' })).status);\n" +
		fmt.Sprintf("for (const s of %s) console.log(s);\n", must(json.Marshal(hostile)))
	w.MustExecute(t, code)

	t.Run("sign in", func(t *testing.T) {
		shell, _, _ := strings.Cut(address(t, w), "#")
		b.open(t, shell)
		b.see(t, "main", "codeforge console")
		link := address(t, w)
		b.open(t, link)
		b.wait(t, "document.querySelector('nav.rail')")
		b.see(t, ".rail", "of 4 slots")
		if at := eval[string](t, b, "location.href"); strings.Contains(at, "code=") {
			t.Errorf("the code is still in the address: %s", at)
		}
		if n := eval[int](t, b, "document.cookie.length"); n != 0 {
			t.Error("there is a cookie")
		}
		b.clean(t)
		other := newTab(t, b.ctx) // a further tab asks this one
		other.open(t, eval[string](t, b, "location.origin + '/console'"))
		other.wait(t, "document.querySelector('nav.rail')")

		// The link does not work twice: in a profile without a session.
		again := newTab(t, nil)
		again.open(t, link)
		again.see(t, "[role=alert]", "works once")
		again.complaints() // of the 401
	})

	t.Run("a run", func(t *testing.T) {
		b.see(t, "ol.runs", "Close the <img src=x")
		b.see(t, ".page .title", "Close the <img src=x")
		b.see(t, ".page .title", "U+202E")
		b.see(t, ".flowbox", "stopped here, not sent")
		b.see(t, ".why", "method_restricted")
		b.see(t, ".why", "Why it was refused")
		b.see(t, ".wf", "HTTPBIN_TOKEN")
		b.see(t, "#output", "<script>document.title='owned'</script>")
		b.see(t, "#output", "U+001B")
		b.see(t, "#output", "U+0000\u00d7")
		b.see(t, "#output", "U+202E")
		if n := eval[int](t, b, "document.querySelectorAll('#app img, #app script, #app iframe, #app a[href*=evil], #app svg[onload], #app math').length"); n != 0 {
			t.Errorf("%d elements of the output are in the page", n)
		}
		if title := eval[string](t, b, "document.title"); strings.Contains(title, "owned") {
			t.Error("a script of the output has run")
		}
		for name, c := range w.Canaries {
			if eval[bool](t, b, fmt.Sprintf("document.documentElement.outerHTML.includes(%q)", c.Value())) {
				t.Errorf("the page holds the credential %s", name)
			}
		}
		b.clean(t)
	})

	t.Run("live", func(t *testing.T) {
		done := later(t, w, 90, "// Waits for a while\nconsole.log('begun');\nawait new Promise((r) => setTimeout(r, 60000));\n")
		b.see(t, "ol.runs", "Waits for a while")
		b.press(t, "k")
		b.see(t, ".page .title", "Waits for a while")
		b.see(t, ".page .status", "Running")
		b.see(t, "#output", "begun")
		b.stop(t)
		b.see(t, ".page .status", "Stopped")
		r := <-done
		if !strings.Contains(r.JSON, "Cancelled") {
			t.Errorf("the client was told: %s", r.JSON)
		}
		b.press(t, "j")
		b.see(t, ".page .title", "Close the <img src=x")
		b.clean(t)
	})

	t.Run("held", func(t *testing.T) {
		send := func(path string) string {
			return "// Refund what was paid twice\nconst r = await fetch('https://" + asked + path + "', { method: 'POST', headers: { Authorization: 'Bearer RULED_TOKEN', 'Content-Type': 'application/json' }, " +
				"body: JSON.stringify({ amount: 48000, note: 'by \u202eevorppa\u202c' }) });\nconsole.log(r.status, await r.text());\n"
		}
		yes := later(t, w, 90, send("/anything/refunds"))
		b.see(t, ".rail .badge.hot", "1")
		b.press(t, "n")
		b.see(t, ".verb", "POST https://"+asked+"/anything/refunds")
		b.see(t, ".page", "RULED_TOKEN")
		b.see(t, ".page", "2 characters in it cannot be seen")
		b.see(t, ".lined", "U+202E")
		b.decidable(t)
		// A window of another page that closes passes its keys to this one.
		eval[bool](t, b, `dispatchEvent(new Event("focus")) && document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "a", bubbles: true }))`)
		b.wait(t, "document.querySelector('.actions .btn.no:disabled')")
		b.decidable(t)
		b.press(t, "a")
		if r := <-yes; !strings.HasPrefix(r.Out, "200 ") {
			t.Errorf("after the approval the code saw %s", r.JSON)
		}
		b.see(t, ".pane", "No request waits for you")
		b.see(t, ".pane", "Decided here")

		no := later(t, w, 90, send("/anything/refunds"))
		b.see(t, ".page", "Against the last one that you approved")
		b.decidable(t)
		b.press(t, "d")
		if r := <-no; !strings.HasPrefix(r.Out, "403 ") || !strings.Contains(r.Out, "approval_denied") {
			t.Errorf("after the refusal the code saw %s", r.JSON)
		}

		// What is the operator's alone is shown, and not decided here.
		operator := later(t, w, 90, send("/anything/payouts"))
		b.see(t, ".verb", "/anything/payouts")
		b.see(t, ".actions", "codeforge approve")
		time.Sleep(1500 * time.Millisecond) // until keys decide
		b.press(t, "a")
		id := eval[string](t, b, "[...document.querySelectorAll('.command')].map((e) => e.innerText).find((s) => s.includes('codeforge approve')).trim().split(' ').pop()")
		status := eval[int](t, b, fmt.Sprintf("fetch('/console/api/held/%s', { method: 'POST', headers: { Authorization: 'Bearer ' + sessionStorage.getItem('codeforge-bearer'), 'Content-Type': 'application/json' }, body: '{\"approve\": true}' }).then((r) => r.status)", id))
		if status != http.StatusConflict {
			t.Errorf("the console decided about what is the operator's: %d", status)
		}
		select {
		case r := <-operator:
			t.Errorf("it did not wait: %s", r.JSON)
		default:
		}
		b.turn(t, "r", "runs")
		b.see(t, ".page .status", "Held, waits for you")
		b.stop(t)
		<-operator
		b.complaints() // of the 409
	})

	if world.CurrentMode() != world.Embedded && !testkit.IsThorough() {
		return // the other pages are the same, over the same connection
	}

	t.Run("plans", func(t *testing.T) { plans(t, w, b) })

	t.Run("every page", func(t *testing.T) {
		pages := []struct{ key, page, see string }{
			{"l", "ledger", "Sent from this machine"}, {"a", "apis", "httpbin"}, {"s", "servers", "MCP servers behind CodeForge"},
			{"k", "skills", "page-through"}, {"b", "alerts", "Events that raise an alert"}, {"e", "settings", "the console never writes configuration"},
			{"h", "held", "each request waits until you approve it"}, {"r", "runs", "Runs"},
		}
		for _, scheme := range []string{"light", "dark", "forced colours"} {
			forced := "none"
			if scheme == "forced colours" {
				forced = "active"
			}
			b.prefer(t, "prefers-color-scheme", scheme, "prefers-reduced-motion", "reduce", "forced-colors", forced)
			for _, p := range pages {
				b.turn(t, p.key, p.page)
				b.see(t, "main", p.see)
				b.wait(t, "!document.querySelector('[aria-busy]')")
				sound(t, b, scheme+" "+p.key)
			}
		}
		b.prefer(t, "prefers-color-scheme", "light", "prefers-reduced-motion", "reduce")
		if moving := eval[int](t, b, "document.getAnimations().filter((a) => a.playState === 'running').length"); moving != 0 {
			t.Errorf("%d things move although the user prefers less motion", moving)
		}
		lookAtPages(t, b, "used")
		b.turn(t, "l", "ledger")
		b.see(t, ".matrix", "HTTPBIN_TOKEN")
		b.see(t, "main", "Entries")
		b.turn(t, "a", "apis")
		b.wait(t, "document.querySelector('article')")
		b.press(t, "j")
		b.wait(t, "document.querySelector('article[aria-current]')")
		b.clean(t)
	})

	t.Run("keys", func(t *testing.T) {
		b.turn(t, "r", "runs")
		b.press(t, "?")
		b.see(t, "dialog", "Next that needs you")
		b.press(t, "escape", "ctrl-k")
		b.wait(t, "document.activeElement.getAttribute('role') === 'combobox'")
		b.press(t, "l", "e", "d", "g", "e", "r")
		b.see(t, "[role=option][aria-selected=true]", "Ledger")
		b.press(t, "enter")
		b.see(t, "main", "Sent from this machine")
		if got := eval[string](t, b, typedAtOnce); got != "waits" {
			t.Errorf("of what was typed as soon as there was a field, %q is left", got)
		}
		b.turn(t, "l", "ledger")
		b.turn(t, "r", "runs")
		b.press(t, "/")
		b.wait(t, "document.activeElement.type === 'search'")
		b.press(t, "W", "a", "i", "t", "s", "enter")
		b.wait(t, "document.querySelectorAll('ol.runs li').length === 1")
		b.press(t, "/", "escape")
		b.wait(t, "document.querySelectorAll('ol.runs li').length > 1")
		was := eval[string](t, b, "getComputedStyle(document.body.parentElement).backgroundColor")
		b.press(t, "t")
		b.wait(t, fmt.Sprintf("getComputedStyle(document.body.parentElement).backgroundColor !== %q", was))
		b.press(t, "t", " ")
		b.see(t, ".rail", "Frozen")
		w.MustExecute(t, "// While it is frozen\nconsole.log(1)")
		time.Sleep(600 * time.Millisecond)
		if strings.Contains(b.text(t, "ol.runs"), "While it is frozen") {
			t.Error("a frozen page changed")
		}
		b.press(t, " ")
		b.see(t, "ol.runs", "While it is frozen")
		// With the keyboard alone: to the content, and along it, with a focus that shows.
		b.press(t, "tab", "tab", "tab")
		if eval[string](t, b, "getComputedStyle(document.activeElement).outlineStyle") == "none" {
			t.Errorf("the focus does not show: %s", eval[string](t, b, "document.activeElement.outerHTML"))
		}
		b.clean(t)
	})

	t.Run("skills", func(t *testing.T) { skills(t, w, b) })

	t.Run("test an API", func(t *testing.T) {
		b.turn(t, "a", "apis")
		b.wait(t, "document.querySelector('#api-httpbin')")
		eval[bool](t, b, "document.querySelector('#api-httpbin button').click() || true")
		b.see(t, "#api-httpbin", "was swapped for the credential")
		b.clean(t)
	})

	t.Run("phone", func(t *testing.T) {
		b.screen(t, 390, 844)
		defer b.screen(t, 1440, 900)
		waits := later(t, w, 90, "await fetch('https://"+asked+"/anything/refunds', { method: 'POST', body: 'x' }).catch(() => {})")
		b.wait(t, "document.querySelector('.rail .badge.hot')?.innerText === '1'")
		b.press(t, "n")
		b.see(t, ".verb", "/anything/refunds")
		b.wait(t, "document.querySelector('.actions .btn.main').getBoundingClientRect().bottom <= innerHeight")
		if n := eval[int](t, b, "document.documentElement.scrollWidth"); n > 390 {
			t.Errorf("the page is %d pixels wide on a phone", n)
		}
		if h := eval[float64](t, b, "document.querySelector('.actions .btn.main').getBoundingClientRect().height"); h < 44 {
			t.Errorf("the button is %v pixels high", h)
		}
		b.decidable(t)
		eval[bool](t, b, "document.querySelector('.actions .btn.no').click() || true")
		<-waits
		for _, p := range consolePages {
			b.turn(t, p.key, p.page)
			b.wait(t, "document.querySelector('main h1') && !document.querySelector('[aria-busy]')")
			sound(t, b, "phone "+p.page)
			if n := eval[int](t, b, "Math.max(document.documentElement.scrollWidth, document.querySelector('main').scrollWidth)"); n > 390 {
				t.Errorf("%s is %d pixels wide on a phone", p.page, n)
			}
		}
		b.wait(t, "document.querySelector('ol.runs a')")
	})

	t.Run("end", func(t *testing.T) {
		bearer := eval[string](t, b, "sessionStorage.getItem('codeforge-bearer')")
		b.turn(t, "e", "settings")
		b.see(t, "main", "This browser")
		eval[bool](t, b, "[...document.querySelectorAll('button')].find((e) => e.innerText === 'Sign out').click() || true")
		b.see(t, "main", "Sign in")
		if status := ask(t, w, http.MethodGet, "status", map[string]string{"Authorization": "Bearer " + bearer}, ""); status != http.StatusUnauthorized {
			t.Errorf("a session that has ended answers %d", status)
		}
		b.complaints()
	})
	if leak := w.Leak(w.Logs()); leak != "" {
		t.Errorf("the log holds a credential: %s", leak)
	}
}

// skills restores, pins and deletes a skill, and looks at what is told of it.
func skills(t *testing.T, w *world.World, b *tab) {
	write := func(n int) world.Result {
		return w.MustExecute(t, fmt.Sprintf("Deno.writeTextFileSync('/skills/mine.ts', '/** @description Mine */\\nexport const n = %d;\\n')", n))
	}
	reads := func(n int) {
		t.Helper()
		if r := w.MustExecute(t, "console.log(Deno.readTextFileSync('/skills/mine.ts'))"); !strings.Contains(r.Out, fmt.Sprintf("n = %d;", n)) {
			t.Errorf("code reads %q, want number %d", r.Out, n)
		}
	}
	click := func(script string) {
		t.Helper()
		b.wait(t, "("+script+") && !("+script+").disabled")
		eval[bool](t, b, "("+script+").click() || true")
	}
	button := func(text string) string {
		return fmt.Sprintf("[...document.querySelectorAll('.page button')].find((e) => e.innerText.trim() === %q)", text)
	}
	write(1)
	write(2)
	b.turn(t, "k", "skills")
	to(t, b, "#/skills/mine")
	b.see(t, ".page", "Version 2 against 1")
	click(`document.querySelector('[aria-label="Restore version 1"]')`)
	b.see(t, ".page", "Version 3 against 2")
	b.see(t, ".page", "in the console")
	reads(1)

	click(button("Pin this version"))
	b.see(t, ".page .chip", "pinned")
	r := w.MustExecute(t, `Deno.writeTextFileSync("/skills/x", "export const n = 3;", { mode: 0o600 });
Deno.renameSync("/skills/x", "/skills/mine.ts");
console.log("imports", (await import("/skills/mine.ts")).n);`)
	if !strings.Contains(r.JSON, "The file of the pinned skill mine changed, without effect") || !strings.Contains(r.Out, "imports 1") {
		t.Errorf("code that changes a pinned skill: %s", r.JSON)
	}
	if r := w.MustExecute(t, `import { n } from "/skills/mine.ts"; console.log("imports", n);`); !strings.Contains(r.Out, "imports 1") {
		t.Errorf("code that imports it later: %s", r.JSON)
	}
	b.turn(t, "b", "alerts")
	b.see(t, "main", "The file of a pinned skill was changed: mine")
	b.see(t, "main", "A new skill: mine")
	sound(t, b, "alerts")
	to(t, b, "#/skills/mine")
	click(button("Unpin"))
	click(button("Delete"))
	click(button("Yes, delete"))
	b.see(t, ".page", "It was deleted")
	b.see(t, ".pane", "deleted")
	click(`document.querySelector('[aria-label="Restore version 2"]')`)
	b.see(t, ".page", "a model wrote this")
	reads(2)
	b.clean(t)
}

// later runs code, for so long at most, and gives its result when it has ended.
func later(t *testing.T, w *world.World, seconds int, code string) <-chan world.Result {
	t.Helper()
	done := make(chan world.Result, 1)
	session, err := w.Connect(context.Background())
	testkit.Must(t, err)
	go func() {
		defer session.Close()
		r, err := w.Do(context.Background(), session, world.Run{Code: code, Timeout: seconds})
		if err != nil {
			r.JSON = err.Error()
		}
		done <- r
	}()
	return done
}

// ask sends a request to the console's API, as no browser does.
func ask(t *testing.T, w *world.World, method, path string, header map[string]string, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSuffix(w.URL, "/mcp")+"/console/api/"+path, strings.NewReader(body))
	testkit.Must(t, err)
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := w.HTTP().Do(req)
	testkit.Must(t, err)
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// checkSound finds what a user who cannot see all of it would miss: names, labels, text without contrast.
const checkSound = `(() => {
  const out = [], seen = (e) => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0 && getComputedStyle(e).visibility !== "hidden"; };
  for (const e of document.querySelectorAll("button, a[href], input, [role=img], dialog, nav, main, section")) {
    if (!seen(e)) continue;
    const name = e.getAttribute("aria-label") || e.innerText?.trim() || e.title || e.closest("label")?.innerText?.trim() || e.placeholder || e.querySelector("h1, h2")?.innerText;
    if (!name && e.tagName !== "MAIN") out.push("no name: " + e.outerHTML.slice(0, 120));
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size !== ids.length) out.push("an id twice");
  if (document.querySelectorAll("h1").length !== 1) out.push(document.querySelectorAll("h1").length + " first headings");
  const canvas = document.createElement("canvas"), pen = canvas.getContext("2d", { willReadFrequently: true });
  const rgb = (c) => { pen.clearRect(0, 0, 1, 1); pen.fillStyle = c; pen.fillRect(0, 0, 1, 1); const d = pen.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
  const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  const under = (e) => { let base = [255, 255, 255, 1]; const list = []; for (let x = e; x; x = x.parentElement) list.unshift(rgb(getComputedStyle(x).backgroundColor)); for (const c of list) base = base.map((v, i) => i === 3 ? 1 : v * (1 - c[3]) + c[i] * c[3]); return base; };
  const walk = document.createTreeWalker(document.querySelector("#app"), NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const e = n.parentElement, s = getComputedStyle(e);
    if (!n.data.trim() || !seen(e) || e.closest("svg, :disabled, .sr, kbd, [aria-hidden=true]") || +s.opacity < 1 || e.closest(".keys, .none")) continue;
    const a = light(rgb(s.color)), b = light(under(e)), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.4) out.push("contrast " + ratio.toFixed(2) + ": " + n.data.trim().slice(0, 40) + " <" + e.className + ">");
  }
  return [...new Set(out)].slice(0, 10);
})()`

func sound(t *testing.T, b *tab, where string) {
	t.Helper()
	for _, s := range eval[[]string](t, b, checkSound) {
		t.Errorf("%s: %s", where, s)
	}
}

// picture writes a screenshot for the docs, when CODEFORGE_PICTURES names their folder.
func picture(t *testing.T, b *tab, name string) {
	t.Helper()
	if dir := os.Getenv("CODEFORGE_PICTURES"); dir != "" {
		eval[bool](t, b, "document.querySelector('.welcome button')?.click() || true")
		time.Sleep(400 * time.Millisecond)
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), b.picture(t), 0o644)) //nolint:gosec // for the repository
	}
}

func must(text []byte, err error) string {
	if err != nil {
		panic(err)
	}
	return string(bytes.ToValidUTF8(text, nil))
}

// typedAtOnce goes to the runs, types into the filter as soon as it is there, goes on typing, and says what the field has
// in the end.
const typedAtOnce = `new Promise((done) => {
	new MutationObserver((_, observer) => {
		const f = document.querySelector("[aria-label='List of runs'] input[type=search]"); // the ledger has one too
		if (!f) return;
		observer.disconnect();
		const type = (text) => { f.value += text; f.dispatchEvent(new InputEvent("input", { bubbles: true })); };
		type("wai");
		setTimeout(() => type("ts"), 100);
		setTimeout(() => done(f.isConnected ? f.value : "nothing: the field was replaced"), 600);
	}).observe(document.body, { subtree: true, childList: true, attributes: true });
	location.hash = "#/runs";
})`
