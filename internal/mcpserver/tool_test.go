package mcpserver

import (
	"math/rand/v2"
	"strings"
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

// TestAlias replaces each character that no identifier has. A glob keeps its wildcards.
func TestAlias(t *testing.T) {
	const name = "azAZ09_$`{@[/:-.*?\u00e9\u6f22"
	if got, want := AliasTool(name), "azAZ09_$____________"; got != want {
		t.Errorf("the tool %q, want %q", got, want)
	}
	if got, want := AliasGlob(name), "azAZ09_$________*?__"; got != want {
		t.Errorf("the glob %q, want %q", got, want)
	}
}

func TestIsFolderName(t *testing.T) {
	for name, want := range map[string]bool{
		"": false, "a": true, "9": true, "a-_9z": true, "-a": false, "_a": false, "A": false, "a/b": false, "a.b": false, "..": false,
		strings.Repeat("a", 32): true, strings.Repeat("a", 33): false,
	} {
		if got := IsFolderName(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}

func TestPackageToInstall(t *testing.T) {
	for pkg, want := range map[string]string{
		"": "", "npm:x@1.0.0": "npm:x@1.0.0", "npm:x@1.0.0/b": "npm:x@1.0.0", "npm:@s/x@1.0.0-a.1/b": "npm:@s/x@1.0.0-a.1", "npm:@s/x@1.0.0": "npm:@s/x@1.0.0",
	} {
		if got := (&Settings{Package: pkg}).PackageToInstall(); got != want {
			t.Errorf("%q: %q, want %q", pkg, got, want)
		}
	}
	s := &Settings{Package: "pypi:x[a]@1.0/p", Constraints: []string{"z<2", "b>1,<3", "z<2"}}
	if got, want := s.PackageToInstall(), "pypi:x[a]@1.0 b>1,<3 z<2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
