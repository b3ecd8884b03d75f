//go:build disarm

package transport_test

import (
	"strings"
	"testing"
)

// TestDisarmed: without these defences, every answer of a client that does not read stays in memory, many answers are
// encoded at once, a stream of an older version outlives its token, and a user ends the calls of another. e2e/negative
// runs it.
func TestDisarmed(t *testing.T) {
	t.Run("unread-answers", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "unread-answers")
		if n := countRefused(t); n > 0 {
			t.Errorf("the attack is stopped by something else: %d answers are refused", n)
		}
	})
	t.Run("answer-memory", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "answer-memory")
		if peak, _ := answerAtOnce(t, longResults()["an image"]); peak < mostAtOnce {
			t.Errorf("the attack is stopped by something else: %d MiB", peak>>20)
		}
	})
	t.Run("listen-version", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "listen-version")
		if got := listenInOlderVersion(t); !strings.Contains(got, "acknowledged") {
			t.Errorf("the attack is stopped by something else: %q", got)
		}
	})
	t.Run("session-user", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "session-user")
		if how := deleteOthers(t); how != "cancelled" {
			t.Errorf("the attack is stopped by something else: %q", how)
		}
	})
}
