package clients

import "strings"

// context is the number of unchanged lines around the change.
const context = 2

// DiffLines returns the change as lines with "-", "+" or " " in front. A change in one place is exact. For several
// places it shows all lines between the first and the last.
func DiffLines(before, after string) []string {
	a, b := splitLines(before), splitLines(after)
	first := 0
	for first < len(a) && first < len(b) && a[first] == b[first] {
		first++
	}
	endA, endB := len(a), len(b)
	for endA > first && endB > first && a[endA-1] == b[endB-1] {
		endA, endB = endA-1, endB-1
	}
	var out []string
	show := func(mark string, list []string) {
		for _, l := range list {
			out = append(out, mark+l)
		}
	}
	show(" ", a[max(0, first-context):first])
	show("-", a[first:endA])
	show("+", b[first:endB])
	show(" ", a[endA:min(len(a), endA+context)])
	return out
}

func splitLines(text string) []string {
	text = strings.TrimSuffix(text, "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}
