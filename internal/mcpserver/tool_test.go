package mcpserver

import (
	"math/rand/v2"
	"testing"
)

// naive is MatchPattern, written as it is read.
func naive(pattern, name []rune) bool {
	switch {
	case len(pattern) == 0:
		return len(name) == 0
	case pattern[0] == '*':
		return naive(pattern[1:], name) || len(name) > 0 && naive(pattern, name[1:])
	}
	return len(name) > 0 && (pattern[0] == '?' || pattern[0] == name[0]) && naive(pattern[1:], name[1:])
}

// TestMatch: a character is one, however many bytes it has.
func TestMatch(t *testing.T) {
	for _, row := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"*", "", true}, {"?", "", false}, {"", "a", false}, {"get_*", "get_", true}, {"get_?", "get_", false},
		{"?", "中", true}, {"??", "中", false}, {"*??", "中", false}, {"*中", "中中", true}, {"a*b*c", "a__b__b_c", true}, {"a*b*c", "a__c__b", false},
	} {
		if got := MatchTool(row.pattern, row.name); got != row.want {
			t.Errorf("%q, %q: %t", row.pattern, row.name, got)
		}
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's
	draw := func(from []string) (s string) {
		for range random.IntN(7) {
			s += from[random.IntN(len(from))]
		}
		return s
	}
	for range 200_000 {
		pattern, name := draw([]string{"a", "b", "é", "\xff", "*", "*", "?"}), draw([]string{"a", "b", "é", "\xff", "*"})
		if got := MatchTool(pattern, name); got != naive([]rune(pattern), []rune(name)) {
			t.Fatalf("%q, %q: %t", pattern, name, got)
		}
	}
}
