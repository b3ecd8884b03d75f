//go:build disarm

package main

import (
	"testing"
	"time"
)

// TestDisarmed: without its defence, each of these attacks succeeds. e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	t.Run("proxy-schema", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "proxy-schema")
		if err := serveBesideProxies(t); err != nil {
			t.Error(err)
		}
	})
	t.Run("freeze-elsewhere", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "freeze-elsewhere")
		// Replicas read Postgres at least every 2 s.
		if stopped, _ := freezeElsewhere(t, 4*time.Second); stopped {
			t.Error("the attack is stopped by something else")
		}
	})
}
