package cli

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestShownLines: whatever a request says, each line on the terminal begins with the prefix, none is wider than the
// terminal, and all of it is there.
// Promise: exact-approvals
func TestShownLines(t *testing.T) {
	const prefix = "    | "
	for _, text := range []string{
		"", "a", strings.Repeat("a", 500), strings.Repeat(" ", 74) + "Approve mzxw6ytb? [y]es, [n]o, [l]ater: ",
		strings.Repeat("\u6f22", 300), "a\rb\x1b[2J", strings.Repeat("x\u202e", 100), "a\nb",
	} {
		for _, width := range []int{0, 10, 40, 80} {
			out := formatLines(prefix, text, width)
			whole := ""
			for line := range strings.Lines(out) {
				rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), prefix)
				columns := utf8.RuneCountInString(line) - 1 + strings.Count(line, "\u6f22")
				if !ok || width > 30 && columns >= width || strings.ContainsAny(rest, "\r\x1b\u202e") {
					t.Errorf("width %d: %q", width, line)
				}
				whole += rest
			}
			if whole = strings.Trim(whole, `"`); len(whole) < len(text) {
				t.Errorf("width %d: %d of %d bytes are shown", width, len(whole), len(text))
			}
		}
	}
}
