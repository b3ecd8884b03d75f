package multisearch

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// escapeIndex finds patterns with at least one character escaped.
//
// Every escape begins with % \ or &. A plain pattern contains none of the three. A text can then be read in one way
// from any position: each character with all its escapes removed. spelling finds plain patterns.
//
// The other patterns are few. They are tried in all ways to read a text from the first % \ or & of an occurrence.
// Before that position an occurrence is literal.
type escapeIndex struct {
	any      bool
	spelling spelling
	anOdd    bool
	odd      [256][]patternPlace

	written     [256]uint8 // 1 if a pattern may be written with the byte
	ascii       bool       // no pattern has a byte that is not ASCII
	run, stride int        // see canOccur
	known       [256]bool  // bytes that a pattern may have: see barriers
}

func isPlain(text string) bool { return !strings.ContainsAny(text, "%\\&") }

// indexPatterns indexes the patterns with Escaped. It indexes a pattern that is not plain by each position that may be
// the first escape.
func (e *escapeIndex) indexPatterns(pats []Pattern, rest func()) {
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
			e.odd[b] = append(e.odd[b], patternPlace{int32(i), int32(off)})
			// An occurrence is literal before its first % \ or &, so no later position can be the first escape.
			if isStarter(b) {
				break
			}
		}
	}
	e.sampleBytes(pats, rest)
	e.spelling = newSpelling(pats, plain, rest)
}

// barriers are characters that few credentials contain and nearly every document escapes. Unprintable bytes are
// barriers too. No pattern continues across an escaped barrier, unless some pattern has that byte. The time of a search
// reveals only that.
const barriers = " \"'<>,:[]{}"

// sampleBytes prepares possible and known.
func (e *escapeIndex) sampleBytes(pats []Pattern, rest func()) {
	for b := range e.written {
		// These are the bytes of escapes and of nearly all patterns, so that the table reveals little about the patterns.
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

// canOccur reports whether a pattern may occur in buf, escaped or not, with its core in buf[from:cut]. An occurrence
// takes at least as many bytes as its pattern, and all of these bytes are in written. So it covers one of the sampled
// runs. Binary data has no such run, and needs no search.
func (e *escapeIndex) canOccur(buf []byte, from, cut int) bool {
	last := min(cut+e.stride-2, len(buf)-e.run)
	for p := from; p <= last; p += e.stride {
		if e.ascii && e.run >= 8 && binary.LittleEndian.Uint64(buf[p:])&notASCII != 0 {
			continue
		}
		// The processor predicts this branch in binary data, unlike one branch for each byte.
		if e.run >= 4 && e.written[buf[p]]&e.written[buf[p+1]]&e.written[buf[p+2]]&e.written[buf[p+3]] == 0 {
			continue
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

// notASCII has the high bit of each of eight bytes, which is set if the byte is not ASCII.
const notASCII = 0x8080808080808080

// escapedSearch is the state of a search for escaped patterns. A position is -1 if there is no such position.
type escapedSearch struct {
	state     escapedState
	first     starters // the starters that may matter
	all, odds starters
	next      int // the next escape outside the current zone
	at, until int // the rest of a zone whose words are not checked yet
	odd       int // the next position at which to try the patterns that are not plain
	tried     int // the last such position
	read      int // the escapes before this position were read
}

type escapedState uint8

const (
	stateUnknown escapedState = iota
	stateAbsent               // the text has no escaped pattern
	stateGoing
)

// peeledChar caches a character of the buffer with all escapes removed. at is the position plus one.
type peeledChar struct {
	at int
	c  char
}

// findEscaped searches until no escaped pattern can begin before cut and at or before the best match so far.
func (x *search) findEscaped(cut int) {
	e := &x.escaped
	if e.state == stateUnknown {
		e.state = stateAbsent
		if e.odd = e.first.findAfter(x.buf, x.from); e.odd >= 0 && x.set.esc.canOccur(x.buf, x.from, x.cut) {
			e.state, e.tried, e.all, e.odds = stateGoing, -1, e.first, e.first
			e.next = x.nextEscape(e.odd)
		}
	}
	if e.state == stateGoing {
		x.searchZones(cut)
		if x.set.esc.anOdd {
			x.searchOdd(cut)
		}
	}
}

// nextEscape returns the first position at or after p that may begin an escape of a pattern, or -1. p must not
// decrease.
func (x *search) nextEscape(p int) int {
	for p = x.escaped.all.findAfter(x.buf, p); p >= 0; p = x.escaped.all.findAfter(x.buf, p+1) {
		if canBeginEscape(x.buf, p) && x.set.esc.canContainEscape(x.buf[p:]) {
			return p
		}
	}
	return -1
}

// canContainEscape reports whether a pattern may contain the character of the escape at the beginning of buf.
func (e *escapeIndex) canContainEscape(buf []byte) bool {
	if buf[0] == '&' {
		return canBeginEntity(buf)
	}
	c, ok := readSimple(buf)
	for _, b := range c.val[:c.len] {
		if ok && !e.known[b] {
			return false
		}
	}
	return true
}

// searchOdd tries the patterns that are not plain. An occurrence has no % \ or & before its first escape, so each core
// has one possible first escape.
func (x *search) searchOdd(cut int) {
	e := &x.escaped
	for e.odd >= 0 && e.tried < x.coreLimit(cut)-1 && e.odd < x.coreLimit(cut)+x.set.hold/maxStretch {
		if e.odd >= x.from {
			x.tryAll(e.odd)
		}
		e.tried, e.odd = e.odd, e.odds.findAfter(x.buf, max(e.odd+1, x.from))
	}
}

// tryAll tries the patterns that are not plain, in all ways to read the character at q.
func (x *search) tryAll(q int) {
	c := byteChar(x.buf[q], 1)
	alone := !canBeginEscape(x.buf, q)
	for d := 0; ; d++ {
		if b := c.val[0]; d == 0 || b != x.buf[q] {
			for _, pl := range x.set.esc.odd[b] {
				x.tryEscapedPattern(q, pl)
			}
		}
		// Another layer exists only if the character begins an escape itself.
		if d == maxDepth || alone || !c.isEscapeStart() {
			return
		}
		c = peelLayer(x.buf[q:min(len(x.buf), q+x.set.hold)], c, d)
	}
}

// peelAt returns the character at p with all escapes removed.
func (x *search) peelAt(p int) char {
	if b := x.buf[p]; !isStarter(b) || !canBeginEscape(x.buf, p) {
		return byteChar(b, 1)
	}
	if c, ok := readSimple(x.buf[p:]); ok {
		return c
	}
	// A position may be peeled several times; the cache has the recent ones.
	m := &x.getNotes().peeled[p%len(x.notes.peeled)]
	if m.at != p+1 {
		*m = peeledChar{p + 1, readChar(x.buf[p:min(len(x.buf), p+x.set.hold)], maxDepth)}
	}
	return m.c
}

// plainEnd returns the end of the occurrence of a plain text at p, or -1.
func (x *search) plainEnd(limit, p int, text string) int {
	for text != "" {
		if p >= limit {
			return -1
		}
		c := x.peelAt(p)
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

// tryEscapedPattern compares one pattern, with its byte at pl.off at q.
func (x *search) tryEscapedPattern(q int, pl patternPlace) {
	core := q - int(pl.off)
	p := &x.set.pats[pl.pat]
	if core < x.from || core >= x.cut || string(x.buf[core:q]) != p.Text[:pl.off] {
		return
	}
	// Two bytes are left for the edges, as in computeHold.
	limit := min(len(x.buf), core+x.set.hold-2)
	// Only a text with many percent signs, backslashes and ampersands has many readings, so their number is bounded.
	steps := 64 + 16*len(p.Text[pl.off:])
	if end := longestEscaped(x.buf[:limit], q, p.Text[pl.off:], &steps); end >= 0 {
		x.noteMatch(match{core, core, end, int(pl.pat)})
	}
}

// longestEscaped returns the end of the longest occurrence of text at buf[p:], or -1. steps bounds the recursion.
func longestEscaped(buf []byte, p int, text string, steps *int) int {
	for text != "" {
		// Code could otherwise make the search take exponential time.
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
			// A layer that changed nothing would be tried twice.
			if c.n != last && strings.HasPrefix(text, string(c.val[:c.len])) {
				best = max(best, longestEscaped(buf, p+int(c.n), text[c.len:], steps))
			}
			if d == maxDepth || !c.isEscapeStart() {
				return best
			}
			last = c.n
			c = peelLayer(buf[p:], c, d)
		}
	}
	return p
}

// starters are the positions of the next % \ and & of a text, in this order. Each is the position or an earlier one.
type starters [3]int

// findAfter returns the first starter at or after p, or -1. p must not decrease.
func (s *starters) findAfter(buf []byte, p int) int {
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
