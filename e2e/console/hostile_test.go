package console

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// sample is a text of testdata/hostile: text, often so often, or bytes.
type sample struct {
	Text   string `json:"text"`
	Repeat int    `json:"repeat"`
	Bytes  string `json:"bytes"`
}

// samples reads the corpus, by its files.
func samples(t *testing.T) map[string][]sample {
	t.Helper()
	paths, err := filepath.Glob("testdata/hostile/*.json")
	testkit.Must(t, err)
	out, n := map[string][]sample{}, 0
	for _, p := range paths {
		data, err := os.ReadFile(p)
		testkit.Must(t, err)
		var list []sample
		testkit.Must(t, json.Unmarshal(data, &list))
		out[strings.TrimSuffix(filepath.Base(p), ".json")] = list
		n += len(list)
	}
	if n < 200 {
		t.Fatalf("the corpus has %d texts", n)
	}
	return out
}

// raw is what code prints for it.
func (s sample) raw(t *testing.T) []byte {
	t.Helper()
	if s.Bytes != "" {
		b, err := hex.DecodeString(s.Bytes)
		testkit.Must(t, err)
		return b
	}
	return []byte(strings.Repeat(s.Text, max(1, s.Repeat)))
}

// printing is code that prints texts byte for byte, to both outputs, under a title.
func printing(t *testing.T, title string, list []sample) string {
	t.Helper()
	var texts []string
	for _, s := range list {
		texts = append(texts, hex.EncodeToString(s.raw(t)))
	}
	return "// " + strings.NewReplacer("\n", " ", "\r", " ", "\u2028", " ", "\u2029", " ").Replace(title) + `
const list = ` + string(must(json.Marshal(texts))) + `;
for (const text of list) for (const out of [Deno.stdout, Deno.stderr]) { out.writeSync(Uint8Array.fromHex(text)); out.writeSync(new Uint8Array([10])); }
`
}

// checkText finds what is in the page and should be text only, or should not be there as it is.
const checkText = `(() => {
  const app = document.getElementById("app"), out = [];
  for (const e of app.querySelectorAll("*")) {
    if (/^(img|script|iframe|object|embed|form|base|meta|style|link|math|video|audio|marquee|template|portal|foreignobject|use|image|animate)$/i.test(e.tagName)) out.push("an element: " + e.outerHTML.slice(0, 100));
    if (e.tagName === "DIALOG" && !e.matches(".palette, .help")) out.push("a dialog");
    for (const a of e.attributes) {
      if (/^on|^srcdoc$|^formaction$|^xlink:/i.test(a.name)) out.push("an attribute: " + a.name);
      if (/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/.test(a.value)) out.push("an odd character in " + a.name);
    }
    const href = e.getAttribute("href");
    if (href !== null && !/^#\/|^#main$/.test(href)) out.push("a link: " + href.slice(0, 100));
  }
  const walk = document.createTreeWalker(app, NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) if (/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\u{e0000}-\u{e01ef}]/u.test(n.data)) out.push("an odd character: " + JSON.stringify(n.data.slice(0, 60)));
  if (document.title.includes("owned")) out.push("a script has run");
  if (Object.prototype.polluted) out.push("the prototype of objects was changed");
  if (document.querySelectorAll("main#main").length !== 1 || document.querySelectorAll("nav.rail").length !== 1) out.push("the frame of the page was changed");
  return [...new Set(out)].slice(0, 5);
})()`

// TestHostile: each of 200 texts that code may print, and that titles, skills, requests and browsers may have, is text on
// every page: no element, attribute or link comes of it, no character of it is hidden or turns others around, and the
// page's policy has nothing to refuse.
// Promise: console-shows-text
func TestHostile(t *testing.T) {
	if world.CurrentMode() != world.Embedded {
		t.Skip("embedded mode only: the page is the same in Docker mode")
	}
	w := world.Start(t, world.Config{Change: withAsked, Slots: 4})
	corpus := samples(t)
	batches := map[string][]sample{}
	for name, list := range corpus {
		if name != "huge" {
			batches[name] = list
			continue
		}
		for i, s := range list { // what is kept of a run has room for one or two of them
			batches[fmt.Sprint(name, " ", i)] = []sample{s}
		}
	}
	runs := map[string]string{}
	for name, list := range batches {
		runs[name] = w.MustExecute(t, printing(t, name+" "+list[0].Text, list)).Receipt.Run
	}
	for _, i := range []int{1, 10, 24, 51, 60} {
		w.MustExecute(t, "// "+corpus["markup"][i].Text+"\nconsole.log(1)")
	}
	// Texts of skills, of requests and of browsers.
	var all []string
	for _, name := range []string{"markup", "direction", "terminal"} {
		for _, s := range corpus[name] {
			all = append(all, s.Text)
		}
	}
	text := string(must(json.Marshal(all)))
	w.MustExecute(t, fmt.Sprintf("Deno.writeTextFileSync('/skills/hostile.ts', %s)", must(json.Marshal(
		"/** @description "+strings.ReplaceAll(strings.Join(all[:20], " "), "*/", "")+" */\nexport const list = "+text+";\n"+strings.Join(corpusText(corpus["direction"]), "\n")))))
	b := newTab(t, nil)
	b.open(t, address(t, w))
	b.wait(t, "document.querySelector('nav.rail')")
	_, code, _ := strings.Cut(address(t, w), "#code=")
	if s := ask(t, w, http.MethodPost, "session", map[string]string{"Content-Type": "application/json", "User-Agent": strings.Join(all[:3], " ")}, `{"secret": "`+code+`"}`); s != http.StatusOK {
		t.Fatalf("a browser with an odd name: %d", s)
	}
	held := later(t, w, 90, fmt.Sprintf("const all = %s;\nawait fetch('https://%s/anything/refunds?q=' + encodeURIComponent(all[0]), { method: 'POST', headers: { 'Content-Type': 'text/plain' }, body: all.join('\\n') }).catch(() => {});", text, asked))

	onlyText := func(t *testing.T, where string) {
		t.Helper()
		for _, wrong := range eval[[]string](t, b, checkText) {
			t.Errorf("%s: %s", where, wrong)
		}
		b.clean(t)
	}
	for name, run := range runs {
		to(t, b, "#/runs/"+run)
		b.see(t, ".page .mono", run)
		b.wait(t, "document.querySelector('#output ol')")
		onlyText(t, "the run of "+name)
	}
	to(t, b, "#/runs/"+runs["markup"])
	b.see(t, ".page .mono", runs["markup"])
	b.wait(t, "document.querySelector('#output ol')")
	for _, s := range corpus["markup"] {
		if strings.ContainsAny(s.Text, "\x00\x0b\x0c") {
			continue // shown by their numbers
		}
		if !eval[bool](t, b, fmt.Sprintf("document.querySelector('#output').textContent.includes(%s)", must(json.Marshal(s.Text)))) {
			t.Errorf("it is not shown: %q", s.Text)
		}
	}
	for _, p := range []struct{ at, see string }{
		{"#/skills/hostile", "export const list"}, {"#/held", "/anything/refunds"}, {"#/ledger", "Entries"}, {"#/alerts", "hostile"},
		{"#/settings", "opened"}, {"#/servers", "MCP servers"}, {"#/apis", "httpbin"}, {"#/runs?" + "onerror", "onerror"},
	} {
		to(t, b, p.at)
		b.see(t, "main", p.see)
		b.wait(t, "!document.querySelector('[aria-busy]')")
		onlyText(t, p.at)
	}
	b.press(t, "ctrl-k")
	b.wait(t, "document.querySelectorAll('[role=option]').length > 8")
	onlyText(t, "the palette")
	b.press(t, "escape")

	// Controls: what onlyText looks for is found; and the page refuses what it never does, and this test hears of it.
	eval[bool](t, b, `(() => { const e = document.createElement("a"); e.id = "control"; e.href = "javascript:1"; e.title = "\u202e"; e.append("\u001b[31m"); document.querySelector("main").append(e); return true; })()`)
	if found := eval[[]string](t, b, checkText); len(found) != 3 {
		t.Errorf("of three wrong things these are found: %q", found)
	}
	eval[bool](t, b, `document.getElementById("control").remove() || true`)
	if !eval[bool](t, b, `(() => { try { document.body.firstElementChild.insertAdjacentHTML("beforeend", "<img src=x onerror=1>"); return false; } catch (e) { return e instanceof TypeError; } })()`) {
		t.Error("the page makes markup of text")
	}
	eval[bool](t, b, `(() => { const e = document.createElement("img"); e.src = "https://evil.test/leak"; document.body.append(e); return true; })()`)
	b.wait(t, "document.querySelector('img')")
	testkit.WaitFor(t, func() bool { return strings.Contains(strings.Join(b.heard(), "\n"), "img-src") })
	b.complaints()
	to(t, b, "#/held")
	b.wait(t, "document.querySelector('.actions .btn.no')")
	eval[bool](t, b, "document.querySelector('.actions .btn.no').click() || true")
	<-held
}

// corpusText are the texts of samples, without those that would end a line comment.
func corpusText(list []sample) []string {
	var out []string
	for _, s := range list {
		out = append(out, "// "+strings.NewReplacer("\n", " ", "\r", " ", "\u2028", " ", "\u2029", " ").Replace(s.Text))
	}
	return out
}

// to goes to a page by its address.
func to(t *testing.T, b *tab, hash string) {
	t.Helper()
	eval[bool](t, b, fmt.Sprintf("(location.hash = %q) !== ''", hash))
}
