// Command mutants measures what the tests notice. It changes single places of the product, and runs the tests of the
// changed package. If they pass, it runs those of packages that import it, but never those of programs or of e2e, which
// take minutes. It prints each change that no test fails on.
//
// All drawn mutants are compiled into the same programs, each behind a switch. A constant that Go needs while it compiles
// has no switch, so its mutant is built alone. The programs take minutes for many packages, and each mutant then a second.
//
//	mutants -seed 7 -n 20                        tries the first 20 mutants of seed 7
//	mutants -for 2m -packages pool               tries mutants for two minutes, in packages whose path matches
//	mutants -seed 7 -n 150 -for 6m -results F    goes on where an earlier call with F ended, and prints the score of both
//
// The seed orders all mutants. A package counts by the root of its number of mutants, and each kind in it counts the same.
// Mutants in reviewed.txt are drawn but not tried: a person has judged that no test should fail on them. Delete a line of
// the file F to try its mutant again.
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/importer"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// reviewed has a line for each mutant that no test should fail on: its key, and the reason, separated by tabs.
//
//go:embed reviewed.txt
var reviewed string

const module = "github.com/codeforge-mcp/codeforge/"

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "the `number` that decides which mutants come first")
	flag.IntVar(&o.n, "n", 20, "how many mutants are drawn")
	flag.DurationVar(&o.most, "for", 0, "end after this `time`, if it is not 0")
	flag.IntVar(&o.users, "dependants", 2, "how many packages that import the changed one are tested")
	flag.StringVar(&o.packages, "packages", ".", "draw only in packages whose path matches this `expression`")
	flag.StringVar(&o.results, "results", "", "the `file` with the results of earlier calls, which gets those of this one")
	flag.StringVar(&o.root, "root", "..", "the root of the source tree")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type options struct {
	seed                    uint64
	n                       int
	users                   int
	most                    time.Duration
	packages, results, root string
}

func run(ctx context.Context, o options, out io.Writer) error {
	match, err := regexp.Compile(o.packages)
	if err != nil {
		return err
	}
	l, err := newLab(o.root)
	if err != nil {
		return err
	}
	defer l.close()
	all, err := l.listMutants(ctx, match)
	if err != nil {
		return err
	}
	known, err := readResults(o.results, o.seed)
	if err != nil {
		return err
	}
	if o.most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.most)
		defer cancel()
	}
	fmt.Fprintf(out, "seed %d, %d packages\n", o.seed, len(all))
	scores := map[string]score{} // by package or kind
	began, tried, counted := time.Now(), 0, 0
	drawn, err := l.drawMutants(orderMutants(o.seed, all), known, o.n)
	if err != nil {
		return err
	}
	for _, m := range drawn {
		r, ok := known[m.key()]
		if !ok && ctx.Err() != nil {
			break
		}
		if !ok {
			start := time.Now()
			r, err = l.tryMutant(ctx, m, o.users)
			if ctx.Err() != nil { // it ended the compiler or the tests, so they say nothing
				continue
			}
			if err != nil {
				return err
			}
			if err := appendResult(o.results, o.seed, m, r, time.Since(start)); err != nil {
				return err
			}
			tried++
		}
		counted++
		for _, key := range []string{m.kind, m.pkg, "all"} {
			if scores[key] == nil {
				scores[key] = score{}
			}
			scores[key][r.text]++
		}
		if r.text == survived || r.text == unsound {
			fmt.Fprintf(out, "%s: %s:%d %s: %s %s\n", r.text, m.file, m.line, m.kind, m.text, r.test)
		}
	}
	printScores(out, scores)
	fmt.Fprintf(out, "%d mutants, %d tried now, %.1f s each\n", counted, tried, time.Since(began).Seconds()/max(1, float64(tried)))
	return nil
}

// drawMutants returns the first n mutants that compile, and puts those without a result behind switches. It adds the
// result of reviewed ones.
func (l *lab) drawMutants(order []mutant, known map[string]result, n int) (drawn []mutant, err error) {
	var open []int
	for _, m := range order {
		if len(drawn) == n {
			break
		}
		r, ok := known[m.key()]
		if isReviewed(m) {
			known[m.key()] = result{text: skipped}
		} else if !ok {
			s, err := l.loadSource(m.pkg)
			if err != nil {
				return nil, err
			}
			if !s.compiles(m) {
				continue
			}
			open = append(open, len(drawn))
		} else if r.text == noBuild {
			continue
		}
		drawn = append(drawn, m)
	}
	var list []*mutant
	for _, i := range open {
		list = append(list, &drawn[i])
	}
	return drawn, l.writeSwitches(list)
}

// isReviewed reports whether reviewed.txt has a mutant.
func isReviewed(m mutant) bool {
	return strings.Contains("\n"+reviewed, "\n"+m.key()+"\t")
}

// key names a mutant by kind, file and the text of its line, so it stays the same if other lines change. A count tells
// apart the file's mutants with the same kind and text.
func (m mutant) key() string {
	return strings.Join([]string{m.kind, m.file, m.text, strconv.Itoa(m.nth)}, "\t")
}

// orderMutants draws without replacement, each mutant with its weight (Efraimidis and Spirakis 2006). Unlike a sequence
// of random numbers, the order of two mutants does not depend on other mutants.
func orderMutants(seed uint64, all map[string][]mutant) []mutant {
	at := map[string]float64{}
	var list []mutant
	for _, of := range all {
		kinds := map[string]float64{}
		for _, m := range of {
			kinds[m.kind]++
		}
		for _, m := range of {
			weight := math.Sqrt(float64(len(of))) / float64(len(kinds)) / kinds[m.kind]
			sum := sha256.Sum256(fmt.Appendf(nil, "%d\t%s", seed, m.key()))
			at[m.key()] = -math.Log1p(-math.Ldexp(float64(binary.BigEndian.Uint64(sum[:])>>11), -53)) / weight
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b mutant) int { return cmp.Compare(at[a.key()], at[b.key()]) })
	return list
}

// result is the end of a mutant, with the first test that failed.
type result struct{ text, test string }

// The texts of results.
const (
	killed   = "killed"
	byOthers = "killed by dependants"
	timedOut = "timed out"
	survived = "survived"
	skipped  = "reviewed"
	noBuild  = "does not compile"
	unsound  = "fails without a mutant too"
)

// readResults reads what appendResult has written with a seed. The file may be missing.
func readResults(file string, seed uint64) (map[string]result, error) {
	known := map[string]result{}
	text, err := os.ReadFile(file)
	if err != nil && file != "" && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) == 8 && f[0] == strconv.FormatUint(seed, 10) {
			known[strings.Join(f[4:], "\t")] = result{text: f[1], test: f[2]}
		}
	}
	return known, nil
}

func appendResult(file string, seed uint64, m mutant, r result, took time.Duration) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d\t%s\t%s\t%.1f\t%s\n", seed, r.text, r.test, took.Seconds(), m.key())
	return errors.Join(err, f.Close())
}

// score counts results by their text.
type score map[string]int

// printScores prints the score of each kind and package.
func printScores(out io.Writer, scores map[string]score) {
	for _, key := range slices.SortedFunc(maps.Keys(scores), func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(a, "/"), strings.Count(b, "/")), cmp.Compare(a, b))
	}) {
		s := scores[key]
		caught := s[killed] + s[byOthers] + s[timedOut]
		fmt.Fprintf(out, "%-40s %3d of %3d caught, %d by dependants, %d by the time limit; %d reviewed\n",
			key, caught, caught+s[survived], s[byOthers], s[timedOut], s[skipped])
	}
}

// listMutants lists the mutants of each package that has tests.
func (l *lab) listMutants(ctx context.Context, match *regexp.Regexp) (map[string][]mutant, error) {
	cmd := l.newCommand(ctx, "", "go", "list", "-export", "-deps",
		"-json=ImportPath,Export,GoFiles,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles", "./...")
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	all, exports := map[string][]mutant{}, map[string]string{}
	l.importer = importer.ForCompiler(l.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		var p struct {
			ImportPath, Export                                                     string
			GoFiles, Imports, TestImports, XTestImports, TestGoFiles, XTestGoFiles []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		pkg, ok := strings.CutPrefix(p.ImportPath, module)
		if !ok || len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
			continue
		}
		l.files[pkg] = p.GoFiles
		imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		for _, of := range slices.Compact(slices.Sorted(slices.Values(imports))) {
			if of = strings.TrimPrefix(of, module); of != pkg && !strings.Contains(pkg, "/cmd/") {
				l.users[of] = append(l.users[of], pkg)
			}
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
				m.pkg = pkg
				all[pkg] = append(all[pkg], m)
			}
		}
	}
}
