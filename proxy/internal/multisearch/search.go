package multisearch

import (
	"bytes"
	"slices"
	"sync"
)

// search is one search in a text, from left to right, for the patterns of one set.
//
// A search has parts: each table, and two for escapes. Each part scans the text once. It scans until no
// later match can be preferred to the first match so far. Parts may run ahead of each other and of that match, so they
// note their matches. The work is therefore bounded by the length of the text, regardless of the number of matches.
type search struct {
	set       *Set
	buf       []byte
	from, cut int                  // cores are in buf[from:cut]
	tables    [len(blockSizes)]int // the next probe of each table
	escaped   escapedSearch
	zero      int          // the text has no NUL before it
	notes     *searchNotes // nil before the first note
}

// searchNotes are the findings of a search. They take at most a few words for each held byte.
type searchNotes struct {
	matches []match      // the best match for each core, in order
	gone    int          // the number of matches that are behind
	ends    []escapeSpan // the escapes that were read, ordered by end: see readEscapes
	peeled  [64]peeledChar
}

// notesPool is a cache: notes are cleared before they are used.
var notesPool = sync.Pool{New: func() any { return new(searchNotes) }}

// searches are the searches of a set, of the set beside it and of the set above it.
type searches [3]search

// newSearches starts to search buf for matches whose core begins before cut. top is the newest set above s, or nil.
func (s *Set) newSearches(top *Set, buf []byte, cut int) searches {
	return searches{{set: s, buf: buf, cut: cut}, {set: s.beside, buf: buf, cut: cut}, {set: top, buf: buf, cut: cut}}
}

// nextMatch returns the best match whose core begins at or after from, and its set. from must not decrease.
func (all *searches) nextMatch(from int) (m match, of *Set, ok bool) {
	cut := all[0].cut
	for i := range all {
		x := &all[i]
		if x.set == nil {
			continue
		}
		n, found := x.nextMatch(from, cut)
		// cut has limited the search to cores that are not after m's.
		if found && (!ok || n.core < m.core || n.end > m.end) {
			m, of, ok, cut = n, x.set, true, n.core+1
		}
	}
	return m, of, ok
}

// releaseNotes returns the notes to their pool.
func (all *searches) releaseNotes() {
	for i := range all {
		if n := all[i].notes; n != nil {
			all[i].notes = nil
			notesPool.Put(n)
		}
	}
}

// nextMatch returns the best match whose core begins in buf[from:cut].
func (x *search) nextMatch(from, cut int) (match, bool) {
	x.from = from
	if n := x.notes; n != nil {
		for n.gone < len(n.matches) && n.matches[n.gone].core < from {
			n.gone++
		}
	}
	for i := range x.set.tables {
		x.set.tables[i].findMatches(x, &x.tables[i], cut)
	}
	if x.set.esc.any {
		x.findEscaped(cut)
	}
	if n := x.notes; n != nil && n.gone < len(n.matches) && n.matches[n.gone].core < cut {
		return n.matches[n.gone], true
	}
	return match{}, false
}

// coreLimit returns the position before which a core must begin to matter: cut, or the position after the core of the
// first match so far.
func (x *search) coreLimit(cut int) int {
	if n := x.notes; n != nil && n.gone < len(n.matches) {
		return min(cut, n.matches[n.gone].core+1)
	}
	return cut
}

// hasZeros reports whether the rest of the text has a NUL.
func (x *search) hasZeros() bool {
	x.zero = min(max(x.zero, x.from), len(x.buf))
	if i := bytes.IndexByte(x.buf[x.zero:], 0); i >= 0 {
		x.zero += i
		return true
	}
	x.zero = len(x.buf)
	return false
}

// getNotes returns the notes, and makes them first if necessary.
func (x *search) getNotes() *searchNotes {
	if x.notes == nil {
		n := notesPool.Get().(*searchNotes)
		// The pooled slices are kept, but not their contents.
		*n = searchNotes{matches: n.matches[:0], ends: n.ends[:0]}
		x.notes = n
	}
	return x.notes
}

// noteMatch notes a match if it is the best match with its core.
func (x *search) noteMatch(m match) {
	// Before widening: an edge is not part of a word.
	if p := &x.set.pats[m.pat]; p.Word && !isWord(x.buf, m) {
		return
	}
	m = x.set.widenMatch(x.buf, m)
	n := x.getNotes()
	i, found := slices.BinarySearchFunc(n.matches[n.gone:], m.core, func(o match, core int) int { return o.core - core })
	i += n.gone
	switch {
	case !found:
		// Drop the matches behind before the slice grows, so that notes stay small.
		if len(n.matches) == cap(n.matches) && n.gone > len(n.matches)/2 {
			n.matches, i, n.gone = slices.Delete(n.matches, 0, n.gone), i-n.gone, 0
		}
		n.matches = slices.Insert(n.matches, i, m)
	case m.isBetter(n.matches[i]):
		n.matches[i] = m
	}
}

// tryPlainPattern records the match of one pattern at core, if it occurs there.
func (x *search) tryPlainPattern(pat int32, core int) {
	text := x.set.pats[pat].Text
	end := core + len(text)
	if x.from <= core && core < x.cut && end <= len(x.buf) && string(x.buf[core:end]) == text {
		x.noteMatch(match{core, core, end, int(pat)})
	}
}
