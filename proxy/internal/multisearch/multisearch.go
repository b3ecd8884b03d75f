// Package multisearch finds many strings in a stream at once, as they are and in encoded forms (base64, hex, escapes,
// other character sets), and replaces them. It prefers the leftmost match, and of several there the longest.
//
// A string is found literally. With Pattern.Escaped it is also found with any of its characters escaped. The escapes
// may be any mix of percent, JSON, HTML and backslash-hex escapes, nested up to three deep. The result does not depend
// on how the stream is split into reads.
//
// Threat: the time at which a byte leaves must reveal nothing about the strings.
//
// Contract: Reader holds back the bytes since the last line feed, at most Set.MaxHeld bytes. Set.MaxHeld is a multiple
// of 256 that depends only on the longest string, or on the room that is reserved for later strings. A Reader never
// holds a byte because it looks like the beginning of a string.
package multisearch

import (
	"bytes"
	"cmp"
	"strings"
	"sync"
)

// Pattern is one string to find.
type Pattern struct {
	// Text is the string. The empty string is never found.
	Text string
	// ID identifies the match. Several patterns may share one ID.
	ID int
	// Write encodes the replacement if Text is in another character set. With nil the replacement is not encoded.
	Write func(text string) string
	// Escaped also finds Text with some or all of its characters escaped.
	Escaped bool
	// Word finds Text only outside longer runs of letters, digits and underscores.
	Word bool

	left, right edge
	step        uint8 // bytes from one character to the next, with NULs between; 0 is 1
	thin        bool  // a character of Text encodes half a byte of a value or less
}

// edge describes the base64 character next to Text that contains some bits of the value. A match includes it.
type edge struct {
	known uint8 // how many bits belong to the value: 0 (no such character), 2 or 4
	bits  uint8
}

// Set is a compiled, immutable list of patterns. The nil Set finds nothing.
type Set struct {
	pats   []Pattern
	tables []blockTable // one for each tableKind with patterns
	esc    escapeIndex
	hold   int
	least  int  // the length of the shortest pattern
	lines  bool // no pattern contains a line feed
	pool   *sync.Pool
	// beside is searched too. See JoinSet.
	beside *Set
	// top returns the newest set above this one, whose matches take at most room bytes. Nil means no such set. See
	// Layered.
	top  func() *Set
	room int
}

// match is an occurrence in a buffer. Matches are ordered by core. start is less than core if an edge was added.
type match struct{ core, start, end, pat int }

const (
	// maxStretch is the number of bytes that one escaped byte of a pattern may take. Longer escapes are not found.
	maxStretch = 8
	// bufferSize is the size of a Reader's buffer, in bytes, in addition to twice Set.MaxHeld.
	bufferSize = 128 << 10
	// shortText is the length in bytes that most searched strings do not exceed: headers, addresses, parts of log lines.
	shortText = 256
)

// New compiles patterns. If several have the same text, the first one counts, with the looser options of all.
func New(patterns []Pattern) *Set { return NewAside(patterns, func() {}) }

// NewAside is New for a background goroutine. It calls rest every few microseconds, and rest may sleep.
func NewAside(patterns []Pattern, rest func()) *Set {
	s := &Set{lines: true, least: 1 << 30}
	seen := map[string]int{}
	var lists [len(blockSizes)][]int32
	for _, p := range patterns {
		rest()
		if p.Text == "" {
			continue
		}
		// One value may be the hexadecimal digits of another.
		if i, twice := seen[p.Text]; twice {
			first := &s.pats[i]
			// The looser options find everything that either pattern would find.
			first.Escaped, first.Word = first.Escaped || p.Escaped, first.Word && p.Word
			continue
		}
		seen[p.Text] = len(s.pats)
		t := p.chooseTable()
		lists[t] = append(lists[t], int32(len(s.pats)))
		s.pats = append(s.pats, p)
		s.least = min(s.least, len(p.Text))
		// If no pattern has a line feed, no match crosses one, and a Reader can release whole lines.
		s.lines = s.lines && !strings.Contains(p.Text, "\n")
	}
	if len(s.pats) == 0 {
		return nil
	}
	s.hold = computeHold(s.pats)
	for t, list := range lists {
		if len(list) > 0 {
			s.tables = append(s.tables, newTable(s.pats, list, blockSizes[t], rest))
		}
	}
	s.esc.indexPatterns(s.pats, rest)
	s.makePool()
	return s
}

// computeHold returns how many bytes must be held back to find patterns: a multiple of 256.
func computeHold(patterns []Pattern) int {
	longest := 0
	for _, p := range patterns {
		n := len(p.Text) + 2
		if p.Escaped {
			// The two bytes are for the edges.
			n = len(p.Text)*maxStretch + 2
		}
		longest = max(longest, n)
	}
	return (longest + 255) / 256 * 256
}

// makePool makes the pool of Reader buffers.
func (s *Set) makePool() {
	size := bufferSize + 2*s.MaxHeld()
	s.pool = &sync.Pool{New: func() any { b := make([]byte, size); return &b }}
}

// JoinSet returns a set that finds the matches of both s and other. No pattern of other may have a line feed. Both stay
// as compiled, so it takes almost no time or memory, except if other has the longer patterns.
func (s *Set) JoinSet(other *Set) *Set {
	if s == nil || other == nil {
		return cmp.Or(s, other)
	}
	b := *s
	b.beside = other
	// A longer hold needs longer buffers.
	if b.MaxHeld() > s.MaxHeld() {
		b.makePool()
	}
	return &b
}

// WithLayer returns a set that finds the matches of s, and above them those of the newest set that top returns, which
// may be nil. A Reader asks for the newest set after every read from its source.
//
// The number of held bytes depends only on s and on longest: the length in bytes of the longest value whose Forms top
// may ever return. The sets of top have no pattern with a line feed. Of two matches at one place the longer wins, then
// the match of s.
func (s *Set) WithLayer(longest int, top func() *Set) *Set {
	// s may be nil: the layer above it still needs buffers.
	l := &Set{least: 1 << 30, lines: true}
	if s != nil {
		l.pats, l.tables, l.esc = s.pats, s.tables, s.esc
		l.hold, l.least, l.lines = s.hold, s.least, s.lines
	}
	// The room is reserved for any later value, so that a new value does not change the timing.
	l.top, l.room = top, computeHold(ListForms(strings.Repeat("x", longest), 0))
	l.makePool()
	return l
}

// loadTop returns the set above s, or nil.
func (s *Set) loadTop() *Set {
	if s.top == nil {
		return nil
	}
	return s.top()
}

// MaxHeld returns the number of bytes that Reader holds back at most: a multiple of 256.
func (s *Set) MaxHeld() int {
	if s == nil {
		return 0
	}
	return max(s.hold, s.room, s.beside.MaxHeld())
}

// isWord reports whether no letter, digit or underscore is next to m.
func isWord(buf []byte, m match) bool {
	return (m.core == 0 || !IsWordByte(buf[m.core-1])) && (m.end == len(buf) || !IsWordByte(buf[m.end]))
}

// IsWordByte reports whether a byte may be part of a token name. Such a byte next to a name makes it a longer word.
func IsWordByte(b byte) bool {
	return 'a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' || b == '_'
}

// isBetter reports whether m is preferred to o: leftmost, then longest, then first listed.
func (m match) isBetter(o match) bool {
	if m.core != o.core {
		return m.core < o.core
	}
	if m.end != o.end {
		return m.end > o.end
	}
	return m.pat < o.pat
}

// widenMatch adds the edges of a base64 form if the neighbouring characters contain bits of the value.
func (s *Set) widenMatch(buf []byte, m match) match {
	p := &s.pats[m.pat]
	if p.left.known != 0 && m.core > 0 {
		// The character belongs to the value only if the known bits match.
		if v := decodeSextet(buf[m.core-1]); v != noSextet && v&(1<<p.left.known-1) == p.left.bits {
			m.start--
		}
	}
	if p.right.known != 0 && m.end < len(buf) {
		if v := decodeSextet(buf[m.end]); v != noSextet && v>>(6-p.right.known) == p.right.bits {
			m.end++
		}
	}
	return m
}

// isTooShort reports whether a text of n bytes is shorter than every pattern.
func (s *Set) isTooShort(top *Set, n int) bool {
	return n < s.least && (top == nil || n < top.least) && (s.beside == nil || n < s.beside.least)
}

// Contains reports whether text contains any of the patterns.
func (s *Set) Contains(text string) bool {
	_, ok := s.FindFirst(text)
	return ok
}

// FindFirst returns the ID of the first pattern that text contains.
func (s *Set) FindFirst(text string) (id int, ok bool) {
	if s == nil {
		return 0, false
	}
	// Most strings are shorter than every pattern.
	if s.isTooShort(s.loadTop(), len(text)) {
		return 0, false
	}
	// A short text is copied to the stack, without an allocation.
	var space [shortText]byte
	return s.FindIn(append(space[:0], text...))
}

// FindIn is FindFirst without a copy of the text.
func (s *Set) FindIn(text []byte) (id int, ok bool) {
	if s == nil {
		return 0, false
	}
	top := s.loadTop()
	if s.isTooShort(top, len(text)) {
		return 0, false
	}
	all := s.newSearches(top, text, len(text))
	defer all.releaseNotes()
	m, of, ok := all.nextMatch(0)
	if !ok {
		return 0, false
	}
	return of.pats[m.pat].ID, true
}

// ContainsFold reports whether text in lower case contains any of the patterns.
func (s *Set) ContainsFold(text string) bool {
	_, ok := s.FindFold(text)
	return ok
}

// FindFold is FindFirst on text in lower case.
func (s *Set) FindFold(text string) (id int, ok bool) {
	// Lower case takes at most three times the bytes, for a byte that is not UTF-8. Most header names are far too short to
	// match.
	if s == nil || s.isTooShort(s.loadTop(), 3*len(text)) {
		return 0, false
	}
	return s.FindFirst(strings.ToLower(text))
}

// ReplaceAll replaces every match by the result of with, and counts the matches.
func (s *Set) ReplaceAll(text string, with func(id int) string) (string, int) {
	if s == nil {
		return text, 0
	}
	top := s.loadTop()
	if s.isTooShort(top, len(text)) {
		return text, 0
	}
	var space [shortText]byte
	buf := append(space[:0], text...)
	all := s.newSearches(top, buf, len(buf))
	defer all.releaseNotes()
	var out bytes.Buffer
	done, n := 0, 0
	for {
		m, of, ok := all.nextMatch(done)
		if !ok {
			break
		}
		// The edge of a match may belong to the match before it.
		start := max(m.start, done)
		out.Write(buf[done:start])
		out.WriteString(of.encodeReplacement(m, with(of.pats[m.pat].ID)))
		done = m.end
		n++
	}
	if n == 0 {
		return text, 0
	}
	out.Write(buf[done:])
	return out.String(), n
}

func (s *Set) encodeReplacement(m match, text string) string {
	if write := s.pats[m.pat].Write; write != nil {
		return write(text)
	}
	return text
}

// FindAll lists the IDs of the matches in order, without overlaps.
func (s *Set) FindAll(text string) (ids []int) {
	s.ReplaceAll(text, func(id int) string { ids = append(ids, id); return "" })
	return ids
}
