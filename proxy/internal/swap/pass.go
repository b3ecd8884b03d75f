package swap

import "bytes"

// Most of a body passes unchanged. The pass functions say how many bytes of a text do, and leave a writer in the state
// in which it would be had it taken them one by one: what they do not know for certain, they leave to that. So a body
// that arrives byte by byte is rewritten without them. They are given text without token names, that does not end
// within a word.

// lexicon is what tells most text from token names.
type lexicon struct {
	least   int       // the length of the shortest name; 0: there are none
	lengths uint64    // has bit n-1 if a name is n bytes long
	bytes   [256]bool // those of names
}

func (l *lexicon) add(name string) {
	if name == "" || len(name) > maxName {
		return // never taken for a name
	}
	if l.least == 0 || len(name) < l.least {
		l.least = len(name)
	}
	l.lengths |= 1 << (len(name) - 1)
	for i := range len(name) {
		l.bytes[name[i]] = true
	}
}

// probe returns the first position from p on that a name may cover, in steps of the shortest name. Each name covers one
// of them.
func (l *lexicon) probe(text []byte, p int) int {
	if l.least == 0 {
		return len(text)
	}
	for ; p < len(text); p += l.least {
		if l.bytes[text[p]] && (l.least == 1 || p > 0 && l.bytes[text[p-1]] || p+1 < len(text) && l.bytes[text[p+1]]) {
			return p
		}
	}
	return len(text)
}

// around returns the run of some bytes around text[p].
func around(text []byte, p int, among *[256]bool) (from, to int) {
	for from = p; from > 0 && among[text[from-1]]; from-- {
	}
	for to = p; to < len(text) && among[text[to]]; to++ {
	}
	return from, to
}

// before returns how many bytes of text certainly have no name, not even the beginning of one within a longer word.
func (l *lexicon) before(text []byte) int {
	for p := l.probe(text, l.least-1); p < len(text); {
		from, to := around(text, p, &l.bytes)
		if to-from >= l.least && bytes.ContainsFunc(text[from:to-l.least+1], capital) {
			return from
		}
		p = l.probe(text, to+l.least)
	}
	return len(text)
}

func capital(r rune) bool { return 'A' <= r && r <= 'Z' }

// isName reports whether a word is a token name.
func (s *Swapper) isName(word []byte) bool {
	return len(word) > 0 && len(word) <= maxName && s.lexicon.lengths>>(len(word)-1)&1 != 0 && isUpper(word[0]) &&
		s.byText[string(word)] == string(word)
}

// sight tells how far a text certainly has no name.
type sight struct {
	s    *Swapper
	text []byte
	next int // no name begins before it,
	then int // and the word there ends here
	end  int // the word at the end, which may go on
}

// maxRun is more than a word with a name and what precedes it in the last escape, as in \u002dAPI_KEY.
const maxRun = 2 * maxName

// sight begins to look at a text.
func (w *words) sight(text []byte) sight {
	end := len(text)
	for end > 0 && len(text)-end <= maxRun && isWord(text[end-1]) {
		end--
	}
	if len(text)-end > maxRun {
		end = len(text)
	}
	return sight{s: w.x.s, text: text, next: -1, then: -1, end: end}
}

// clear returns the end of what has no name from at on. at must not decrease.
func (s *sight) clear(at int) int {
	for at >= s.then && s.next < s.end {
		s.look()
	}
	return max(at, s.next)
}

// look finds the next word that is a name, or may end in one.
func (s *sight) look() {
	l := &s.s.lexicon
	for p := l.probe(s.text, s.then+l.least); p < s.end; {
		from, to := around(s.text, p, &wordBytes)
		if s.named(from, to) {
			s.next, s.then = from, to
			return
		}
		p = l.probe(s.text, to+l.least)
	}
	s.next, s.then = s.end, len(s.text)
}

// named reports whether a word is a name, or would be without the characters of an escape before it, as in \nAPI_KEY.
func (s *sight) named(from, to int) bool {
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
		t[i] = isWord(byte(i))
	}
	return t
}()

// pass takes all of a plain text.
func (w *words) pass(text []byte) int {
	if len(w.word) > 0 || len(w.escape) > 0 || len(text) == 0 {
		return 0
	}
	w.long = isWord(text[len(text)-1])
	return len(text)
}

// lengths is a set of lengths of texts, of which those from 63 bytes on are one.
type lengths uint64

func (l *lengths) add(n int) { *l |= 1 << min(n, 63) }

func (l lengths) has(n int) bool { return l>>min(n, 63)&1 != 0 }
