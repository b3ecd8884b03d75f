// Package typo finds the name that a misspelt one most likely means.
package typo

import "strings"

// maxLen is the length in bytes of the longest word that is compared. A host name has at most 253.
const maxLen = 255

// Distance is how many slips turn a into b: a byte too many, too few, or wrong, or two swapped (optimal string
// alignment). It is limit if there are that many or more, or a word is longer than 255 bytes.
func Distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(a) > maxLen || len(b) > maxLen {
		return limit
	}
	var space [3][maxLen + 1]int
	before, last, row := &space[0], &space[1], &space[2]
	for j := range len(b) + 1 {
		last[j] = j
	}
	leastLast := 0
	for i := range len(a) {
		row[0] = i + 1
		least := row[0]
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			d := min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, before[j-1]+1)
			}
			row[j+1] = d
			least = min(least, d)
		}
		if least >= limit && leastLast+1 >= limit { // a row is made of the two before it: no later one is smaller
			return limit
		}
		leastLast = least
		before, last, row = last, row, before
	}
	return min(last[len(b)], limit)
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
