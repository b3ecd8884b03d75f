package tools

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestExcerptText(t *testing.T) {
	for _, c := range []struct {
		name, in   string
		max, limit int
		want       string
		left       int
	}{
		{"empty", "", 10, 10, "", 0},
		{"exactly the limit", "0123456789", 10, 10, "0123456789", 0},
		{"one more", "0123456789a", 10, 10, "012345\n[... 1 characters left out ...]\n789a", 1},
		{"characters, not bytes", "éééééééééé", 10, 10, "éééééééééé", 0},
		{"cut between characters", "€1€2€3€4€5€6", 6, 6, "€1€2\n[... 6 characters left out ...]\n€6", 6},
		{"a smaller limit later", "0123456789", 10, 3, "01\n[... 7 characters left out ...]\n9", 7},
		{"a greater limit later is no greater", "0123456789a", 10, 100, "012345\n[... 1 characters left out ...]\n789a", 1},
		{"no limit shows nothing", "abc", 0, 0, "\n[... 3 characters left out ...]\n", 3},
		{"control characters stay", "a\x00b\x1b[1m", 10, 10, "a\x00b\x1b[1m", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newExcerpt(c.max)
			b.WriteString(c.in)
			got, left := b.Text(c.limit)
			if got != c.want || left != c.left {
				t.Errorf("got %q with %d left out, want %q with %d", got, left, c.want, c.left)
			}
		})
	}
}

// TestPieces: however the output arrives, the result is that of the whole.
func TestExcerptPieces(t *testing.T) {
	letters := []rune("ab\n€é🙂")
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := r.IntN(40)
		var whole strings.Builder
		b := newExcerpt(limit)
		for range r.IntN(3000) {
			var piece strings.Builder
			for range r.IntN(12) {
				piece.WriteRune(letters[r.IntN(len(letters))])
			}
			whole.WriteString(piece.String())
			b.WriteString(piece.String())
		}
		runes := []rune(whole.String())
		got, left := b.Text(limit)
		if b.Len() != len(runes) {
			t.Fatalf("seed %d: length %d, want %d", seed, b.Len(), len(runes))
		}
		if len(runes) <= limit {
			if got != whole.String() || left != 0 {
				t.Fatalf("seed %d: a short output was changed", seed)
			}
			continue
		}
		heads := limit * 2 / 3
		head, tail := string(runes[:heads]), string(runes[len(runes)-(limit-heads):])
		if left != len(runes)-limit || !strings.HasPrefix(got, head+"\n[... ") || !strings.HasSuffix(got, " ...]\n"+tail) || !utf8.ValidString(got) {
			t.Fatalf("seed %d: got %q of %q", seed, got, whole.String())
		}
	}
}
