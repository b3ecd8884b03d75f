package engine

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf8"
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

	written     [256]uint8 // 1 if a pattern may be written with the byte
	ascii       bool       // no pattern has a byte that is not ASCII
	run, stride int        // see possible
	known       [256]bool  // bytes that a pattern may have: see barriers
}

func isPlain(text string) bool { return !strings.ContainsAny(text, "%\\&") }

// compile indexes the patterns that may be escaped: those that are not plain by each position that may be the first
// escape.
func (e *escapes) compile(pats []Pattern, rest func()) {
	var plain []int32
	for i, p := range pats {
		rest()
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
	e.sample(pats, rest)
	e.spelling = newSpelling(pats, plain, rest)
}

// barriers are characters that hardly any credential has and that nearly every document escapes. Unprintable bytes are
// barriers too. No pattern continues across an escaped barrier, unless some pattern has that byte, which is all that
// the time of a search reveals.
const barriers = " \"'<>,:[]{}"

// sample prepares possible, and which escapes may be those of a pattern.
func (e *escapes) sample(pats []Pattern, rest func()) {
	for b := range e.written {
		// The bytes of escapes and of nearly all patterns, so that it reveals little about them.
		if ' ' <= b && b <= '~' {
			e.written[b], e.known[b] = 1, strings.IndexByte(barriers, byte(b)) < 0
		}
	}
	least := 1 << 30
	e.ascii = true
	for _, p := range pats {
		rest()
		if !p.Escaped {
			continue
		}
		least = min(least, len(p.Text))
		for _, b := range []byte(p.Text) {
			e.written[b], e.known[b] = 1, true
			e.ascii = e.ascii && b < utf8.RuneSelf
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
		if e.ascii && e.run >= 8 && binary.LittleEndian.Uint64(buf[p:])&notASCII != 0 {
			continue
		}
		if e.run >= 4 && e.written[buf[p]]&e.written[buf[p+1]]&e.written[buf[p+2]]&e.written[buf[p+3]] == 0 {
			continue // the processor predicts this branch in binary data, unlike one for each byte
		}
		n := 0
		for n < e.run && e.written[buf[p+n]] != 0 {
			n++
		}
		if n == e.run {
			return true
		}
	}
	return false
}

// notASCII has a bit for each of eight bytes, which is set if the byte is not ASCII.
const notASCII = 0x8080808080808080

// escaped is the part of a search that is for escaped patterns. The positions are -1 where there is none.
type escaped struct {
	state     escapedState
	first     starters // of those that may matter
	all, odds starters
	next      int // the next escape that is not in a zone yet
	at, until int // the rest of a zone, whose words are still to be checked
	odd       int // the next position at which to try the patterns that are not plain,
	tried     int // and the last one
	read      int // the escapes before this position were read
}

type escapedState uint8

const (
	unknown escapedState = iota
	absent               // no escaped pattern is in the text
	going
)

// peeledChar caches a character of the buffer with all escapes removed. at is its position plus one.
type peeledChar struct {
	at int
	c  char
}

// findEscaped searches until no escaped pattern is left whose core is before cut and as near as those found.
func (x *search) findEscaped(cut int) {
	e := &x.escaped
	if e.state == unknown {
		e.state = absent
		if e.odd = e.first.after(x.buf, x.from); e.odd >= 0 && x.set.esc.possible(x.buf, x.from, x.cut) {
			e.state, e.tried, e.all, e.odds = going, -1, e.first, e.first
			e.next = x.nextEscape(e.odd)
		}
	}
	if e.state == going {
		x.spell(cut)
		if x.set.esc.anOdd {
			x.lookOdd(cut)
		}
	}
}

// nextEscape returns the first position from p on where an escape may begin that a pattern may be written with, or -1.
// p must not decrease.
func (x *search) nextEscape(p int) int {
	for p = x.escaped.all.after(x.buf, p); p >= 0; p = x.escaped.all.after(x.buf, p+1) {
		if mayEscape(x.buf, p) && x.set.esc.may(x.buf[p:]) {
			return p
		}
	}
	return -1
}

// may reports whether a pattern may be written with the escape at the beginning of buf, if there is one.
func (e *escapes) may(buf []byte) bool {
	if buf[0] == '&' {
		return mayEntity(buf)
	}
	c, ok := simple(buf)
	for _, b := range c.val[:c.len] {
		if ok && !e.known[b] {
			return false
		}
	}
	return true
}

// lookOdd tries the patterns that are not plain. Before its first escape an occurrence has no % \ or &, so for each
// core there is one place where that may be.
func (x *search) lookOdd(cut int) {
	e := &x.escaped
	for e.odd >= 0 && e.tried < x.near(cut)-1 && e.odd < x.near(cut)+x.set.hold/stretch {
		if e.odd >= x.from {
			x.tryAll(e.odd)
		}
		e.tried, e.odd = e.odd, e.odds.after(x.buf, max(e.odd+1, x.from))
	}
}

// tryAll tries the patterns that are not plain, in all the ways that the character at q may be read.
func (x *search) tryAll(q int) {
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
	if c, ok := simple(x.buf[p:]); ok {
		return c
	}
	m := &x.need().peeled[p%len(x.notes.peeled)]
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

// try compares one pattern, whose byte at pl.off should be at q.
func (x *search) try(q int, pl place) {
	core := q - int(pl.off)
	p := &x.set.pats[pl.pat]
	if core < x.from || core >= x.cut || string(x.buf[core:q]) != p.Text[:pl.off] {
		return
	}
	limit := min(len(x.buf), core+x.set.hold-2)
	if end := x.oddEnd(limit, q, p.Text[pl.off:]); end >= 0 {
		x.record(match{core, core, end, int(pl.pat)})
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

// starters are the next % \ and & of a text, found in order: each field is the position of the next one, or before it.
type starters [3]int

// after returns the first of them at or after p, or -1. p must not decrease.
func (s *starters) after(buf []byte, p int) int {
	first := len(buf)
	for i, b := range [3]byte{'%', '\\', '&'} {
		at := min(max(s[i], p), len(buf))
		if at < len(buf) && buf[at] != b {
			if j := bytes.IndexByte(buf[at:], b); j >= 0 {
				at += j
			} else {
				at = len(buf)
			}
		}
		s[i] = at
		first = min(first, at)
	}
	if first == len(buf) {
		return -1
	}
	return first
}
