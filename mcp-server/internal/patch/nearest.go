package patch

import (
	"context"
	"strings"
)

// Bounds of the texts that nearest compares and returns.
const (
	maxSearchLines = 40
	maxTextLines   = 5000
	maxWords       = 40  // of one line
	maxLine        = 400 // bytes of a line that are compared
	maxShown       = 4 << 10
)

// nearestLines returns the lines of text that are most similar to search, or "". Lines that differ only in white space
// count most, then common words.
func nearestLines(ctx context.Context, text, search string) (string, error) {
	// Bounded, because the texts are untrusted and this only helps to write an error.
	want := firstLines(search, maxSearchLines)
	have := firstLines(text, maxTextLines)
	similar := newSimilarity(want)
	best, bestScore := 0, 0.0
	scores := make([]map[int]float64, len(have)) // line of text -> line of search -> score, only where above zero
	for i, h := range have {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		scores[i] = similar.scoreLine(h)
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
	// Less similarity would show an unrelated part of the text.
	if bestScore < 0.3 {
		return "", ctx.Err()
	}
	return joinShown(have[best:min(best+len(want), len(have))]), ctx.Err()
}

// joinShown joins lines, up to maxShown bytes.
func joinShown(lines []string) string {
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

// firstLines returns the first lines of s, and reads no further.
func firstLines(s string, most int) []string {
	var out []string
	for line := range strings.SplitSeq(strings.TrimSuffix(s, "\n"), "\n") {
		if len(out) == most {
			break
		}
		out = append(out, line)
	}
	return out
}

// lineSimilarity compares lines with the lines of one search text by the words they share.
type lineSimilarity struct {
	linesOf map[string][]int // by word: the lines of the search text that contain it
	count   []int            // distinct words of each line
	folded  []string         // each line, folded
}

func newSimilarity(want []string) *lineSimilarity {
	s := &lineSimilarity{linesOf: map[string][]int{}}
	for j, w := range want {
		ws := wordsOf(w)
		for word := range ws {
			s.linesOf[word] = append(s.linesOf[word], j)
		}
		s.count = append(s.count, len(ws))
		s.folded = append(s.folded, foldSpace(w))
	}
	return s
}

// foldSpace returns the beginning of a line with each run of white space as one space.
func foldSpace(line string) string {
	return strings.Join(strings.Fields(line[:min(len(line), maxLine)]), " ")
}

// scoreLine returns how similar a line is to each line of the search text: 2 if they are equal except for white space,
// otherwise the share of common words, from 0 to 1.
func (s *lineSimilarity) scoreLine(line string) map[int]float64 {
	have := wordsOf(line)
	if len(have) == 0 {
		return nil
	}
	var common [maxSearchLines]int
	for w := range have {
		for _, j := range s.linesOf[w] {
			common[j]++
		}
	}
	out, folded := map[int]float64{}, foldSpace(line)
	for j, n := range common[:len(s.count)] {
		switch {
		case n == 0:
		case folded == s.folded[j]:
			out[j] = 2
		default:
			out[j] = float64(n) / float64(s.count[j]+len(have)-n)
		}
	}
	return out
}

// wordsOf returns the identifiers and numbers at the beginning of a line.
func wordsOf(line string) map[string]bool {
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
