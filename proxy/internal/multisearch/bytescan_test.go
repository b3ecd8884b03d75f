package multisearch

import (
	"bytes"
	"strings"
	"testing"
)

// TestByteScan: the scan finds the same positions as a search from each position.
func TestByteScan(t *testing.T) {
	for _, text := range []string{"", "x", "&", "a&b;c\n&&;\r", strings.Repeat("x;", 9) + "&", "&" + strings.Repeat("y", 40)} {
		for _, set := range []string{"&", "&;", "&;\r\n"} {
			s := ScanBytes([]byte(text), set)
			for at := 0; at <= len(text); at++ {
				want := bytes.IndexAny([]byte(text[at:]), set)
				if want += at; want < at {
					want = len(text)
				}
				if got := s.FindFrom(at); got != want {
					t.Errorf("%q in %q from %d: %d, want %d", set, text, at, got, want)
				}
			}
		}
	}
}
