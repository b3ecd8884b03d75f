package cli

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestSetupShowsNoKey: neither a refused key nor an accepted one is on the page or in the terminal. A refused one changes
// no file. The choice "only read" bounds the rules of the example, whose host the user completes.
// Promise: setup-page
func TestSetupShowsNoKey(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "apis", "shop")
	testkit.Must(t, os.MkdirAll(folder, 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "config.json.example"), []byte(`{"description": "a shop",
  "domains": ["your-shop.shop.test"], "credentials": {"SHOP_AUTH_TOKEN": "put_it_here"},
  "rules": [{"methods": ["POST"], "path": "/orders", "then": "allow"}, {"methods": ["GET"], "then": "allow"}], "active": true}`), 0o600))
	log, err := os.Create(filepath.Join(dir, "log"))
	testkit.Must(t, err)
	defer log.Close()
	e := &Env{Stdin: log, Stdout: terminal.NewStream(log), Stderr: terminal.NewStream(log), Environ: []string{"CODEFORGE_HOME=" + dir}}
	testkit.Must(t, e.setHome())
	s := setupPage{e: e, apis: filepath.Join(dir, "apis"), target: targetFlags(pflag.NewFlagSet("", pflag.ContinueOnError))}
	*s.target.state = filepath.Join(dir, "none")
	page := s.routes()
	post := func(path string, form url.Values) string {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "./" {
			t.Errorf("%s: %d to %q", path, w.Code, w.Header().Get("Location"))
		}
		w = httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		shown, err := os.ReadFile(log.Name())
		testkit.Must(t, err)
		if text := w.Body.String() + string(shown); strings.Contains(text, "a-typed-key") {
			t.Errorf("%s: the key is shown:\n%s", path, text)
		}
		return w.Body.String()
	}
	config := filepath.Join(folder, "config.json")
	post("/choose", url.Values{"example": {"shop"}, "bound": {"read"}})
	for _, bad := range []url.Values{
		{"key0": {"a-typed-key\x01of-a-shop"}, "your-shop": {"acme"}},
		{"key0": {"a-typed-key-of-a-shop"}, "your-shop": {"acme.evil.test/"}},
	} {
		if text := post("/add", bad); !strings.Contains(text, `role="alert"`) || !strings.Contains(text, "Add shop") {
			t.Errorf("a mistake: %s", text)
		}
		if _, err := os.Stat(config); err == nil {
			t.Error("a mistake is written")
		}
	}
	if text := post("/add", url.Values{"key0": {"a-typed-key-of-a-shop"}, "your-shop": {"acme"}}); !strings.Contains(text, "shop is added") {
		t.Errorf("the result: %s", text)
	}
	text, err := os.ReadFile(config)
	testkit.Must(t, err)
	for _, want := range []string{`"acme.shop.test"`, `"a-typed-key-of-a-shop"`, `"GET"`} {
		if !strings.Contains(string(text), want) || strings.Contains(string(text), "POST") {
			t.Errorf("config.json has no %s, or a write:\n%s", want, text)
		}
	}
	if text := post("/add", url.Values{"key0": {"a-typed-key-of-a-shop"}}); !strings.Contains(text, "sent already") {
		t.Errorf("the form again: %s", text)
	}
}
