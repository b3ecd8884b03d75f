package tools

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// TestPreview: a far too long stdout is shown only in part, if the whole is in a file.
func TestPreview(t *testing.T) {
	const limit = 40000
	for _, c := range []struct {
		name         string
		length       int
		file         string
		want, atMost int
	}{
		{"short", limit, "", limit, limit},
		{"too long", 2 * limit, "/runs/r1/stdout.txt", limit, limit + 100},
		{"far too long", 3_000_000, "/runs/r1/stdout.txt", previewLength, previewLength + 100},
		{"far too long without a file", 3_000_000, "", limit, limit + 100},
	} {
		stdout := newExcerpt(limit)
		stdout.WriteString(strings.Repeat("é", c.length))
		r := runRendering{stdout: stdout, stderr: newExcerpt(limit), limit: limit}
		r.outcome = execution.Outcome{Exit: sandboxapi.Exit{Reason: sandboxapi.Exited, StdoutFile: c.file}}
		text, _, cut := r.cutOutput(false)
		if n := utf8.RuneCountInString(text); n < c.want || n > c.atMost || cut != c.length-c.want {
			t.Errorf("%s: %d characters, %d left out", c.name, n, cut)
		}
	}
}
