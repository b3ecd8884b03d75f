package console

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// tab is one tab of a Chromium.
type tab struct {
	ctx context.Context

	mu sync.Mutex
	// wrong is what the page complained about: exceptions, errors on its console, violations of its policy.
	wrong   []string
	changed bool // it has complained of networkChanged
}

// networkChanged is what Chromium says when it gives up requests because the machine has another network interface now,
// such as that of a container of another test.
const networkChanged = "net::ERR_NETWORK_CHANGED"

// watchPolicy notes violations of the page's policy from its first script on.
const watchPolicy = `addEventListener("securitypolicyviolation", (e) => console.error("policy: " + e.violatedDirective + " " + e.blockedURI))`

// newTab starts a Chromium, or opens a further tab of one, in a profile of its own.
func newTab(t *testing.T, parent context.Context) *tab {
	t.Helper()
	if parent == nil {
		path := ""
		for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
			if found, err := exec.LookPath(name); err == nil && path == "" {
				path = found
			}
		}
		if path == "" {
			testkit.SkipBecause(t, "there is no chromium")
		}
		temp, err := os.MkdirTemp("", "chromium") // where it leaves a folder when it is killed
		testkit.Must(t, err)
		t.Cleanup(func() { testkit.WaitFor(t, func() bool { return os.RemoveAll(temp) == nil }) })
		var end context.CancelFunc
		parent, end = chromedp.NewExecAllocator(context.Background(), chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox,
			chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(1440, 900), chromedp.Env("TMPDIR="+temp))
		t.Cleanup(end)
	}
	ctx, end := chromedp.NewContext(parent)
	t.Cleanup(end)
	b := &tab{ctx: ctx}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatalf("starting chromium: %v", err)
	}
	if _, err := chromedp.Call(ctx, log.Enable, struct{}{}); err != nil {
		t.Fatal(err)
	}
	// The first key would otherwise give the window the focus, and the page decides nothing for a second after that.
	if _, err := chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watchPolicy}); err != nil {
		t.Fatal(err)
	}
	b.screen(t, 1440, 900)
	return b
}

func (b *tab) hear(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type != "error" && e.Type != "warning" {
			return
		}
		for _, a := range e.Args {
			text += string(a.Value) + a.Description + " "
		}
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
	case *log.EventEntryAdded:
		text = fmt.Sprint(e.Entry.Source, " ", e.Entry.Level, " ", e.Entry.Text, " ", e.Entry.URL)
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if strings.Contains(text, networkChanged) {
		b.changed = true
		return
	}
	b.wrong = append(b.wrong, text)
}

// complaints are what the page has complained about since the last time.
func (b *tab) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.wrong
	b.wrong = nil
	return out
}

// heard is complaints, without forgetting them.
func (b *tab) heard() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.wrong)
}

// clean fails if the page has complained about anything.
func (b *tab) clean(t *testing.T) {
	t.Helper()
	for _, c := range b.complaints() {
		t.Errorf("the page complained: %s", c)
	}
}

// open goes to an address.
func (b *tab) open(t *testing.T, url string) {
	t.Helper()
	for again := true; again; {
		b.mu.Lock()
		b.changed = false
		b.mu.Unlock()
		err := chromedp.Do(b.ctx, chromedp.Navigate("about:blank"), chromedp.Navigate(url)) // loads it again, too
		broken := err != nil && strings.Contains(err.Error(), networkChanged)
		if err != nil && !broken {
			t.Fatalf("opening %s: %v", url, err)
		}
		b.mu.Lock()
		again = b.changed || broken
		b.mu.Unlock()
	}
}

// eval evaluates a script in the page, as its tools would.
func eval[T any](t *testing.T, b *tab, script string) T {
	t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return v
}

// wait waits until a script says true.
func (b *tab) wait(t *testing.T, script string) {
	t.Helper()
	for deadline := time.Now().Add(testkit.Patience); ; time.Sleep(50 * time.Millisecond) {
		if eval[bool](t, b, "!!("+script+")") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it never came: %s\nat %s: %s\n%s", script, eval[string](t, b, "location.hash"),
				strings.Join(strings.Fields(b.text(t, "body")), " "), strings.Join(b.complaints(), "\n"))
		}
	}
}

// see waits until an element contains a text.
func (b *tab) see(t *testing.T, selector, text string) {
	t.Helper()
	b.wait(t, fmt.Sprintf("[...document.querySelectorAll(%q)].some((e) => (e.innerText + ' ' + e.textContent).includes(%q))", selector, text))
}

// text is the text of the first element.
func (b *tab) text(t *testing.T, selector string) string {
	t.Helper()
	return eval[string](t, b, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

// stop stops the run on the page with its key, which does nothing before the button can be pressed.
func (b *tab) stop(t *testing.T) {
	t.Helper()
	b.wait(t, "document.querySelector('.page .top .btn.no:enabled')")
	b.press(t, "x")
}

// press presses keys, one after the other.
func (b *tab) press(t *testing.T, keys ...string) {
	t.Helper()
	for _, k := range keys {
		var o []chromedp.KeyOption
		if rest, ok := strings.CutPrefix(k, "ctrl-"); ok {
			k, o = rest, append(o, chromedp.KeyModifiers(chromedp.ModifierCtrl))
		}
		switch k {
		case "enter":
			k = kb.Enter
		case "escape":
			k = kb.Escape
		case "tab":
			k = kb.Tab
		case "down":
			k = kb.ArrowDown
		}
		if err := chromedp.Do(b.ctx, chromedp.KeyEvent(k, o...)); err != nil {
			t.Fatalf("pressing %q: %v", k, err)
		}
	}
}

// decidable waits until what is shown has been shown for long enough to be decided about.
func (b *tab) decidable(t *testing.T) {
	t.Helper()
	b.wait(t, "document.querySelector('.actions .btn.no:not(:disabled)')")
}

// turn goes to a page by its keys, which must follow each other quickly, as a loaded machine may not manage.
func (b *tab) turn(t *testing.T, key, page string) {
	t.Helper()
	for range 5 {
		b.press(t, "g", key)
		if strings.HasPrefix(eval[string](t, b, "location.hash"), "#/"+page) {
			b.wait(t, fmt.Sprintf("document.querySelector('nav a[aria-current=page]')?.getAttribute('href') === '#/%s'", page))
			return
		}
	}
	t.Fatalf("g %s does not lead to %s", key, page)
}

// screen makes the page so large, as on a phone below 500 pixels.
func (b *tab) screen(t *testing.T, width, height int64) {
	t.Helper()
	var o []chromedp.EmulateViewportOption
	if width < 500 {
		o = append(o, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	if err := chromedp.Do(b.ctx, chromedp.EmulateViewport(width, height, o...)); err != nil {
		t.Fatal(err)
	}
}

// prefer sets what the user prefers, as CSS asks for it: "prefers-color-scheme", "dark".
func (b *tab) prefer(t *testing.T, features ...string) {
	t.Helper()
	var list []*emulation.MediaFeature
	for i := 0; i+1 < len(features); i += 2 {
		list = append(list, &emulation.MediaFeature{Name: features[i], Value: features[i+1]})
	}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: list}); err != nil {
		t.Fatal(err)
	}
}

// picture is what the tab shows, as PNG.
func (b *tab) picture(t *testing.T) []byte {
	t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	return png
}
