package swap

import (
	"bytes"

	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

// Most of a body has no token names and passes unchanged. The writers find such text with a nameScan, and pass it at
// once. A body that arrives byte by byte has the same result.

// lexicon separates most text from token names.
type lexicon struct {
	least   int       // the length of the shortest name, or 0 without names
	lengths uint64    // bit n-1 is set if a name is n bytes long
	bytes   [256]bool // the bytes that occur in names
}

func (l *lexicon) addName(name string) {
	if name == "" || len(name) > maxName {
		return // such a name is never swapped
	}
	if l.least == 0 || len(name) < l.least {
		l.least = len(name)
	}
	l.lengths |= 1 << (len(name) - 1)
	for i := range len(name) {
		l.bytes[name[i]] = true
	}
}

// findProbe returns the first position from p on that a name may cover. It steps by the length of the shortest name, so
// each name covers at least one probed position.
func (l *lexicon) findProbe(text []byte, p int) int {
	if l.least == 0 {
		return len(text)
	}
	for ; p < len(text); p += l.least {
		// A name of two bytes or more has a neighbour that is in the lexicon too.
		if l.bytes[text[p]] && (l.least == 1 || p > 0 && l.bytes[text[p-1]] || p+1 < len(text) && l.bytes[text[p+1]]) {
			return p
		}
	}
	return len(text)
}

// findRun returns the run of bytes of the class among around text[p].
func findRun(text []byte, p int, among *[256]bool) (from, to int) {
	for from = p; from > 0 && among[text[from-1]]; from-- {
	}
	for to = p; to < len(text) && among[text[to]]; to++ {
	}
	return from, to
}

// skipPlain returns the length of a prefix of text that certainly has no name, not even the beginning of a name within
// a word.
func (l *lexicon) skipPlain(text []byte) int {
	for p := l.findProbe(text, l.least-1); p < len(text); {
		from, to := findRun(text, p, &l.bytes)
		if to-from >= l.least && bytes.ContainsFunc(text[from:to-l.least+1], isCapital) {
			return from
		}
		p = l.findProbe(text, to+l.least)
	}
	return len(text)
}

func isCapital(r rune) bool { return 'A' <= r && r <= 'Z' }

func (s *Swapper) isName(word []byte) bool {
	return len(word) > 0 && len(word) <= maxName && s.lexicon.lengths>>(len(word)-1)&1 != 0 && isUpper(word[0]) &&
		s.byText[string(word)] == string(word)
}

// nameScan finds how far a text certainly has no name.
type nameScan struct {
	s    *Swapper
	text []byte
	next int // the beginning of the next word that may be a name
	then int // the end of next
	end  int // the beginning of the last word, which may continue in the next piece
}

// maxRun exceeds the length of a name after the characters of an escape, as in \u002dAPI_KEY.
const maxRun = 2 * maxName

// scanNames starts a nameScan of a text.
func (w *nameBuffer) scanNames(text []byte) nameScan {
	end := len(text)
	for end > 0 && len(text)-end <= maxRun && multisearch.IsWordByte(text[end-1]) {
		end--
	}
	// A longer run cannot end in a name.
	if len(text)-end > maxRun {
		end = len(text)
	}
	return nameScan{s: w.x.s, text: text, next: -1, then: -1, end: end}
}

// plainUntil returns the end of the text from at on that has no name. at must not decrease.
func (s *nameScan) plainUntil(at int) int {
	for at >= s.then && s.next < s.end {
		s.findNext()
	}
	return max(at, s.next)
}

// findNext finds the next word that is a name, or may end in a name.
func (s *nameScan) findNext() {
	l := &s.s.lexicon
	for p := l.findProbe(s.text, s.then+l.least); p < s.end; {
		from, to := findRun(s.text, p, &wordBytes)
		if s.isNameAt(from, to) {
			s.next, s.then = from, to
			return
		}
		p = l.findProbe(s.text, to+l.least)
	}
	s.next, s.then = s.end, len(s.text)
}

// isNameAt reports whether a word is a name, or ends in a name after the characters of an escape, as in \nAPI_KEY.
func (s *nameScan) isNameAt(from, to int) bool {
	if to-from > maxRun {
		return false
	}
	if s.s.isName(s.text[from:to]) {
		return true
	}
	if from > 0 && s.text[from-1] != '\\' && s.text[from-1] != '%' {
		return false
	}
	for tail := 1; tail <= len("u002d"); tail++ { // the escape may have begun in an earlier piece
		if from+tail < to && s.s.isName(s.text[from+tail:to]) {
			return true
		}
	}
	return false
}

var wordBytes = func() (t [256]bool) {
	for i := range t {
		t[i] = multisearch.IsWordByte(byte(i))
	}
	return t
}()

// passPlain passes a text without names, unless the writer holds bytes back.
func (w *nameBuffer) passPlain(text []byte) int {
	if len(w.word) > 0 || len(w.escape) > 0 || len(text) == 0 {
		return 0
	}
	w.long = multisearch.IsWordByte(text[len(text)-1])
	return len(text)
}
