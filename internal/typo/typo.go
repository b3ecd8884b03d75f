// Package typo finds the most likely meaning of a misspelt name.
package typo

import (
	"math/bits"
	"strings"
)

// maxLen is the length of the longest compared word, in bytes. A host name has at most 253.
const maxLen = 255

// CountSlips returns the number of slips between a and b: an extra, missing or wrong byte, or two swapped bytes
// (optimal string alignment). It returns limit if there are that many or more, or if a word is longer than 255 bytes.
func CountSlips(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(a) > maxLen || len(b) > maxLen {
		return limit
	}
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return countWithin(a, b, min(limit, maxLen+1))
}

// letterBag is the set of a word's bytes, and the set of bytes that occur at least twice. Each byte has a bit; some
// bytes share one.
type letterBag struct{ once, twice uint64 }

func bagOf(word string) (b letterBag) {
	for i := range len(word) {
		c := word[i]
		bit := uint64(1) << (c&31 | c>>1&32) // one for each character of a host name
		b.twice |= b.once & bit
		b.once |= bit
	}
	return b
}

// minDistance returns a lower bound of the Distance of two words with these bags. A slip adds a letter, removes one, or
// both.
func minDistance(a, b letterBag) int {
	return max(bits.OnesCount64(a.once&^b.once)+bits.OnesCount64(a.twice&^b.twice),
		bits.OnesCount64(b.once&^a.once)+bits.OnesCount64(b.twice&^a.twice))
}

// countWithin computes Distance by its matrix. It fills only the cells that are closer than limit to the diagonal.
func countWithin(a, b string, limit int) int {
	const short = 32 // clearing the longest rows would take longer than comparing short words
	if len(b) < short {
		var rows [3][short + 1]uint16
		return countInBand(a, b, limit, rows[0][:], rows[1][:], rows[2][:])
	}
	var rows [3][maxLen + 2]uint16
	return countInBand(a, b, limit, rows[0][:], rows[1][:], rows[2][:])
}

// countInBand is countWithin with memory for three rows, each longer than b.
func countInBand(a, b string, limit int, before, last, row []uint16) int {
	for j := range min(len(b), limit) + 1 {
		last[j] = uint16(j)
	}
	leastLast := 0
	for i := range len(a) {
		from, to := max(0, i+1-limit), min(len(b), i+limit)
		row[from] = uint16(limit)
		if from == 0 {
			row[0] = uint16(i + 1)
		}
		least := int(row[from])
		for j := from; j < to; j++ {
			cost := uint16(1)
			if a[i] == b[j] {
				cost = 0
			}
			d := min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, before[j-1]+1)
			}
			row[j+1] = d
			least = min(least, int(d))
		}
		row[to+1] = uint16(limit)
		if least >= limit && leastLast+1 >= limit { // each row depends on the two before it, so later ones are not smaller
			return limit
		}
		leastLast = least
		before, last, row = last, row, before
	}
	return min(int(last[len(b)]), limit)
}

// maxSlips bounds the slips of Nearest. The time of a comparison grows with them and with the word's length.
const maxSlips = 16

// NameIndex are prepared candidates for misspelt names, for many searches. The zero NameIndex is empty.
type NameIndex struct {
	lower   []string
	letters []letterBag
}

// AddName adds a name. Nearest never finds a name of more than 255 bytes.
func (n *NameIndex) AddName(name string) {
	if len(name) > maxLen { // a server may have written it, so reading it for each search would take too long
		name = ""
	}
	name = strings.ToLower(name)
	n.lower, n.letters = append(n.lower, name), append(n.letters, bagOf(name))
}

// NearestIndex returns the index of the first name with the fewest slips, at most slips, ignoring case. If no name is
// close enough, it returns -1. Two letters of the name must be right, or one of two.
func (n *NameIndex) NearestIndex(s string, slips int) int {
	best, limit := -1, min(slips, maxSlips)+1
	if len(s) > maxLen {
		return best
	}
	s = strings.ToLower(s)
	letters := bagOf(s)
	for i, name := range n.lower {
		if minDistance(letters, n.letters[i]) >= limit { // excludes most names at a tenth of the cost
			continue
		}
		if d := CountSlips(s, name, limit); d < limit && d < max(len(name)-1, min(len(name), 2)) {
			best, limit = i, d
		}
	}
	return best
}

// NearestOf returns the candidate that NameIndex.NearestIndex finds, or "".
func NearestOf(s string, slips int, candidates []string) string {
	var n NameIndex
	for _, c := range candidates {
		n.AddName(c)
	}
	if i := n.NearestIndex(s, slips); i >= 0 {
		return candidates[i]
	}
	return ""
}
