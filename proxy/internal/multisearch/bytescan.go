package multisearch

import "bytes"

// ByteScan finds the bytes of a small set in a text.
type ByteScan struct {
	text []byte
	set  string
	next [4]int // by index in set: the next position of that byte
}

// ScanBytes starts a ByteScan. The set has at most four bytes.
func ScanBytes(text []byte, set string) ByteScan {
	return ByteScan{text: text, set: set, next: [...]int{-1, -1, -1, -1}}
}

// FindFrom returns the position of the first byte of the set from at on, or the length of the text. at must not
// decrease.
func (s *ByteScan) FindFrom(at int) int {
	first := len(s.text)
	for i := range len(s.set) {
		// A search for every byte at each position would take quadratic time.
		if s.next[i] < at {
			s.next[i] = len(s.text)
			if n := bytes.IndexByte(s.text[at:], s.set[i]); n >= 0 {
				s.next[i] = at + n
			}
		}
		first = min(first, s.next[i])
	}
	return first
}
