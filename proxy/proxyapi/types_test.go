package proxyapi

import "testing"

// TestCountAdd: an exchange counts once, by its outcome, and aborted ones count as failed.
func TestCountAdd(t *testing.T) {
	var c Count
	for _, outcome := range []string{OutcomeServed, OutcomeDenied, OutcomeFailed, OutcomeAborted} {
		c.AddExchange(Exchange{Outcome: outcome, Swapped: []Swap{{Name: "A"}, {Name: "B"}}, Sanitized: 3, Redacted: 4, BytesUp: 5, BytesDown: 6})
	}
	want := Count{Exchanges: 4, Denied: 1, Failed: 2, Swapped: 8, Sanitized: 12, Redacted: 16, BytesUp: 20, BytesDown: 24}
	if c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
}
