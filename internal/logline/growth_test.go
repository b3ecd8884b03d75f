package logline

import (
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
)

// TestLinear: a line takes time in proportion to what it says, in both formats.
func TestLinear(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		l := New(io.Discard, format, nil)
		for _, part := range []string{"a", "\x1b", "\u202e", "\xff", "\n", "\"", "\U000e0041"} {
			costtest.RequireLinear(t, 128<<10, func(n int) func() {
				text := strings.Repeat(part, n/len(part))
				return func() { l.Info(text, slog.String("x", text)) }
			})
		}
	}
}

// TestOddLetters: letters without a shape are escaped too, in both formats.
func TestOddLetters(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var b strings.Builder
		New(&b, format, nil).Info("a\u3164b\u034fc\u2800d", slog.String("x", "e\U000e0100f"))
		for _, odd := range []string{"\u3164", "\u034f", "\u2800", "\U000e0100"} {
			if strings.Contains(b.String(), odd) {
				t.Errorf("%s: %q is in %q", format, odd, b.String())
			}
		}
	}
}
