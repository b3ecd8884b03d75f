package multisearch

import (
	"math/bits"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// spelling finds plain patterns in a text with all escapes removed.
//
// Each position in a text has one character and one next position, so the text from there on decodes to one string. A
// word is the first bytes of that string. The words of a block are computed from its end to its beginning, each from
// the word after it.
//
// Threat: as for table. Contract: a lookup needs a whole word, the end of a pattern. Before the first such word, the
// work depends only on the text.
type spelling struct {
	n       int // bytes of a word; 0 without patterns
	longest int // bytes of the longest pattern
	mask    uint64
	shift   uint
	filter  []uint64                 // a bit for each hash of a known word
	at      placeIndex[patternPlace] // by word
}

const (
	wordSize   = 8
	spellBlock = 512 // positions whose words are computed at once
	// escapeTail bounds the bytes by which an escape may go on after the last nested position that nextEscape returns.
	// Examples are the digits of the entity in %26%2300000000065; and the second escape in %5C&quot;.
	escapeTail = 2 * (maxEntity + 2)
)

func newSpelling(pats []Pattern, list []int32, rest func()) spelling {
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
	s.at = newPlaces(func(add func(uint64, patternPlace)) {
		for _, i := range list {
			rest()
			text := pats[i].Text
			off := len(text) - s.n
			// A character is decoded as a whole, so a word cannot begin inside it.
			for off > 0 && !utf8.RuneStart(text[off]) {
				off--
			}
			w := s.readWord(text[off:])
			h := hashKey(w, s.shift)
			s.filter[h>>6] |= 1 << (h & 63)
			add(w, patternPlace{i, int32(off)})
		}
	})
	return s
}

func (s *spelling) readWord(text string) uint64 {
	var w uint64
	for k := range s.n {
		w |= uint64(text[k]) << (8 * k)
	}
	return w
}

// searchZones checks words until no escaped pattern is left to find whose core is before cut and matters.
//
// The words to check are in zones around the escapes: a pattern may begin before an escape and end after it. Zones that
// touch are merged, so all escapes of a pattern are in one zone.
func (x *search) searchZones(cut int) {
	s, e := &x.set.esc.spelling, &x.escaped
	if s.n == 0 {
		return
	}
	if 0 <= e.next && e.next < x.from {
		e.next = x.nextEscape(x.from)
	}
	e.at = max(e.at, x.from)
	for {
		near := x.coreLimit(cut)
		if e.at >= e.until && (e.next < 0 || e.next-s.longest > e.until) {
			if e.next < 0 || e.next-s.longest >= near {
				return
			}
			e.at, e.until = max(e.at, e.next-s.longest), e.next
		}
		if e.at >= min(near+x.set.hold, len(x.buf)) {
			return
		}
		for e.next >= 0 && e.next-s.longest <= e.until && e.until < e.at+spellBlock {
			last := e.next
			e.until = max(e.until, last+s.longest)
			if e.next = x.nextEscape(last + 1); e.next < 0 || e.next > e.until {
				e.until = max(e.until, last+int(x.peelAt(last).n)+escapeTail+s.longest)
			}
		}
		to := min(e.at+spellBlock, e.until, len(x.buf))
		x.searchBlock(e.at, to)
		e.at = to
	}
}

// searchBlock checks buf[from:to], at most spellBlock positions.
func (x *search) searchBlock(from, to int) {
	s := &x.set.esc.spelling
	words := wordBlocks.Get().(*[spellBlock]uint64)
	defer wordBlocks.Put(words)
	buf := x.buf[from:to]
	after := x.computeWord(to) // the word of the position after the block
	for i := len(buf) - 1; i >= 0; i-- {
		b := buf[i]
		if isStarter(b) && canBeginEscape(x.buf, from+i) {
			after = x.joinWord(words[:len(buf)], from, i)
		} else {
			after = after<<8 | uint64(b)
		}
		words[i] = after
	}
	for i, w := range words[:len(buf)] {
		w &= s.mask
		// Nearly all words end here, in time that does not depend on the patterns.
		if h := hashKey(w, s.shift); s.filter[h>>6]>>(h&63)&1 == 0 {
			continue
		}
		for _, pl := range s.at.lookUpKey(w) {
			if text := x.set.pats[pl.pat].Text; s.readWord(text[pl.off:]) == w {
				x.noteMatchesBefore(from+i, pl)
			}
		}
	}
}

// wordBlocks is a cache: each element of a block is written before it is read.
var wordBlocks = sync.Pool{New: func() any { return new([spellBlock]uint64) }}

// joinWord returns the word of position i of a block, at which an escape may begin. words has the words of later
// positions.
func (x *search) joinWord(words []uint64, from, i int) uint64 {
	c := x.peelAt(from + i)
	w := uint64(0)
	if next := i + int(c.n); next < len(words) {
		w = words[next]
	} else {
		w = x.computeWord(from + next)
	}
	w <<= 8 * c.len
	for k := range c.len {
		w |= uint64(c.val[k]) << (8 * k)
	}
	return w
}

// computeWord returns the word of a position, computed forwards.
func (x *search) computeWord(p int) uint64 {
	var w uint64
	for n := int32(0); n < wordSize && p < len(x.buf); {
		c := x.peelAt(p)
		for i := range c.len {
			w |= uint64(c.val[i]) << (8 * (n + i)) // shifted out beyond the word
		}
		n, p = n+c.len, p+int(c.n)
	}
	return w
}

// escapeSpan is an escape in the buffer. It has more than one byte.
type escapeSpan struct{ start, end int32 }

// noteMatchesBefore notes the matches that end in the word at p, on every path that leads to it. Several paths exist if
// a digit of an escape is also a character of the pattern. Each position has one next position, so it is on one path
// only.
func (x *search) noteMatchesBefore(p int, pl patternPlace) {
	x.readEscapes(p)
	ends := x.notes.ends
	x.followBack(p, p, ends[:endsBefore(ends, p+1)], pl, x.set.pats[pl.pat].Text[:pl.off])
}

// followBack follows text back from p. ends has the escapes that end at or before p.
func (x *search) followBack(p, at int, ends []escapeSpan, pl patternPlace, text string) {
	if p < x.from {
		return
	}
	if text == "" {
		if p < x.cut {
			limit := min(len(x.buf), p+x.set.hold-2)
			if end := x.plainEnd(limit, at, x.set.pats[pl.pat].Text[pl.off:]); end >= 0 {
				x.noteMatch(match{p, p, end, int(pl.pat)})
			}
		}
		return
	}
	i := len(ends)
	for i > 0 && int(ends[i-1].end) > p {
		i--
	}
	// A byte that begins an escape is not a character of the decoded text.
	if p > x.from && x.buf[p-1] == text[len(text)-1] && x.peelAt(p-1).n == 1 {
		x.followBack(p-1, at, ends[:i], pl, text[:len(text)-1])
	}
	for i--; i >= 0 && int(ends[i].end) == p && int(ends[i].start) >= at-x.set.hold; i-- {
		q := int(ends[i].start)
		if c := x.peelAt(q); strings.HasSuffix(text, string(c.val[:c.len])) {
			x.followBack(q, at, ends[:i], pl, text[:len(text)-int(c.len)])
		}
	}
}

// readEscapes notes the escapes that begin before p, within the held bytes. It reads each escape once.
func (x *search) readEscapes(p int) {
	n, e := x.getNotes(), &x.escaped
	for e.read = max(e.read, x.from, p-x.set.hold); e.read < p; e.read++ {
		if !isStarter(x.buf[e.read]) {
			continue
		}
		c := x.peelAt(e.read)
		if c.n == 1 {
			continue
		}
		// Drop escapes that no match can reach before the slice grows.
		if len(n.ends) == cap(n.ends) {
			if gone := endsBefore(n.ends, p-x.set.hold); gone > len(n.ends)/2 {
				n.ends = slices.Delete(n.ends, 0, gone)
			}
		}
		s := escapeSpan{int32(e.read), int32(e.read) + c.n}
		n.ends = slices.Insert(n.ends, endsBefore(n.ends, int(s.end)+1), s)
	}
}

// endsBefore returns the number of escapes that end before p.
func endsBefore(ends []escapeSpan, p int) int {
	i, _ := slices.BinarySearchFunc(ends, int32(p), func(s escapeSpan, end int32) int { return int(s.end - end) })
	return i
}
