package main

import (
	"fmt"
	"go/importer"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// compared has nested mutants of each kind. Its function counts how often it evaluates g.
const compared = `package p

import (
	"errors"
	"time"
)

const fixed = 2 // it cannot be switched

func F(a, b int) (out []int, err error) {
	defer func() { out = append(out, -7) }()
	calls := 0
	g := func(x int) int { calls++; return x }
	var d time.Duration = 3 << 10
	if g(a) < b || g(b) == 1 && !(g(a) >= fixed) {
		out = append(out, int(d), 64<<2)
	} else if a != b {
		a++
	}
	if calls = calls + 1; a > b && g(1) <= b {
		out = append(out, a)
	}
	if b == 3 {
		err = errors.New("three")
	}
	if err != nil {
		return out, err
	}
	for i := range 3 {
		if i == b {
			break
		}
		switch i {
		case 1:
			continue
		}
		out = append(out, 1+i%2)
	}
	if a == 0 {
		return nil, nil
	}
	return append(out, calls), nil
}
`

// TestSwitches compares each mutant behind its switch with the mutant alone.
func TestSwitches(t *testing.T) {
	set, exports := token.NewFileSet(), map[string]string{}
	text, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "errors", "time", "cmp").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		pkg, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[pkg] = file
	}
	dir := t.TempDir()
	l := &lab{root: dir, dir: dir, set: set, importer: importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }), sources: map[string]*source{}, files: map[string][]string{"off": {"p.go"}}}
	write := func(file, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("off/p.go", compared)
	s, err := l.loadSource("off")
	if err != nil {
		t.Fatal(err)
	}
	all, err := findMutants("off/p.go", []byte(compared))
	if err != nil {
		t.Fatal(err)
	}
	var list []*mutant
	for _, m := range all {
		if m.pkg = "off"; s.compiles(m) {
			list = append(list, &m)
		}
	}
	if err := l.writeSwitches(list); err != nil {
		t.Fatal(err)
	}
	imports, calls := "", ""
	var alone []string
	for _, m := range list {
		if m.id == 0 {
			alone = append(alone, m.kind+": "+m.text)
			continue
		}
		pkg := fmt.Sprintf("m%d", m.id)
		write(pkg+"/p.go", s.applyAlone(*m))
		imports += fmt.Sprintf("import %s \"m/%[1]s\"\n", pkg)
		calls += fmt.Sprintf("\tcompare(%q, %q, %s.F)\n", m.kind+": "+m.text, switchName(m.id), pkg)
	}
	if want := []string{"const: const fixed = 2 // it cannot be switched"}; len(list) < 45 || !slices.Equal(alone, want) {
		t.Errorf("%d mutants, alone: %q, want %q", len(list), alone, want)
	}
	write("switched/turn.go", "package p\n\nfunc Turn(name string) { mutantOn = name }\n")
	for _, name := range []string{"p.go", switchFile} {
		if err := os.Rename(filepath.Join(dir, "switched/off", name), filepath.Join(dir, "switched", name)); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module m\n\ngo 1.26\n")
	write("main.go", `package main

import "fmt"
import "m/off"
import switched "m/switched"
`+imports+`
func try(f func(a, b int) ([]int, error), a, b int) (out string) {
	defer func() {
		if v := recover(); v != nil {
			out = fmt.Sprint("panic ", v)
		}
	}()
	list, err := f(a, b)
	return fmt.Sprint(list, err)
}

func compare(name, id string, alone func(a, b int) ([]int, error)) {
	same := true
	for a := range 5 {
		for b := range 5 {
			switched.Turn("`+switchOff+`")
			want := try(p.F, a, b)
			if got := try(switched.F, a, b); got != want {
				fmt.Println(name, a, b, "without a mutant:", got, "want", want)
			}
			mutated := try(alone, a, b)
			switched.Turn(id)
			if got := try(switched.F, a, b); got != mutated {
				fmt.Println(name, a, b, "switched:", got, "want", mutated)
			}
			same = same && mutated == want
		}
	}
	if same {
		fmt.Println("equivalent:", name)
	}
}

func main() {
`+calls+"}\n")
	cmd := exec.Command("go", "run", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil || string(text) != "" {
		t.Errorf("%v\n%s", err, text)
	}
}
