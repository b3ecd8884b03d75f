// Command mutants measures what the tests notice: it changes single places of the product, and runs the tests of the
// changed package and then those of the packages that import it. A change that no test fails on is printed.
//
//	mutants -seed 7 -n 20            draws 20 mutants
//	mutants -for 2m -packages pool   draws as many as fit into two minutes, in packages whose path matches
//
// The seed decides which package, which kind in it and which place are drawn; a package counts by the root of its number
// of places. Mutants in reviewed.txt are not drawn: somebody has judged that no test should fail on them.
package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// reviewed has a line for each mutant that no test should fail on: kind, file, the line as it is, and the reason,
// separated by tabs.
//
//go:embed reviewed.txt
var reviewed string

const module = "github.com/codeforge-mcp/codeforge/"

func main() {
	seed := flag.Uint64("seed", 1, "the `number` that decides what is drawn")
	n := flag.Int("n", 20, "how many mutants are drawn")
	most := flag.Duration("for", 0, "end after this `time`, if it is not 0")
	packages := flag.String("packages", ".", "draw only in packages whose path matches this `expression`")
	root := flag.String("root", "..", "the root of the source tree")
	flag.Parse()
	if err := run(*root, *seed, *n, *most, *packages, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// lab is where mutants are tried.
type lab struct {
	root, dir string
	users     map[string][]string // the folders of the packages that import one, by its folder
}

func run(root string, seed uint64, n int, most time.Duration, packages string, out io.Writer) error {
	match, err := regexp.Compile(packages)
	if err != nil {
		return err
	}
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	l := &lab{root: root, users: map[string][]string{}}
	if l.dir, err = os.MkdirTemp("", "mutants-"); err != nil {
		return err
	}
	defer os.RemoveAll(l.dir)
	all, err := l.list(match)
	if err != nil {
		return err
	}
	began := time.Now()
	random := rand.New(rand.NewPCG(seed, 0))
	fmt.Fprintf(out, "seed %d, %d packages\n", seed, len(all))
	results := map[string]map[string]int{} // package or kind, then result
	count, seen := 0, map[string]bool{}
	for tries := 0; count < n && tries < 20*n && (most == 0 || time.Since(began) < most); tries++ {
		m, ok := draw(random, all)
		key := fmt.Sprint(m.file, m.from, m.kind, m.to)
		if !ok || seen[key] {
			continue
		}
		seen[key] = true
		result, err := l.try(m)
		if err != nil {
			return err
		}
		if result == "" { // it does not compile
			continue
		}
		count++
		for _, key := range []string{m.kind, m.pkg, "all"} {
			if results[key] == nil {
				results[key] = map[string]int{}
			}
			results[key][result]++
		}
		if result == survived {
			fmt.Fprintf(out, "survived: %s:%d %s: %s\n", m.file, m.line, m.kind, m.text)
		}
	}
	printResults(out, results)
	fmt.Fprintf(out, "%d mutants, %.1f s each\n", count, time.Since(began).Seconds()/max(1, float64(count)))
	return nil
}

// list lists the mutants of each package that has tests, without those in reviewed.
func (l *lab) list(match *regexp.Regexp) (map[string][]mutant, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,GoFiles,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = l.root
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	all := map[string][]mutant{}
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		var p struct {
			ImportPath                                                             string
			GoFiles, Imports, TestImports, XTestImports, TestGoFiles, XTestGoFiles []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		pkg := strings.TrimPrefix(p.ImportPath, module)
		if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
			continue
		}
		for _, of := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(p.Imports, p.TestImports, p.XTestImports)))) {
			of = strings.TrimPrefix(of, module)
			l.users[of] = append(l.users[of], pkg)
		}
		if !match.MatchString(pkg) {
			continue
		}
		for _, name := range p.GoFiles {
			file := path.Join(pkg, name)
			source, err := os.ReadFile(filepath.Join(l.root, file))
			if err != nil {
				return nil, err
			}
			list, err := findMutants(file, source)
			if err != nil {
				return nil, err
			}
			for _, m := range list {
				if m.pkg = pkg; !isReviewed(m) {
					all[pkg] = append(all[pkg], m)
				}
			}
		}
	}
}

func isReviewed(m mutant) bool {
	return strings.Contains("\n"+reviewed, "\n"+strings.Join([]string{m.kind, m.file, m.text}, "\t")+"\t")
}

// draw draws a package, then a kind, then a mutant.
func draw(random *rand.Rand, all map[string][]mutant) (m mutant, ok bool) {
	packages := slices.Sorted(maps.Keys(all))
	sum := 0.0
	for _, p := range packages {
		sum += math.Sqrt(float64(len(all[p])))
	}
	at := random.Float64() * sum
	for _, p := range packages {
		if at -= math.Sqrt(float64(len(all[p]))); at > 0 {
			continue
		}
		kinds := map[string][]mutant{}
		for _, m := range all[p] {
			kinds[m.kind] = append(kinds[m.kind], m)
		}
		names := slices.Sorted(maps.Keys(kinds))
		of := kinds[names[random.IntN(len(names))]]
		return of[random.IntN(len(of))], true
	}
	return mutant{}, false
}

// The results of a mutant.
const (
	killed   = "killed"
	byOthers = "killed by dependants"
	survived = "survived"
)

// mostUsers bounds the packages whose tests run on a mutant that the tests of its own package do not notice.
const mostUsers = 5

// try runs the tests on a mutant. The result is empty if it does not compile.
func (l *lab) try(m mutant) (string, error) {
	source, err := os.ReadFile(filepath.Join(l.root, m.file))
	if err != nil {
		return "", err
	}
	changed := string(source[:m.from]) + m.new + string(source[m.to:])
	to, overlay := filepath.Join(l.dir, "mutant.txt"), filepath.Join(l.dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(l.root, m.file): to}})
	if err := errors.Join(err, os.WriteFile(to, []byte(changed), 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		return "", err
	}
	if l.execute(time.Minute, "build", "-overlay", overlay, "-o", os.DevNull, "./"+m.pkg) != nil {
		return "", nil
	}
	for i, pkg := range append([]string{m.pkg}, l.users[m.pkg][:min(mostUsers, len(l.users[m.pkg]))]...) {
		if l.execute(5*time.Minute, "test", "-vet=off", "-failfast", "-timeout", "4m", "-overlay", overlay, "./"+pkg) != nil {
			return []string{killed, byOthers}[min(i, 1)], nil
		}
	}
	return survived, nil
}

func (l *lab) execute(most time.Duration, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = l.root
	return cmd.Run()
}

// printResults prints the score of each kind and package.
func printResults(out io.Writer, results map[string]map[string]int) {
	for _, key := range slices.SortedFunc(maps.Keys(results), func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(a, "/"), strings.Count(b, "/")), cmp.Compare(a, b))
	}) {
		r := results[key]
		caught := r[killed] + r[byOthers]
		fmt.Fprintf(out, "%-40s %3d of %3d, %d by dependants\n", key, caught, caught+r[survived], r[byOthers])
	}
}
