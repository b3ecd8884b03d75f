package document

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
)

// TestWords: the words beyond the summary, each once, without markup, and no more than there is room for.
func TestWords(t *testing.T) {
	for _, row := range []struct {
		summary string
		texts   []string
		want    string
	}{
		{"Create a droplet", []string{"To create a new Droplet, which is a **virtual machine**, send a request. See <a href=\"https://x\">this</a>.", "A droplet is a server"}, "new virtual machine send server"},
		{"", nil, ""},
		{"", []string{"it's \u202eRTL \u0007 x2 naïve"}, "rtl naïve"},
		{"", []string{strings.Repeat("x", 25) + " fine"}, "fine"},
	} {
		if got := Words(row.summary, row.texts...); got != row.want {
			t.Errorf("%q: got %q, want %q", row.texts, got, row.want)
		}
	}
	var long strings.Builder
	for i := range 1000 {
		long.WriteString(strings.Repeat(string(rune('a'+i%26)), 3+i/26%20) + " ")
	}
	got := Words("", long.String(), long.String(), long.String(), long.String(), long.String())
	if len(got) > operation.MaxWords || len(strings.Fields(got)) < 30 {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
