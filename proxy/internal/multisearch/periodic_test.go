package multisearch

import (
	"strings"
	"testing"
	"time"
)

// TestPeriodic: a value that repeats itself, and so nearly occurs at many places of a text that has it with escapes,
// costs time by its length at each, and not by how much is held back.
func TestPeriodic(t *testing.T) {
	value := strings.Repeat("q8Zr.x_Y-", 2048/9)
	set := New(ListForms(value, 1))
	escaped := strings.NewReplacer("q", `\u0071`, ".", `\u002e`).Replace(value)
	text := strings.Repeat(escaped[:len(escaped)-1]+"!", 8) + escaped
	began := time.Now()
	got, n := set.ReplaceAll(text, func(int) string { return "NAME" })
	if took := time.Since(began); took > 20*time.Second { // a minute and more if each step looks at all that is held back
		t.Errorf("%d bytes took %v", len(text), took)
	}
	if n != 1 || !strings.HasSuffix(got, "!NAME") {
		t.Errorf("%d matches, %.40q", n, got[max(0, len(got)-40):])
	}
}
