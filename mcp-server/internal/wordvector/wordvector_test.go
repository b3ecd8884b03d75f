package wordvector

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// fields yields the words of a text.
func fields(text string, each func(word string)) {
	for _, w := range strings.Fields(text) {
		each(w)
	}
}

// TestReal: words have the pieces, and texts the vectors, that the tokenizer of the model and numpy give them.
func TestReal(t *testing.T) {
	text, err := os.ReadFile("testdata/real.json")
	if err != nil {
		t.Fatal(err)
	}
	var real struct {
		Words map[string][]string
		Texts map[string][]float64
	}
	if err := json.Unmarshal(text, &real); err != nil {
		t.Fatal(err)
	}
	for word, want := range real.Words {
		var got []string
		for _, row := range splitPieces(word) {
			got = append(got, vocabulary().lineAt(row))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
	var sum TextSum
	for text, want := range real.Texts {
		v := sum.VectorOf(text, fields)
		same := 0.0
		for i, x := range want {
			same += x * float64(v.parts[i]) * float64(v.scale)
		}
		if same < 0.998 || same > 1.002 {
			t.Errorf("%q: the cosine to the real vector is %f", text, same)
		}
	}
}

// TestLikeness: texts of like meaning are more alike than others, and a text without words is like none.
func TestLikeness(t *testing.T) {
	var sum TextSum
	vector := func(text string) *Vector { v := sum.VectorOf(text, fields); return &v }
	for _, c := range [][3]string{
		{"dial a phone number", "make a call", "make a payment"},
		{"photos of a robot", "list media of the team", "list awards of the team"},
		{"papers on an illness", "publications associated with a disease", "genes associated with a disease"},
	} {
		near, far := vector(c[0]).Likeness(vector(c[1])), vector(c[0]).Likeness(vector(c[2]))
		if near <= far {
			t.Errorf("%s: %f like %s, %f like %s", c[0], near, c[1], far, c[2])
		}
	}
	if got := vector("the of").Likeness(vector("refund")); got != 0 {
		t.Errorf("without words: %f", got)
	}
	if v := vector("refund"); math.Abs(float64(v.Likeness(v))-1) > 0.01 {
		t.Errorf("with itself: %f", v.Likeness(v))
	}
}

// TestNear: words of like meaning, the most like first.
func TestNear(t *testing.T) {
	for stem, want := range map[string]string{"photo": "imag", "delet": "remov", "ill": "", "nosuchstem": ""} {
		var all []string
		last := float32(1)
		for near, likeness := range NearStems(stem) {
			if likeness > last || likeness < 0.45 {
				t.Errorf("%s: %s is like it by %f, after %f", stem, near, likeness, last)
			}
			last = likeness
			all = append(all, near)
		}
		if want != "" && !slices.Contains(all, want) {
			t.Errorf("%s: %q lacks %s", stem, all, want)
		}
	}
}

func FuzzOf(f *testing.F) {
	for _, s := range []string{"refund a charge", "é\u0301\xff", strings.Repeat("x", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, s string) {
		var sum TextSum
		v := sum.VectorOf(s, fields)
		_ = v.Likeness(&v)
	})
}

func BenchmarkLikeness(b *testing.B) {
	var sum TextSum
	v, o := sum.VectorOf("refund a charge", fields), sum.VectorOf("create a refund", fields)
	for b.Loop() {
		v.Likeness(&o)
	}
}
