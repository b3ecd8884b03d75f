package egress

import (
	"strings"
	"testing"
)

// TestLookalike: a name that only the characters of CGI tell from a framing header's is one, and a header of an API is none.
func TestLookalike(t *testing.T) {
	for _, name := range []string{"Content_Length", "content.type", "Transfer!Encoding", "Content~Encoding", "Content^Length", "Expect"} {
		if got := isLookalike(name); got != (name != "Expect") {
			t.Errorf("%s: %t", name, got)
		}
	}
	for _, name := range []string{"X_Api_Key", "Content-Length", "Content", "Content_Lengths"} {
		if isLookalike(name) {
			t.Errorf("%s frames nothing, or is the header itself", name)
		}
	}
	for c := rune(0x21); c < 0x7f; c++ {
		known := strings.ContainsRune("-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", c)
		if isOddChar(c) == known {
			t.Errorf("%q is odd: %t", c, isOddChar(c))
		}
	}
}
