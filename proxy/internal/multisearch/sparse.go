package multisearch

import "bytes"

// sparseIndex finds patterns in UTF-16 and UTF-32 that are too short for a table: at most eight characters, with NULs
// between them. It compares the last characters of a pattern, and only if the text has NULs. NULs are not secret.
type sparseIndex struct {
	step int
	n    int // the number of characters that are compared at once
	most int // the last offset in a pattern at which these may begin
	at   placeIndex[patternPlace]
}

func newSparse(pats []Pattern, list []int32, step int, rest func()) sparseIndex {
	s := sparseIndex{step: step, n: 8}
	for _, i := range list {
		s.n = min(s.n, (len(pats[i].Text)-1)/step+1)
	}
	offset := func(i int32) int { return len(pats[i].Text) - 1 - (s.n-1)*step }
	for _, i := range list {
		s.most = max(s.most, offset(i))
	}
	s.at = newPlaces(func(add func(uint64, patternPlace)) {
		for _, i := range list {
			rest()
			off := offset(i)
			key, _ := s.loadKey([]byte(pats[i].Text), off)
			add(key, patternPlace{i, int32(off)})
		}
	})
	return s
}

// loadKey returns the characters at buf[p:], and whether the bytes between them are NUL.
func (s *sparseIndex) loadKey(buf []byte, p int) (uint64, bool) {
	var key uint64
	// Each character is one byte and then a NUL.
	if buf[p] == 0 || buf[p+1] != 0 {
		return 0, false
	}
	for i := range s.n {
		key = key<<8 | uint64(buf[p])
		if i == s.n-1 {
			break
		}
		for range s.step - 1 {
			if p++; buf[p] != 0 {
				return 0, false
			}
		}
		p++
	}
	return key, true
}

// findMatches searches from next on, until no later key can belong to a core before cut that matters.
func (s *sparseIndex) findMatches(x *search, next *int, cut int) {
	buf, p := x.buf, max(*next, x.from)
	for ; p <= min(x.coreLimit(cut)-1+s.most, len(buf)-(s.n-1)*s.step-1); p++ {
		// The next candidate is before the next NUL.
		if buf[p] != 0 && buf[p+1] != 0 {
			skip := bytes.IndexByte(buf[p+2:], 0)
			if skip < 0 {
				p = len(buf)
				break
			}
			p += skip
			continue
		}
		key, ok := s.loadKey(buf, p)
		if !ok {
			continue
		}
		for _, pl := range s.at.lookUpKey(key) {
			x.tryPlainPattern(pl.pat, p-int(pl.off))
		}
	}
	*next = p
}
