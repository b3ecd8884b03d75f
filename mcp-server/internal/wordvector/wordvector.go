// Package wordvector gives texts vectors: those of like meaning point in like directions. The vector of a text is the
// sum of the vectors of its word pieces. The table is part of the program: its pages are read when a piece is looked
// up. make/word-vectors has the program that trained it, and NOTICE its sources.
package wordvector

import (
	_ "embed" // the table
	"encoding/binary"
	"iter"
	"math"
	"sort"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// size is the number of dimensions.
const size = 128

var (
	// vocabularyText has the word pieces of BERT's uncased vocabulary. ## marks a continuation of a word.
	//go:embed table/vocab.txt
	vocabularyText string
	// rows has a float32 for each piece, then 128 signed bytes for each. A vector is the bytes times the number.
	//go:embed table/vectors.bin
	rows string
	//go:embed table/stems.txt
	stemsText string
	// near has nearPerStem words of similar meaning for each stem, most similar first: the number of a stem (uint16), and
	// the similarity in 255ths. A similarity of zero ends the list.
	//go:embed table/near.bin
	near string
)

const nearPerStem = 12

var (
	vocabulary = sync.OnceValue(func() sortedLines { return splitLines(vocabularyText) })
	stems      = sync.OnceValue(func() sortedLines { return splitLines(stemsText) })
)

// sortedLines is a text whose lines are sorted by their bytes.
type sortedLines struct {
	text string
	ends []uint32 // the end of each line
}

func splitLines(text string) sortedLines {
	l := sortedLines{text: text, ends: make([]uint32, 0, strings.Count(text, "\n"))}
	for i := range len(text) {
		if text[i] == '\n' {
			l.ends = append(l.ends, uint32(i))
		}
	}
	return l
}

func (l sortedLines) lineAt(i int) string {
	if i == 0 {
		return l.text[:l.ends[0]]
	}
	return l.text[l.ends[i-1]+1 : l.ends[i]]
}

func (l sortedLines) findLine(text string) (int, bool) {
	i := sort.Search(len(l.ends), func(i int) bool { return l.lineAt(i) >= text })
	return i, i < len(l.ends) && l.lineAt(i) == text
}

// longestPrefix returns the number and the length of the longest line that a text begins with, or -1 and 0. It takes
// few steps also for a text that was made to have many pieces.
func (l sortedLines) longestPrefix(text string) (row, n int) {
	for text != "" {
		row := sort.Search(len(l.ends), func(i int) bool { return l.lineAt(i) > text }) - 1
		if row < 0 {
			break
		}
		line, n := l.lineAt(row), 0 // a line that text begins with is this one, or this one begins with it too
		for n < min(len(line), len(text)) && line[n] == text[n] {
			n++
		}
		if n == len(line) {
			return row, n
		}
		text = text[:n]
	}
	return -1, 0
}

// NearStems yields stems of words that mean about the same as those of a stem, the most like first, and how like they
// are, from 0 to 1. A stem is that of search.StemWord.
func NearStems(stem string) iter.Seq2[string, float32] {
	return func(yield func(string, float32) bool) {
		row, ok := stems().findLine(stem)
		if !ok {
			return
		}
		for i := range nearPerStem {
			at := near[3*(row*nearPerStem+i):][:3]
			if at[2] == 0 || !yield(stems().lineAt(int(at[0])|int(at[1])<<8), float32(at[2])/math.MaxUint8) {
				return
			}
		}
	}
}

// stops are words without information. The table was trained without them.
const stops = " a an the of to in for on and or is are be by with from this that it as at my our your all any some " +
	"me i we you can how do does what which who "

// Vector is a direction.
type Vector struct {
	parts [size]int8
	// scale normalises the length to 1. Zero means no direction.
	scale float32
}

// Likeness returns the cosine of two directions, from -1 to 1.
func (v *Vector) Likeness(o *Vector) float32 {
	// Four sums at a time keep the processor busy: a question is compared with every operation.
	var a, b, c, d int32
	for i := 0; i < size; i += 4 {
		x, y := v.parts[i:i+4:i+4], o.parts[i:i+4:i+4]
		a += int32(x[0]) * int32(y[0])
		b += int32(x[1]) * int32(y[1])
		c += int32(x[2]) * int32(y[2])
		d += int32(x[3]) * int32(y[3])
	}
	return float32(a+b+c+d) * v.scale * o.scale
}

// TextSum computes vectors of texts.
type TextSum struct {
	total [size]float32
}

// Splitter yields the words of a text in lower case.
type Splitter func(text string, each func(word string))

// VectorOf returns the vector of a text.
func (s *TextSum) VectorOf(text string, split Splitter) Vector {
	s.AddText(text, 1, split)
	return s.TakeVector()
}

// AddText adds the words of a text, each with this weight.
func (s *TextSum) AddText(text string, weight float32, split Splitter) {
	split(text, func(word string) { s.addWord(word, weight) })
}

// TakeVector returns the vector of the added texts, and forgets them.
func (s *TextSum) TakeVector() (v Vector) {
	square, largest := float64(0), float32(0)
	for _, x := range s.total {
		square += float64(x) * float64(x)
		largest = max(largest, x, -x)
	}
	if largest == 0 {
		return v
	}
	for i, x := range s.total {
		v.parts[i] = int8(math.Round(float64(x / largest * math.MaxInt8)))
	}
	v.scale = largest / math.MaxInt8 / float32(math.Sqrt(square))
	s.total = [size]float32{}
	return v
}

// addWord adds a word. A piece counts as often as it occurs, so words that a summary shares with its path count more.
func (s *TextSum) addWord(word string, weight float32) {
	if strings.Contains(stops, " "+word+" ") {
		return
	}
	for _, row := range splitPieces(word) {
		scale := weight * math.Float32frombits(binary.LittleEndian.Uint32([]byte(rows[4*row:][:4])))
		parts := rows[4*len(vocabulary().ends)+size*row:][:size]
		for i := range s.total {
			s.total[i] += scale * float32(int8(parts[i]))
		}
	}
}

// splitPieces returns the rows of a word: the longest piece at its start, then the pieces that continue it.
func splitPieces(word string) []int {
	word = removeAccents(word)
	var out []int
	for prefix := ""; word != ""; prefix = "##" {
		row, n := vocabulary().longestPrefix(prefix + word)
		if n <= len(prefix) {
			unknown, _ := vocabulary().findLine("[UNK]")
			return []int{unknown}
		}
		out, word = append(out, row), word[n-len(prefix):]
	}
	return out
}

// removeAccents removes the accents of letters, because the vocabulary has none.
func removeAccents(word string) string {
	if !strings.ContainsFunc(word, func(r rune) bool { return r > unicode.MaxASCII }) {
		return word
	}
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFD.String(word))
}
