package patch

import "strings"

// What bounds the work of nearest.
const (
	maxSearchLines = 40
	maxTextLines   = 5000
	maxWords       = 40 // of one line
)

// nearest is the run of lines in text that shares most with search: lines that are equal but for white space count most,
// then words in common. Empty when nothing is alike.
func nearest(text, search string) string {
	want := lines(search, maxSearchLines)
	have := lines(text, maxTextLines)
	if len(want) == 0 || len(have) == 0 {
		return ""
	}
	like := newLikeness(want)
	best, bestScore := 0, 0.0
	scores := make([]map[int]float64, len(have)) // line of text -> line of search -> score, only where above zero
	for i, h := range have {
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
		return ""
	}
	return strings.Join(have[best:min(best+len(want), len(have))], "\n") + "\n"
}

func lines(s string, most int) []string {
	all := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	return all[:min(len(all), most)]
}

// likeness compares lines with the lines of one search text by the words they share.
type likeness struct {
	words []map[string]bool
	folds []string
}

func newLikeness(want []string) *likeness {
	l := &likeness{}
	for _, w := range want {
		l.words = append(l.words, words(w))
		l.folds = append(l.folds, strings.Join(strings.Fields(w), " "))
	}
	return l
}

// score is how much a line is like each line of the search text: 2 for equal but for white space, else the share of
// common words, from 0 to 1.
func (l *likeness) score(line string) map[int]float64 {
	have, fold := words(line), strings.Join(strings.Fields(line), " ")
	if len(have) == 0 {
		return nil
	}
	out := map[int]float64{}
	for j, want := range l.words {
		if fold == l.folds[j] {
			out[j] = 2
			continue
		}
		common := 0
		for w := range want {
			if have[w] {
				common++
			}
		}
		if common > 0 {
			out[j] = float64(common) / float64(len(want)+len(have)-common)
		}
	}
	return out
}

// words are the identifiers and numbers of a line.
func words(line string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.FieldsFunc(line, func(r rune) bool {
		return r != '_' && r != '$' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r < 0x80
	}) {
		if out[w] = true; len(out) == maxWords {
			break
		}
	}
	return out
}
