// Package typo finds the name that a misspelt one most likely means.
package typo

import (
	"math/bits"
	"strings"
)

// maxLen is the length in bytes of the longest word that is compared. A host name has at most 253.
const maxLen = 255

// Distance is how many slips turn a into b: a byte too many, too few, or wrong, or two swapped (optimal string
// alignment). It is limit if there are that many or more, or a word is longer than 255 bytes.
func Distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(a) > maxLen || len(b) > maxLen {
		return limit
	}
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return inBand(a, b, min(limit, maxLen+1))
}

// Bag is the set of a word's bytes, and the set of those that it has at least twice. Each byte has a bit; some share
// one.
type Bag struct{ once, twice uint64 }

// Letters is the Bag of a word.
func Letters(word string) (b Bag) {
	for i := range len(word) {
		c := word[i]
		bit := uint64(1) << (c&31 | c>>1&32) // one for each character of a host name
		b.twice |= b.once & bit
		b.once |= bit
	}
	return b
}

// Apart is a lower bound of the Distance of two words with these letters: a slip adds one letter, removes one, or both.
func Apart(a, b Bag) int {
	return max(bits.OnesCount64(a.once&^b.once)+bits.OnesCount64(a.twice&^b.twice),
		bits.OnesCount64(b.once&^a.once)+bits.OnesCount64(b.twice&^a.twice))
}

// inBand computes Distance by its matrix, of which it fills in only what is closer than limit to the diagonal.
func inBand(a, b string, limit int) int {
	const short = 32 // clearing the rows of the longest words takes more time than comparing short ones
	if len(b) < short {
		var rows [3][short + 1]uint16
		return banded(a, b, limit, rows[0][:], rows[1][:], rows[2][:])
	}
	var rows [3][maxLen + 2]uint16
	return banded(a, b, limit, rows[0][:], rows[1][:], rows[2][:])
}

// banded is inBand with memory for three rows, each longer than b.
func banded(a, b string, limit int, before, last, row []uint16) int {
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
		if least >= limit && leastLast+1 >= limit { // a row is made of the two before it: no later one is smaller
			return limit
		}
		leastLast = least
		before, last, row = last, row, before
	}
	return min(int(last[len(b)]), limit)
}

// maxWord is the length in bytes of the longest word that Nearest looks for: comparing takes the product of two
// lengths.
const maxWord = 80

// Nearest is the first of the candidates that is the fewest slips away from s, at most so many, whatever the case of
// either; empty if there is none, or s is longer than 80 bytes.
func Nearest(s string, slips int, candidates []string) string {
	if len(s) > maxWord {
		return ""
	}
	best, limit := "", slips+1
	s = strings.ToLower(s)
	for _, c := range candidates {
		if d := Distance(s, strings.ToLower(c), limit); d < limit {
			best, limit = c, d
		}
	}
	return best
}
