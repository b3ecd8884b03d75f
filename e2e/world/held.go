package world

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// FirstHeld waits until something waits for a person, and returns its id, as `codeforge held` prints it.
func (w *World) FirstHeld(t testing.TB) string {
	t.Helper()
	home := t.TempDir()
	for deadline := time.Now().Add(4 * testkit.Patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		var list []struct {
			ID      string `json:"id"`
			Waiting bool   `json:"waiting"`
		}
		out, err := w.Operate(t.Context(), home, "held", "--json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &list)
		}
		if err != nil {
			t.Fatalf("codeforge held: %v in %q", err, out)
		}
		for _, h := range list {
			if h.Waiting {
				return h.ID
			}
		}
	}
	t.Fatal("nothing is held")
	return ""
}
