package engine

import (
	"math/bits"
	"sync"
	"unicode/utf8"
)

// spelling finds plain patterns in a text with all escapes removed.
//
// Each position in a text has one character and one next position, so the text from there on decodes to one string. A
// word is the first bytes of that string; the words of a block of positions are computed from its end to its beginning,
// each from the one after it.
//
// Threat: as for table. A look is at a whole word, the end of a pattern; until it is met, the work depends on the text
// alone.
type spelling struct {
	n       int // bytes of a word; 0: no patterns
	longest int // bytes of the longest pattern
	mask    uint64
	shift   uint
	filter  []uint64 // a bit for each hash of a known word
	at      places   // by word
}

const (
	wordSize   = 8
	spellBlock = 512 // positions whose words are computed at once
	// escapeTail is how many bytes an escape may go on behind the last % \ or & in it and what that begins by itself: as
	// in %26%2300000000065; the digits of an entity.
	escapeTail = maxEntity + 1
)

func newSpelling(pats []Pattern, list []int32) spelling {
	var s spelling
	if len(list) == 0 {
		return s
	}
	s.n = wordSize
	for _, i := range list {
		s.n, s.longest = min(s.n, len(pats[i].Text)), max(s.longest, len(pats[i].Text))
	}
	s.mask = ^uint64(0) >> (64 - 8*s.n)
	width := min(max(15, bits.Len(uint(len(list)*64))), 23)
	s.shift = uint(64 - width)
	s.filter = make([]uint64, 1<<width/64)
	s.at = newPlaces(func(add func(uint64, place)) {
		for _, i := range list {
			text := pats[i].Text
			off := len(text) - s.n
			for off > 0 && !utf8.RuneStart(text[off]) { // a character is decoded whole
				off--
			}
			w := s.of(text[off:])
			h := hash(w, s.shift)
			s.filter[h>>6] |= 1 << (h & 63)
			add(w, place{i, int32(off)})
		}
	})
	return s
}

// of returns the word that a text begins with.
func (s *spelling) of(text string) uint64 {
	var w uint64
	for k := range s.n {
		w |= uint64(text[k]) << (8 * k)
	}
	return w
}

// spell checks the words of all positions where a pattern with an escape may end.
func (x *search) spell() {
	s := &x.set.esc.spelling
	if s.n == 0 {
		return
	}
	done, end := x.from, min(len(x.buf), x.cut+x.set.hold)
	all := starters{buf: x.buf[:end]}
	next := func(p int) int {
		q := all.after(p)
		for q >= 0 && !mayEscape(x.buf, q) {
			q = all.after(q + 1)
		}
		return q
	}
	for q := next(x.from); q >= 0; {
		first, until := max(done, q-s.longest), q
		for q >= 0 && q-s.longest <= until { // zones that touch are merged
			last := q
			until = max(until, q+s.longest)
			if q = next(q + 1); q < 0 || q > until {
				until = max(until, last+int(x.peel(last).n)+escapeTail+s.longest)
			}
		}
		for at := first; at < min(until, end); at += spellBlock {
			x.words(at, min(at+spellBlock, until, end))
			if x.found {
				end = min(end, x.best.core+x.set.hold) // no later match begins earlier
			}
		}
		done = max(done, until)
	}
}

// words checks buf[from:to], at most spellBlock positions.
func (x *search) words(from, to int) {
	s := &x.set.esc.spelling
	words := wordBlocks.Get().(*[spellBlock]uint64)
	defer wordBlocks.Put(words)
	buf := x.buf[from:to]
	after := x.word(to) // of the position after the block
	for i := len(buf) - 1; i >= 0; i-- {
		b := buf[i]
		if isStarter(b) && mayEscape(x.buf, from+i) {
			after = x.joined(words[:len(buf)], from, i)
		} else {
			after = after<<8 | uint64(b)
		}
		words[i] = after
	}
	for i, w := range words[:len(buf)] {
		w &= s.mask
		if h := hash(w, s.shift); s.filter[h>>6]>>(h&63)&1 == 0 {
			continue
		}
		for _, pl := range s.at.get(w) {
			if text := x.set.pats[pl.pat].Text; s.of(text[pl.off:]) == w {
				x.before(from+i, pl, text[:pl.off], 4*s.longest)
			}
		}
	}
}

// wordBlocks is a cache: what is in a block is written before it is read.
var wordBlocks = sync.Pool{New: func() any { return new([spellBlock]uint64) }}

// joined returns the word of position i of a block, where an escape may begin; words has those of later positions.
func (x *search) joined(words []uint64, from, i int) uint64 {
	c := x.peel(from + i)
	w := uint64(0)
	if next := i + int(c.n); next < len(words) {
		w = words[next]
	} else {
		w = x.word(from + next)
	}
	w <<= 8 * c.len
	for k := range c.len {
		w |= uint64(c.val[k]) << (8 * k)
	}
	return w
}

// word returns the word of a position, read forwards.
func (x *search) word(p int) uint64 {
	var w uint64
	for n := int32(0); n < wordSize && p < len(x.buf); {
		c := x.peel(p)
		for i := range c.len {
			w |= uint64(c.val[i]) << (8 * (n + i)) // beyond the word: 0
		}
		n, p = n+c.len, p+int(c.n)
	}
	return w
}

// before follows what is spelled back from the word at p, over every way that leads to it, and keeps the matches. steps
// bounds the ways; more than one are where a digit of an escape is a character of the pattern too.
func (x *search) before(p int, pl place, text string, steps int) {
	x.back(p, p, pl, text, &steps)
}

func (x *search) back(p, at int, pl place, text string, steps *int) {
	if *steps--; *steps < 0 || p < x.from {
		return
	}
	if text == "" {
		if p < x.cut {
			limit := min(len(x.buf), p+x.set.hold-2)
			x.keep(match{p, p, x.plainEnd(limit, at, x.set.pats[pl.pat].Text[pl.off:]), int(pl.pat)})
		}
		return
	}
	if p > x.from && x.buf[p-1] == text[len(text)-1] && x.peel(p-1).n == 1 {
		x.back(p-1, at, pl, text[:len(text)-1], steps)
	}
	starts := x.escapesTo(p)
	for i := len(starts) - 1; i >= 0; i-- {
		q := int(starts[i])
		if q < at-x.set.hold {
			break
		}
		c := x.peel(q)
		if len(text) < int(c.len) || text[len(text)-int(c.len):] != string(c.val[:c.len]) {
			continue
		}
		x.back(q, at, pl, text[:len(text)-int(c.len)], steps)
	}
}

// escapesTo returns where the escapes begin that end at p, from the first to the last. Each is read once in a search.
func (x *search) escapesTo(p int) []int32 {
	x.read = max(x.read, x.from)
	for ; x.read < p; x.read++ {
		if !isStarter(x.buf[x.read]) {
			continue
		}
		if n := int(x.peel(x.read).n); n > 1 {
			if x.escapes == nil {
				x.escapes = map[int][]int32{}
			}
			x.escapes[x.read+n] = append(x.escapes[x.read+n], int32(x.read))
		}
	}
	return x.escapes[p]
}
