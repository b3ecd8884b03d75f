package document

import (
	"strings"
	"testing"
)

// TestTokenName: a token name consists of capitals, digits and _, begins with a letter, and has at most 64 bytes.
func TestTokenName(t *testing.T) {
	for api, want := range map[string]string{
		"azAZ09": "AZAZ09_KEY", "a-{@[`/:b": "A_______B_KEY", "": "API__KEY", "9a": "API_9A_KEY", "-a": "API__A_KEY", "A": "A_KEY", "Z": "Z_KEY",
		strings.Repeat("a", 60): strings.Repeat("A", 60) + "_KEY",
		strings.Repeat("a", 61): strings.Repeat("A", 60) + "_KEY",
	} {
		if got := TokenName(api, "KEY"); got != want {
			t.Errorf("%s: %s, want %s", api, got, want)
		}
	}
}
