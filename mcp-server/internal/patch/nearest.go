package patch

import (
	"context"
	"strings"
)

// What bounds the work of nearest, and what it shows.
const (
	maxSearchLines = 40
	maxTextLines   = 5000
	maxWords       = 40  // of one line
	maxLine        = 400 // bytes of a line that are compared
	maxShown       = 4 << 10
)

// nearest is the run of lines in text that shares most with search: lines that are equal but for white space count
// most, then words in common. Empty when nothing is alike.
func nearest(ctx context.Context, text, search string) (string, error) {
	want := lines(search, maxSearchLines)
	have := lines(text, maxTextLines)
	like := newLikeness(want)
	best, bestScore := 0, 0.0
	scores := make([]map[int]float64, len(have)) // line of text -> line of search -> score, only where above zero
	for i, h := range have {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		scores[i] = like.score(h)
	}
	for i := range have {
		sum := 0.0
		for j := range want {
			if i+j < len(have) {
				sum += scores[i+j][j]
			}
		}
		if sum > bestScore {
			best, bestScore = i, sum
		}
	}
	if bestScore < 0.3 {
		return "", ctx.Err()
	}
	return shown(have[best:min(best+len(want), len(have))]), ctx.Err()
}

// shown joins lines, as far as they are short enough for an answer.
func shown(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		if b.Len()+len(l) > maxShown {
			b.WriteString("...\n")
			break
		}
		b.WriteString(l)
		b.WriteByte('\n')
	}
	return b.String()
}

// lines are the first lines of s. It looks no further than it must.
func lines(s string, most int) []string {
	var out []string
	for line := range strings.SplitSeq(strings.TrimSuffix(s, "\n"), "\n") {
		if len(out) == most {
			break
		}
		out = append(out, line)
	}
	return out
}

// likeness compares lines with the lines of one search text by the words they share.
type likeness struct {
	// at is in which lines of the search text a word stands.
	at    map[string][]int
	count []int // different words of each line
	folds []string
}

func newLikeness(want []string) *likeness {
	l := &likeness{at: map[string][]int{}}
	for j, w := range want {
		ws := words(w)
		for word := range ws {
			l.at[word] = append(l.at[word], j)
		}
		l.count = append(l.count, len(ws))
		l.folds = append(l.folds, fold(w))
	}
	return l
}

// fold is the beginning of a line without its white space.
func fold(line string) string {
	return strings.Join(strings.Fields(line[:min(len(line), maxLine)]), " ")
}

// score is how much a line is like each line of the search text: 2 for equal but for white space, else the share of
// common words, from 0 to 1.
func (l *likeness) score(line string) map[int]float64 {
	have := words(line)
	if len(have) == 0 {
		return nil
	}
	var common [maxSearchLines]int
	for w := range have {
		for _, j := range l.at[w] {
			common[j]++
		}
	}
	out, folded := map[int]float64{}, fold(line)
	for j, n := range common[:len(l.count)] {
		switch {
		case n == 0:
		case folded == l.folds[j]:
			out[j] = 2
		default:
			out[j] = float64(n) / float64(l.count[j]+len(have)-n)
		}
	}
	return out
}

// words are the identifiers and numbers at the beginning of a line.
func words(line string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsFuncSeq(line[:min(len(line), maxLine)], func(r rune) bool {
		return r != '_' && r != '$' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r < 0x80
	}) {
		if out[w] = true; len(out) == maxWords {
			break
		}
	}
	return out
}
