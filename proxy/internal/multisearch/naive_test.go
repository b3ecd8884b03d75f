package multisearch

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// naive is the first match whose core begins in buf[from:], found by trying every pattern at every place in every way
// it may be written there. It shares with the engine what an escape is, and nothing of how one is looked for.
func naive(s *Set, buf []byte, from int) (best match, found bool) {
	for core := from; core < len(buf) && !found; core++ {
		for i := range s.pats {
			p := &s.pats[i]
			for _, end := range naiveEnds(s, buf, core, p) {
				m := match{core, core, end, i}
				if p.Word && !isWord(buf, m) {
					continue
				}
				if m = s.widenMatch(buf, m); !found || m.isBetter(best) {
					best, found = m, true
				}
			}
		}
	}
	return best, found
}

// naiveEnds are where a pattern that begins at core may end: as it stands and, at most as long as is held back,
// escaped.
func naiveEnds(s *Set, buf []byte, core int, p *Pattern) (ends []int) {
	if strings.HasPrefix(string(buf[core:]), p.Text) {
		ends = append(ends, core+len(p.Text))
	}
	if !p.Escaped {
		return ends
	}
	limit := min(len(buf), core+s.hold-2)
	at := map[int]int{core: 0} // a place in buf, and how much of the pattern was met before
	for len(at) > 0 {
		next := map[int]int{}
		for pos, done := range at {
			if done == len(p.Text) {
				ends = append(ends, pos)
				continue
			}
			for d := 0; pos < limit && d <= maxDepth; d++ {
				c := readChar(buf[pos:limit], d)
				if strings.HasPrefix(p.Text[done:], string(c.val[:c.len])) {
					next[pos+int(c.n)] = done + int(c.len)
				}
			}
		}
		at = next
	}
	return ends
}

func naiveAll(s *Set, text string) string {
	buf, done := []byte(text), 0
	var out strings.Builder
	for {
		m, ok := naive(s, buf, done)
		if !ok {
			return out.String() + text[done:]
		}
		name, _ := mark(s.pats[m.pat].ID)
		out.WriteString(text[done:max(m.start, done)] + s.encodeReplacement(m, name))
		done = m.end
	}
}

// scribe writes texts at random: values, their forms, beginnings and ends of them, escaped in layers of any kind,
// beside what looks like an escape.
type scribe struct{ *rand.Rand }

func (r scribe) value() string {
	alphabet := []string{"ab", "abcdef0123456789", "sk_live51HxZq+/=", "AaBb u0x4;#", "aZ09\"'<>/ "}[r.IntN(5)]
	if r.IntN(12) == 0 {
		alphabet += "%\\&"
	}
	b := make([]byte, 8+r.IntN(1<<r.IntN(6)))
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

// escape writes one character in one layer.
func (r scribe) escape(b byte) string {
	switch r.IntN(9) {
	case 0:
		return fmt.Sprintf("%%%02x", b)
	case 1:
		return fmt.Sprintf("%%%02X", b)
	case 2:
		return fmt.Sprintf(`\u%04x`, b)
	case 3:
		return fmt.Sprintf(`\x%02X`, b)
	case 4:
		return fmt.Sprintf("&#%0*d;", 1+r.IntN(11), b)
	case 5:
		return fmt.Sprintf("&#x%0*x;", 1+r.IntN(10), b)
	case 6:
		if s := map[byte]string{'&': "&amp;", '<': "&lt;", '>': "&gt;", '"': "&quot;", '\'': "&apos;", '_': "&lowbar;", '/': "&sol;", '+': "&plus;", '=': "&equals;", '\\': "&bsol;", '%': "&percnt;", '#': "&num;", ';': "&semi;"}[b]; s != "" {
			return s
		}
	case 7:
		if strings.IndexByte(`"\/'`, b) >= 0 {
			return `\` + string(rune(b))
		}
	}
	return string(rune(b))
}

// dress escapes some characters of a text, layer upon layer.
func (r scribe) dress(text string) string {
	if r.IntN(4) == 0 || strings.Contains(text, "\x00") {
		return text
	}
	rate := []int{1, 2, 5, 20, 60}[r.IntN(5)]
	var out strings.Builder
	for i := range len(text) {
		piece := text[i : i+1]
		for layer := 0; layer < maxDepth && r.IntN(rate) == 0; layer++ {
			var b strings.Builder
			all := r.IntN(2) == 0
			for j := range len(piece) {
				if all || r.IntN(3) == 0 {
					b.WriteString(r.escape(piece[j]))
				} else {
					b.WriteByte(piece[j])
				}
			}
			piece = b.String()
			rate = max(rate, 2)
		}
		out.WriteString(piece)
	}
	return out.String()
}

func (r scribe) text(ps []Pattern) string {
	var out strings.Builder
	if r.IntN(4) == 0 { // a crowd
		unit := r.dress(ps[r.IntN(len(ps))].Text) + r.dress(ps[r.IntN(len(ps))].Text)
		for range r.IntN(1 + 500/len(unit)) {
			out.WriteString(unit)
			if r.IntN(6) == 0 {
				out.WriteString(r.dress(ps[r.IntN(len(ps))].Text))
			}
		}
	}
	for range 1 + r.IntN(6) {
		p := ps[r.IntN(len(ps))].Text
		switch r.IntN(8) {
		case 0:
			p = p[:r.IntN(len(p)+1)]
		case 1:
			p = p[r.IntN(len(p)+1):]
		case 2:
			p = p[:r.IntN(len(p)+1)] + p
		}
		out.WriteString(r.dress(p))
		switch r.IntN(4) {
		case 0:
			junk := []string{"%", "\\", "&", "%2", "%25", "\\u", "\\u00", "&#", "&#3", "&amp;", "\n", "\x00", ";", "A", "x", " ", "\\\\", "%5c", "&#92;"}
			for range r.IntN(5) {
				out.WriteString(junk[r.IntN(len(junk))])
			}
		case 1:
			out.WriteString(strings.Repeat("z", r.IntN(600)))
		}
	}
	return out.String()
}

// TestNaive compares the search with the naive one, whole and cut into reads. CODEFORGE_NAIVE=10m makes it longer.
// Promise: every-echoed-form
func TestNaive(t *testing.T) {
	long, _ := time.ParseDuration(os.Getenv("CODEFORGE_NAIVE"))
	seed := uint64(3)
	if long > 0 {
		seed = uint64(time.Now().UnixNano())
	}
	r := scribe{rand.New(rand.NewPCG(seed, 2))}
	began, n := time.Now(), 0
	for ; n < testkit.ChooseRepeats(100, 300) || time.Since(began) < long; n++ {
		var ps []Pattern
		first := r.value()
		ps = append(ps, ListForms(first, 1)...)
		for id := range r.IntN(3) {
			v := r.value()
			if r.IntN(2) == 0 {
				v = first[:r.IntN(len(first))] + v
			}
			ps = append(ps, ListForms(v, 2+id)...)
		}
		if r.IntN(3) == 0 {
			ps = append(ps, Pattern{Text: "NAME_" + first[:3], ID: 9, Word: true, Escaped: r.IntN(2) == 0})
		}
		if r.IntN(4) == 0 {
			ps = []Pattern{{Text: first, ID: 1, Escaped: true}}
		}
		set := New(ps)
		for range 8 {
			text := r.text(ps)
			if tooAmbiguous(set, text) {
				continue
			}
			want := naiveAll(set, text)
			if got := replaceAll(set, text); got != want {
				t.Fatalf("seed %d, values %q: %q became %q, naively %q", seed, values(set), text, got, want)
			}
			sizes := []int{1 + r.IntN(3), 1 + r.IntN(300), 1 + r.IntN(40)}
			got, err := io.ReadAll(set.NewReader(&chunks{text: text, sizes: sizes}, mark))
			if err != nil || string(got) != want {
				t.Fatalf("seed %d, values %q by %v: %q became %q, %v, naively %q", seed, values(set), sizes, text, got, err, want)
			}
		}
	}
	t.Log(n, "sets")
}

// tooAmbiguous: the ways that are tried for a value with % \ or & in it are bounded, which is stated.
func tooAmbiguous(s *Set, text string) bool {
	return s.esc.anOdd && strings.Count(text, "%")+strings.Count(text, `\`)+strings.Count(text, "&") > 12
}

func values(s *Set) (out []string) {
	for _, p := range s.pats {
		if p.Escaped {
			out = append(out, p.Text)
		}
	}
	return out
}

// TestEverySplit cuts a text with every form in it at every place, and at every two places of a short one.
// Promise: every-echoed-form
func TestEverySplit(t *testing.T) {
	const value = "sk/Ab+=9xY_"
	var text strings.Builder
	for i, p := range ListForms(value, 1) {
		fmt.Fprintf(&text, "%d %s;", i, p.Text)
	}
	text.WriteString(`%73k\/Ab&#43;=9xY_ sk%2525252fAb+=9xY_ ` + "\n" + `\u0073\u006b\u002f\u0041\u0062\u002b\u003d\u0039\u0078\u0059\u005f`)
	for name, set := range map[string]*Set{"one": New(ListForms(value, 1)), "two": New(append(ListForms(value, 1), ListForms("another-one-that-is-longer", 2)...))} {
		whole := text.String()
		want := naiveAll(set, whole)
		check := func(cuts ...int) {
			var sizes []int
			last := 0
			for _, c := range cuts {
				sizes = append(sizes, c-last)
				last = c
			}
			got, err := io.ReadAll(set.NewReader(&chunks{text: whole, sizes: append(sizes, len(whole))}, mark))
			if err != nil || string(got) != want {
				t.Fatalf("%s, cut at %v: %q, %v, naively %q", name, cuts, got, err, want)
			}
		}
		for a := 1; a < len(whole); a++ {
			check(a)
			for b := a + 1; b < min(a+24, len(whole)); b++ {
				check(a, b)
			}
		}
	}
}
