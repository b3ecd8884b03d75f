//go:build disarm

package guard_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/guard"
)

// TestDisarmed: without these defences, the public host gets the local paths, and a stream outlives its token.
// e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	t.Run("public-paths", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "public-paths")
		local := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "local") })
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/console", nil)
		r.Host = "forge.example.com"
		w := httptest.NewRecorder()
		guard.New(guard.Config{PublicHost: r.Host}).SplitRequests(local, http.NotFoundHandler()).ServeHTTP(w, r)
		if w.Body.String() != "local" {
			t.Errorf("the attack is stopped by something else: %d", w.Code)
		}
	})
	t.Run("client-stream", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "client-stream")
		if _, ended := revokeDuringStream(t); ended {
			t.Error("the attack is stopped by something else")
		}
	})
}
