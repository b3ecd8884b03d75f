package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFindMutants finds each kind.
func TestFindMutants(t *testing.T) {
	const source = `package p

func f(a, b int) (int, error) {
	for a < 7 {
		if a == b || b >= 2 {
			continue
		}
		if err := g(); err != nil {
			return 0, err
		}
		a++
	}
	return a, nil
}
`
	got := map[string][]string{}
	list, err := findMutants("p.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		got[m.kind] = append(got[m.kind], source[m.from:m.to]+" to "+m.new)
	}
	for kind, want := range map[string]string{
		negateCond: "a == b || b >= 2 to !(a == b || b >= 2)", skipErrorCheck: "err != nil to err != nil && false", andOr: "|| to &&", eqNeq: "== to !=",
		boundary: "< to <=; >= to >", constant: "7 to 8; 2 to 3; 0 to 1", dropReturn: "return 0, err to ; return a, nil to ", dropBranch: "continue to ", dropStmt: "a++ to ",
	} {
		if text := strings.Join(got[kind], "; "); text != want {
			t.Errorf("%s: %q, want %q", kind, text, want)
		}
	}
}

// TestReviewed: each line of the list is a mutant of the sources, with a reason.
func TestReviewed(t *testing.T) {
	for line := range strings.Lines(reviewed) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 4 || f[3] == "" {
			t.Fatalf("%q: want kind, file, line and reason", line)
		}
		source, err := os.ReadFile(filepath.Join("../..", f[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		list, err := findMutants(f[1], source)
		if err != nil {
			t.Error(err)
		}
		found := false
		for _, m := range list {
			found = found || m.kind == f[0] && m.text == f[2] && isReviewed(m)
		}
		if !found {
			t.Errorf("%s: there is no mutant like this any more: %s: %s", f[1], f[0], f[2])
		}
	}
}

// TestDraw: a seed draws the same mutants each time, and from all packages.
func TestDraw(t *testing.T) {
	all := map[string][]mutant{"a": {{pkg: "a", kind: andOr}}, "b": {{pkg: "b", kind: andOr}, {pkg: "b", kind: constant}}}
	var first []string
	for round := range 2 {
		random, seen := rand.New(rand.NewPCG(3, 0)), map[string]bool{}
		for i := range 50 {
			m, ok := draw(random, all)
			if seen[m.pkg+m.kind] = true; !ok {
				t.Fatal("nothing was drawn")
			}
			if round == 0 {
				first = append(first, m.pkg+m.kind)
			} else if first[i] != m.pkg+m.kind {
				t.Fatalf("draw %d: %s%s, then %s", i, m.pkg, m.kind, first[i])
			}
		}
		if len(seen) != 3 {
			t.Errorf("drawn: %v", seen)
		}
	}
}
