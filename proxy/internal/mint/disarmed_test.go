//go:build disarm

package mint

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
)

// TestDisarmed: without its defence each of these succeeds. e2e/negative runs it, under the tag disarm.
func TestDisarmed(t *testing.T) {
	finish := func(t *testing.T, w *world, change func(*credentialapi.Redirect)) bool {
		s, err := w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayBrowser, Port: 49152})
		if err != nil {
			t.Fatal(err)
		}
		r := w.approve(t, s)
		change(&r)
		return w.FinishLogin(t.Context(), r) == nil
	}
	for defence, attack := range map[string]func(t *testing.T, w *world) bool{
		"login-state": func(t *testing.T, w *world) bool {
			return finish(t, w, func(r *credentialapi.Redirect) { r.State = "forged" })
		},
		"login-issuer": func(t *testing.T, w *world) bool {
			return finish(t, w, func(r *credentialapi.Redirect) { r.Issuer = "https://evil.test" })
		},
		"stale-token": func(t *testing.T, w *world) bool {
			w.login(t)
			w.clock.move(48 * time.Hour)
			return w.value(t) == "minted-canary-9f8e7d6c5b4a3f2e-0001"
		},
		"minted-layer": func(t *testing.T, w *world) bool {
			w.login(t)
			return scrub.New(nil).WithMinted(w.values).String("minted-canary-9f8e7d6c5b4a3f2e-0001") == "minted-canary-9f8e7d6c5b4a3f2e-0001"
		},
		"store-first": func(t *testing.T, w *world) bool {
			w.login(t)
			files, _ := filepath.Glob(w.dir + "/*.json")
			return w.value(t) != "" && len(files) == 0
		},
		"publish-first": func(t *testing.T, w *world) bool {
			w.login(t)
			return w.value(t) == "minted-canary-9f8e7d6c5b4a3f2e-0001" && w.values.Len() == 0
		},
		"single-flight": func(t *testing.T, w *world) bool {
			w.login(t)
			w.clock.move(2 * time.Hour)
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() { _, _ = w.ObtainValue(t.Context(), w.cred) })
			}
			wg.Wait()
			return w.server.count() > 2
		},
		"mint-echo": func(t *testing.T, w *world) bool {
			w.server.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				_ = json.NewEncoder(rw).Encode(map[string]any{"access_token": "inner-canary-123456-9f8e7d6c5b4a3f2e", "refresh_token": "refresh-canary-9f8e7d6c5b4a3f2e-1"})
			})
			return finish(t, w, func(*credentialapi.Redirect) {}) && w.value(t) == "inner-canary-123456-9f8e7d6c5b4a3f2e"
		},
	} {
		t.Run(defence, func(t *testing.T) {
			t.Setenv("CODEFORGE_DISARM", "")
			w := newWorld(t, newLoginServer(t), t.TempDir())
			t.Setenv("CODEFORGE_DISARM", defence)
			if !attack(t, w) {
				t.Error("the attack is stopped by something else")
			}
		})
	}
}
