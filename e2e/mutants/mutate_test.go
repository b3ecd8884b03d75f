package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
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
		time.Sleep(5 * time.Second)
		time.Sleep(-6 * time.Second)
		if b == a {
			return 4, fmt.Errorf("no")
		}
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
		negateCond: "a == b || b >= 2 to !(a == b || b >= 2); b == a to !(b == a)", skipErrorCheck: "err != nil to err != nil && false", andOr: "|| to &&", eqNeq: "== to !=; == to !=",
		boundary: "< to <=; >= to >", constant: "7 to 8; 2 to 3", dropReturn: "return 0, err to ; return 4, fmt.Errorf(\"no\") to ; return a, nil to ", dropBranch: "continue to ", dropStmt: "a++ to ; time.Sleep(5 * time.Second) to ; time.Sleep(-6 * time.Second) to ",
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
		if len(f) != 5 || f[4] == "" {
			t.Fatalf("%q: want kind, file, line, count and reason", line)
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
			found = found || isReviewed(m) && strings.HasPrefix(line, m.key()+"\t")
		}
		if !found {
			t.Errorf("%s: there is no mutant like this any more: %s: %s", f[1], f[0], f[2])
		}
	}
}

// TestOrder: a seed orders mutants in the same way each time, also if others are missing, and draws from all kinds.
func TestOrder(t *testing.T) {
	all := map[string][]mutant{"a": nil, "b": {{pkg: "b", kind: constant}}}
	for i := range 100 {
		all["a"] = append(all["a"], mutant{pkg: "a", kind: andOr, nth: i})
	}
	equal := func(a, b []mutant) bool {
		return slices.EqualFunc(a, b, func(a, b mutant) bool { return a.pkg == b.pkg && a.key() == b.key() })
	}
	list := orderMutants(3, all)
	if again := orderMutants(3, all); !equal(list, again) {
		t.Errorf("%v, then %v", list, again)
	}
	if other := orderMutants(4, all); equal(list, other) {
		t.Error("two seeds, one order")
	}
	first := 0 // of the mutant of b, whose share is a tenth of that of a
	for seed := range uint64(1000) {
		if orderMutants(seed, all)[0].pkg == "b" {
			first++
		}
	}
	if first < 60 || first > 125 {
		t.Errorf("the only mutant of b was first %d times, want about 91", first)
	}
	without := slices.DeleteFunc(slices.Clone(list), func(m mutant) bool { return m.pkg == "b" })
	if delete(all, "b"); !equal(orderMutants(3, all), without) {
		t.Error("the order changed with another package")
	}
}

// TestResults: results are read back by seed.
func TestResults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results")
	m := mutant{kind: andOr, file: "a.go", text: "a && b", nth: 2}
	want := result{text: byOthers, test: "TestX"}
	if err := appendResult(file, 3, m, want, 1); err != nil {
		t.Fatal(err)
	}
	for seed, n := range map[uint64]int{3: 1, 4: 0} {
		if known, err := readResults(file, seed); err != nil || len(known) != n || n == 1 && known[m.key()] != want {
			t.Errorf("seed %d: %v, %v", seed, known, err)
		}
	}
}

// TestKillOrphans kills a process that has left the group of its parent.
func TestKillOrphans(t *testing.T) {
	l, err := newLab(".")
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	text, err := exec.Command("setsid", "--fork", "sh", "-c", "echo $$; exec sleep 600 >&- 2>&-").Output()
	if err != nil {
		t.Fatal(err)
	}
	killOrphans()
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || syscall.Kill(pid, 0) == nil {
		t.Errorf("%q, %v: it is still there", text, err)
	}
}
