package cli

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// setupRig is the setup page for a folder with examples of APIs, in which other users may look.
type setupRig struct {
	t    *testing.T
	page http.Handler
	apis string
	log  string // the file of the terminal
}

func newSetupRig(t *testing.T, examples ...string) *setupRig {
	t.Helper()
	dir := t.TempDir()
	for _, name := range examples {
		folder := filepath.Join(dir, "apis", name)
		testkit.Must(t, os.MkdirAll(folder, 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(folder, "config.json.example"), []byte(strings.NewReplacer("shop", name, "SHOP", strings.ToUpper(name)).Replace(
			`{"description": "a shop",
  "domains": ["your-shop.shop.test"], "credentials": {"SHOP_AUTH_TOKEN": "put_it_here"},
  "rules": [{"methods": ["POST"], "path": "/orders", "then": "allow"}, {"methods": ["GET"], "then": "allow"}], "active": true}`)), 0o600))
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	testkit.Must(t, err)
	t.Cleanup(func() { _ = log.Close() })
	e := &Env{Stdin: log, Stdout: terminal.NewStream(log), Stderr: terminal.NewStream(log), Environ: []string{"CODEFORGE_HOME=" + dir}}
	testkit.Must(t, e.setHome())
	s := setupPage{e: e, apis: filepath.Join(dir, "apis"), target: targetFlags(pflag.NewFlagSet("", pflag.ContinueOnError))}
	*s.target.state = filepath.Join(dir, "none")
	return &setupRig{t, s.routes(), s.apis, log.Name()}
}

// post sends a form, and returns the page that it leads to. The page and the terminal must not have the typed key.
func (r *setupRig) post(path string, form url.Values) string {
	r.t.Helper()
	in := httptest.NewRequestWithContext(r.t.Context(), http.MethodPost, path, strings.NewReader(form.Encode()))
	in.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	r.page.ServeHTTP(w, in)
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "./" {
		r.t.Errorf("%s: %d to %q", path, w.Code, w.Header().Get("Location"))
	}
	w = httptest.NewRecorder()
	r.page.ServeHTTP(w, httptest.NewRequestWithContext(r.t.Context(), http.MethodGet, "/", nil))
	shown, err := os.ReadFile(r.log)
	testkit.Must(r.t, err)
	if text := w.Body.String() + string(shown); strings.Contains(text, "a-typed-key") {
		r.t.Errorf("%s: the key is shown:\n%s", path, text)
	}
	return w.Body.String()
}

// choose chooses an example, and returns the form for its key, which the user fills in.
func (r *setupRig) choose(name string) url.Values {
	r.t.Helper()
	form := regexp.MustCompile(`name="choice" value="(\w+)"`).FindStringSubmatch(r.post("/choose", url.Values{"example": {name}, "bound": {"read"}}))
	if form == nil {
		r.t.Fatal("the form has no choice")
	}
	return url.Values{"choice": {form[1]}, "key0": {"a-typed-key-of-a-shop"}, "your-" + name: {"acme"}}
}

// config returns the config.json of an API, or "" if there is none.
func (r *setupRig) config(name string) string {
	text, err := os.ReadFile(filepath.Join(r.apis, name, "config.json"))
	if !os.IsNotExist(err) {
		testkit.Must(r.t, err)
	}
	return string(text)
}

// TestSetupShowsNoKey: neither a refused key nor an accepted one is on the page or in the terminal. A refused one changes
// no file. The choice "only read" bounds the rules of the example, whose host the user completes.
// Promise: setup-page
func TestSetupShowsNoKey(t *testing.T) {
	r := newSetupRig(t, "shop")
	form := r.choose("shop")
	for name, bad := range map[string]string{"key0": "a-typed-key\x01of-a-shop", "your-shop": "acme.evil.test/"} {
		good := form.Get(name)
		form.Set(name, bad)
		if text := r.post("/add", form); !strings.Contains(text, `role="alert"`) || !strings.Contains(text, "Add shop") {
			t.Errorf("a mistake: %s", text)
		}
		if r.config("shop") != "" {
			t.Error("a mistake is written")
		}
		form.Set(name, good)
	}
	if text := r.post("/add", form); !strings.Contains(text, "shop is added") {
		t.Errorf("the result: %s", text)
	}
	text := r.config("shop")
	for _, want := range []string{`"acme.shop.test"`, `"a-typed-key-of-a-shop"`, `"GET"`} {
		if !strings.Contains(text, want) || strings.Contains(text, "POST") {
			t.Errorf("config.json has no %s, or a write:\n%s", want, text)
		}
	}
	if text := r.post("/add", form); !strings.Contains(text, "sent already") {
		t.Errorf("the form again: %s", text)
	}
}

// typeInFirstTab types a key into the form for one API after another tab has chosen another one. It reports whether the
// other API, whose hosts are others, gets the key.
func typeInFirstTab(t *testing.T) bool {
	t.Helper()
	r := newSetupRig(t, "shop", "thief")
	form := r.choose("shop")
	r.choose("thief")
	form.Set("your-thief", "acme")
	r.post("/add", form)
	return strings.Contains(r.config("thief"), "a-typed-key")
}

// TestSetupTabs: a key goes to the API whose form the user filled in, or to none. A form of an earlier choice, of the same
// API too, adds nothing: the rules may differ.
// Promise: setup-page
func TestSetupTabs(t *testing.T) {
	if typeInFirstTab(t) {
		t.Error("another API got the key")
	}
	r := newSetupRig(t, "shop")
	old := r.choose("shop")
	form := r.choose("shop")
	if text := r.post("/add", old); !strings.Contains(text, "earlier choice") || !strings.Contains(text, "Add shop") || r.config("shop") != "" {
		t.Errorf("a form of an earlier choice: %s", text)
	}
	if text := r.post("/add", form); !strings.Contains(text, "shop is added") {
		t.Errorf("the latest form: %s", text)
	}
}
