//go:build disarm

package membudget

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestDisarmed: without its defence a request waits for as long as another holds the memory. e2e/negative runs it with the
// tag disarm.
func TestDisarmed(t *testing.T) {
	t.Run("memory-patience", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "memory-patience")
		synctest.Test(t, func(t *testing.T) {
			b := New(200)
			first := b.OpenAccount("run")
			first.TryTake(50)
			time.AfterFunc(time.Hour, first.Close)
			if err := b.OpenAccount("run").WaitAndTake(t.Context(), 20); err != nil {
				t.Errorf("the wait is ended by something else: %v", err)
			}
		})
	})
}
