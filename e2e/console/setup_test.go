package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// typedKey is what the user types into the setup page.
const typedKey = "sk-setup-2b7e151628aed2a6"

// hostileDocument describes an API in words of an unknown author.
const hostileDocument = `{"openapi":"3.0.0","info":{"title":"<img src=x onerror=alert(1)>","version":"1"},
"servers":[{"url":"https://shop.example.com"},{"url":"https://thief.test"}],
"components":{"securitySchemes":{"key":{"type":"http","scheme":"bearer"}}},"security":[{"key":[]}],
"paths":{"/things":{"get":{"operationId":"list"},"post":{"operationId":"add"}},
"/others":{"servers":[{"url":"https://thief.test"}],"get":{"operationId":"steal"}}}}`

// TestSetup adds an API with an example and one with a document, in a browser by the keyboard. The running CodeForge then
// swaps the typed key, which neither the page nor the terminal has shown.
// Promise: setup-page
func TestSetup(t *testing.T) {
	world.RunInOneMode(t, "the page is of the host's command line, which is the same in each mode")
	var example world.API
	w := world.Start(t, world.Config{Slots: 2, Change: func(list []world.API) []world.API {
		var rest []world.API
		for _, a := range list {
			if a.Name == "other" {
				example = a
				continue
			}
			rest = append(rest, a)
		}
		return rest
	}})
	example.Config["ca_file"] = filepath.Join(w.Dir, "ca.pem")
	example.Config["credentials"] = map[string]any{"OTHER_TOKEN": "put_your_key_here"}
	text, err := json.Marshal(example.Config)
	testkit.Must(t, err)
	folder := filepath.Join(w.Dir, "apis")
	testkit.Must(t, os.MkdirAll(filepath.Join(folder, "other"), 0o755))                               //nolint:gosec // another user writes there
	testkit.Must(t, os.Chmod(filepath.Join(folder, "other"), 0o777))                                  //nolint:gosec // see above
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "other", "config.json.example"), text, 0o644)) //nolint:gosec // see above
	documents := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		_, _ = out.Write([]byte(hostileDocument))
	}))
	defer documents.Close()
	c, err := w.Command("setup")
	testkit.Must(t, err)
	p, err := world.Launch(c)
	testkit.Must(t, err)
	defer func() { _ = syscall.Kill(-p.Cmd.Process.Pid, syscall.SIGKILL) }()
	link := regexp.MustCompile(`http://127\.0\.0\.1:\d+/\w+/`)
	testkit.WaitFor(t, func() bool { return link.MatchString(p.Output()) })

	b := newTab(t, nil)
	b.open(t, link.FindString(p.Output()))
	b.see(t, "h1", "Add an API")
	look := func(name string) {
		t.Helper()
		for _, size := range []int64{1440, 768, 390} {
			b.screen(t, size, 900)
			for _, scheme := range []string{"light", "dark"} {
				b.prefer(t, "prefers-color-scheme", scheme)
				sound(t, b, fmt.Sprint(name, " ", size, " ", scheme))
				seen(t, b, fmt.Sprint("setup-", name, "-", size, "-", scheme))
			}
			if eval[bool](t, b, "document.documentElement.scrollWidth > innerWidth || [...document.querySelectorAll('#app *')].some((e) => e.getBoundingClientRect().right > innerWidth + 1)") {
				t.Errorf("%s at %d: it is wider than the screen", name, size)
			}
		}
		if strings.Contains(eval[string](t, b, "document.documentElement.outerHTML"), typedKey) {
			t.Errorf("%s shows the key", name)
		}
		b.screen(t, 1440, 900)
	}
	focus := func(selector string) {
		t.Helper()
		b.wait(t, fmt.Sprintf("document.querySelector(%q)", selector))
		eval[bool](t, b, fmt.Sprintf("document.querySelector(%q).focus() || true", selector))
	}
	type_ := func(selector, text string) {
		t.Helper()
		focus(selector)
		b.press(t, strings.Split(text, "")...)
	}
	look("choose")

	focus("select[name=example]")
	b.press(t, "o")                           // the first letter chooses
	b.press(t, "tab", "down", "tab", "enter") // only read, Continue
	b.see(t, "h1", "Add other")
	b.see(t, "pre", `"methods":`)
	look("example")
	type_("input[type=password]", typedKey[:5])
	b.press(t, "enter")
	b.wait(t, "document.querySelector('input:invalid')") // the browser refuses it
	type_("input[type=password]", typedKey[5:])
	b.press(t, "enter")
	b.see(t, "h1", "other is added")
	b.see(t, "[role=status]", "The running CodeForge has loaded it")
	look("added")
	r := w.MustExecute(t, `const a = await fetch("https://other.test/anything", { headers: { Authorization: "Bearer OTHER_TOKEN" } });
console.log(a.status, (await fetch("https://other.test/anything", { method: "POST" }).catch((e) => e)).status);`)
	if !strings.Contains(r.Out, "200 403") {
		t.Errorf("the code got %s", r.Out)
	}

	focus("form[action=back] button")
	b.press(t, "enter")
	b.see(t, "li", "other")
	type_("input[name=document]", documents.URL+"/openapi.json")
	type_("input[name=name]", "httpbin")
	b.press(t, "enter")
	b.see(t, "[role=alert]", "already exists")
	type_("input[name=document]", documents.URL+"/openapi.json")
	type_("input[name=name]", "shop")
	b.press(t, "enter")
	b.see(t, "h1", "Add shop")
	b.see(t, "p", "thief.test is not of example.com and stays closed")
	b.wait(t, "!document.querySelector('img')")
	look("document")
	type_("input[type=password]", typedKey+"2")
	b.press(t, "enter")
	b.see(t, "h1", "shop is added")
	focus("form[action=done] button")
	b.press(t, "enter")
	b.see(t, "h1", "Done")
	look("done")
	b.clean(t)
	if code, err := p.Wait(testkit.Patience); err != nil || code != 0 {
		t.Errorf("exit %d, %v", code, err)
	}
	if out := p.Output(); strings.Contains(out, typedKey) {
		t.Errorf("the terminal shows the key: %s", out)
	}
	config, err := os.ReadFile(filepath.Join(folder, "shop", "config.json"))
	testkit.Must(t, err)
	if !strings.Contains(string(config), typedKey+"2") || !strings.Contains(string(config), `"allowed_methods"`) || strings.Contains(string(config), "thief") {
		t.Errorf("shop is\n%s", strings.ReplaceAll(string(config), typedKey, "…"))
	}
}
