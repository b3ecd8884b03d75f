package engine

import (
	"bytes"
	"strings"
)

// escapes finds patterns with at least one character escaped.
//
// Every escape begins with one of % \ &. A plain pattern contains none of the three itself, so for it there is one way
// to read a text from any position: each character with all its escapes removed. spelling finds those. The other
// patterns are few, and are tried in all the ways that a text may be read from the first % \ or & of an occurrence,
// before which everything is literal.
type escapes struct {
	any      bool
	spelling spelling
	anOdd    bool
	odd      [256][]place

	written     [256]bool // bytes that a pattern may be written with
	run, stride int       // see possible
}

func isPlain(text string) bool { return !strings.ContainsAny(text, "%\\&") }

// compile indexes the patterns that may be escaped: those that are not plain by each position that may be the first
// escape.
func (e *escapes) compile(pats []Pattern) {
	var plain []int32
	for i, p := range pats {
		if !p.Escaped {
			continue
		}
		e.any = true
		if isPlain(p.Text) {
			plain = append(plain, int32(i))
			continue
		}
		for off := range len(p.Text) {
			b := p.Text[off]
			e.anOdd = true
			e.odd[b] = append(e.odd[b], place{int32(i), int32(off)})
			if isStarter(b) {
				break
			}
		}
	}
	e.sample(pats)
	e.spelling = newSpelling(pats, plain)
}

// sample prepares possible.
func (e *escapes) sample(pats []Pattern) {
	for b := range e.written {
		// The bytes of escapes and of nearly all patterns, so that it reveals little about them.
		e.written[b] = ' ' <= b && b <= '~'
	}
	least := 1 << 30
	for _, p := range pats {
		if !p.Escaped {
			continue
		}
		least = min(least, len(p.Text))
		for _, b := range []byte(p.Text) {
			e.written[b] = true
		}
	}
	e.run = min(12, (least+1)/2)
	e.stride = least - e.run + 1
}

// possible reports whether a pattern may occur, escaped or not, in buf with its core in buf[from:cut]. However it is
// escaped, it takes no fewer bytes than its own length, and all of them are in written; so it covers one of the runs
// that are sampled. Binary data has no such run, and needs no search.
func (e *escapes) possible(buf []byte, from, cut int) bool {
	last := min(cut+e.stride-2, len(buf)-e.run)
	for p := from; p <= last; p += e.stride {
		n := 0
		for n < e.run && e.written[buf[p+n]] {
			n++
		}
		if n == e.run {
			return true
		}
	}
	return false
}

// search is one search for escaped patterns whose core begins in buf[from:cut].
type search struct {
	set       *Set
	buf       []byte
	from, cut int
	best      match
	found     bool
	peeled    [64]peeledChar
	escapes   map[int][]int32 // where those before read begin, by their ends: see escapesTo
	read      int
}

// peeledChar caches a character of the buffer with all escapes removed. at is its position plus one.
type peeledChar struct {
	at int
	c  char
}

// findEscaped returns the first match with an escaped character whose core begins in buf[from:cut].
func (s *Set) findEscaped(buf []byte, from, cut int) (match, bool) {
	if !s.esc.any {
		return match{}, false
	}
	// No pattern begins before cut and has its first escape later.
	next := starters{buf: buf[:min(len(buf), cut+s.hold/stretch)]}
	q := next.after(from)
	if q < 0 || !s.esc.possible(buf, from, cut) {
		return match{}, false
	}
	x := search{set: s, buf: buf, from: from, cut: cut}
	for ; s.esc.anOdd && q >= 0 && !x.found; q = next.after(q + 1) {
		x.lookOdd(q)
	}
	x.spell()
	return x.best, x.found
}

// lookOdd tries the patterns that are not plain, in all the ways that the character at q may be read.
func (x *search) lookOdd(q int) {
	c := byteChar(x.buf[q], 1)
	alone := !mayEscape(x.buf, q)
	for d := 0; ; d++ {
		if b := c.val[0]; d == 0 || b != x.buf[q] {
			for _, pl := range x.set.esc.odd[b] {
				x.try(q, pl)
			}
		}
		if d == depth || alone || !c.starts() {
			return
		}
		c = peel(x.buf[q:min(len(x.buf), q+x.set.hold)], c, d)
	}
}

// peel returns the character at p with all escapes removed.
func (x *search) peel(p int) char {
	if b := x.buf[p]; !isStarter(b) || !mayEscape(x.buf, p) {
		return byteChar(b, 1)
	}
	m := &x.peeled[p%len(x.peeled)]
	if m.at != p+1 {
		*m = peeledChar{p + 1, read(x.buf[p:min(len(x.buf), p+x.set.hold)], depth)}
	}
	return m.c
}

// plainEnd returns where the occurrence of a plain text at p ends, or -1.
func (x *search) plainEnd(limit, p int, text string) int {
	for text != "" {
		if p >= limit {
			return -1
		}
		c := x.peel(p)
		if !strings.HasPrefix(text, string(c.val[:c.len])) {
			return -1
		}
		p, text = p+int(c.n), text[c.len:]
	}
	if p > limit {
		return -1
	}
	return p
}

// try compares one pattern, whose byte at pl.off should be at q, and keeps the better match.
func (x *search) try(q int, pl place) {
	core := q - int(pl.off)
	p := &x.set.pats[pl.pat]
	if core < x.from || core >= x.cut || string(x.buf[core:q]) != p.Text[:pl.off] {
		return
	}
	limit := min(len(x.buf), core+x.set.hold-2)
	x.keep(match{core, core, x.oddEnd(limit, q, p.Text[pl.off:]), int(pl.pat)})
}

// keep keeps the better match. An end of -1 means that there is none.
func (x *search) keep(m match) {
	if m.end < 0 || x.set.pats[m.pat].Word && !isWord(x.buf, m) {
		return
	}
	if m = x.set.widen(x.buf, m); !x.found || m.better(x.best) {
		x.best, x.found = m, true
	}
}

// oddEnd returns where the longest occurrence of a text at p ends, or -1. The number of readings that are tried is
// bounded; there are many only for a text with many percent signs, backslashes and ampersands.
func (x *search) oddEnd(limit, p int, text string) int {
	steps := 64 + 16*len(text)
	return longestEscaped(x.buf[:limit], p, text, &steps)
}

// longestEscaped returns where the longest occurrence of text at buf[p:] ends, or -1.
func longestEscaped(buf []byte, p int, text string, steps *int) int {
	for text != "" {
		if *steps--; *steps < 0 || p >= len(buf) {
			return -1
		}
		if !isStarter(buf[p]) {
			if buf[p] != text[0] {
				return -1
			}
			p, text = p+1, text[1:]
			continue
		}
		best := -1
		c, last := byteChar(buf[p], 1), int32(0)
		for d := 0; ; d++ {
			if c.n != last && strings.HasPrefix(text, string(c.val[:c.len])) {
				best = max(best, longestEscaped(buf, p+int(c.n), text[c.len:], steps))
			}
			if d == depth || !c.starts() {
				return best
			}
			last = c.n
			c = peel(buf[p:], c, d)
		}
	}
	return p
}

// starters walks over the % \ and & of a buffer in order.
type starters struct {
	buf  []byte
	next [3]int // the next of each; 0: not searched yet, len(buf): none
}

// after returns the first of them at or after p, or -1. p must not decrease.
func (s *starters) after(p int) int {
	first := len(s.buf)
	for i, b := range [3]byte{'%', '\\', '&'} {
		if s.next[i] < p || s.next[i] == 0 {
			s.next[i] = len(s.buf)
			if j := bytes.IndexByte(s.buf[min(p, len(s.buf)):], b); j >= 0 {
				s.next[i] = p + j
			}
		}
		first = min(first, s.next[i])
	}
	if first == len(s.buf) {
		return -1
	}
	return first
}
