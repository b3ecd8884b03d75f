//go:build disarm

package history

import (
	"bytes"
	"context"
	"net/http/httptest"
	"testing"
)

// TestDisarmed: without its defence, a binary file gives away a credential, a browser shows a file as a page, or a
// tenant displaces files of others.
// e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	t.Run("scrub-files", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "scrub-files")
		s := &Store{cfg: Config{Clean: func(s string) string { return s }, ScrubFile: func(_ context.Context, data []byte) ([]byte, error) {
			return bytes.ReplaceAll(data, []byte(literal), nil), nil
		}}}
		if data, err := s.CheckFile(t.Context(), []byte("\xff"+literal)); err != nil || !bytes.Contains(data, []byte(literal)) {
			t.Errorf("the attack is stopped by something else: %q %v", data, err)
		}
	})
	t.Run("tenant-history", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "tenant-history")
		checkOthersStay(t, "[r4 r5 r6]")
	})
	t.Run("file-page", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "file-page")
		w := httptest.NewRecorder()
		File{}.ServeHTTP(w, nil)
		if got := w.Header().Get("Content-Security-Policy"); got != "" {
			t.Errorf("the policy is set by something else: %s", got)
		}
	})
}
