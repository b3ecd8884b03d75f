//go:build disarm

package podslots

import "testing"

// TestDisarmed: with the defence switched off, its attack succeeds. e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	t.Run("pod-address", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "pod-address")
		s := New(Config{})
		id, err := s.AssignSlot(pod(1))
		if stranger, ok := s.FindSlot(pod(2)); err != nil || !ok || stranger != id {
			t.Errorf("slot %d of %d (%v), %v: it is stopped by something else", stranger, id, ok, err)
		}
	})
}
