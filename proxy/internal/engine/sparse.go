package engine

import "bytes"

// sparse finds patterns that have NULs between their characters: UTF-16 and UTF-32. It compares the last characters of
// a pattern, as many as a table has bytes in a block, and only where there are NULs, which is not a secret.
type sparse struct {
	step int
	n    int // characters that are compared at once
	most int // the last offset in a pattern where these may begin
	at   places
}

func newSparse(pats []Pattern, list []int32, step int) sparse {
	s := sparse{step: step, n: 8}
	for _, i := range list {
		s.n = min(s.n, (len(pats[i].Text)-1)/step+1)
	}
	offset := func(i int32) int { return len(pats[i].Text) - 1 - (s.n-1)*step }
	for _, i := range list {
		s.most = max(s.most, offset(i))
	}
	s.at = newPlaces(func(add func(uint64, place)) {
		for _, i := range list {
			off := offset(i)
			key, _ := s.load([]byte(pats[i].Text), off)
			add(key, place{i, int32(off)})
		}
	})
	return s
}

// load returns the characters at buf[p:], if the bytes between them are NUL.
func (s *sparse) load(buf []byte, p int) (uint64, bool) {
	var key uint64
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

// find returns the best match whose core begins in buf[from:cut].
func (s *sparse) find(set *Set, buf []byte, from, cut int) (match, bool) {
	best, found := match{}, false
	span := (s.n-1)*s.step + 1
	for p := from; p <= min(cut-1+s.most, len(buf)-span); p++ {
		if buf[p] != 0 && buf[p+1] != 0 { // the next candidate is before the next NUL
			next := bytes.IndexByte(buf[p+2:], 0)
			if next < 0 {
				break
			}
			p += next
			continue
		}
		key, ok := s.load(buf, p)
		if !ok {
			continue
		}
		if m, ok := s.check(set, buf, key, p, from, cut); ok && (!found || m.better(best)) {
			best, found, cut = m, true, m.core+1
		}
	}
	return best, found
}

// check returns the best match with this key at p whose core begins in buf[from:cut].
func (s *sparse) check(set *Set, buf []byte, key uint64, p, from, cut int) (best match, found bool) {
	for _, pl := range s.at.get(key) {
		core := p - int(pl.off)
		if core < from || core >= cut {
			continue
		}
		if m, ok := set.check(buf, pl.pat, core); ok && (!found || m.better(best)) {
			best, found = m, true
		}
	}
	return best, found
}
