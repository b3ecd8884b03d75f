// Package micro runs the Go micro-benchmarks of the modules and reads what they print.
package micro

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
)

// suite is the benchmarks of one package.
type suite struct{ module, pkg, pattern string }

// suites are those that the table and the notes are made of.
var suites = []suite{
	{"proxy", "./internal/engine", "Reader/(patterns=8|patterns=64|forms=8)$/(json|binary)"},
	{"proxy", "./internal/scrub", "Body"},
	{"proxy", "./internal/swap", "Request"},
	{"proxy", "./internal/policy", "Decide"},
	{"proxy", "./internal/authority", "Leaf"},
	{"catalog", ".", "Load|Match"},
}

// Benchmark is one line of a benchmark's output.
type Benchmark struct {
	Name string
	// NsPerOp, BytesPerOp, Allocs and MBPerSecond are as `go test -bench -benchmem` prints them.
	NsPerOp, BytesPerOp, Allocs, MBPerSecond float64
}

// Run runs all suites count times and gives the rows of the engine, and every benchmark as lines for people.
func Run(ctx context.Context, root string, count int, benchtime string) (bench.Report, error) {
	col := &bench.Collector{}
	var report bench.Report
	for _, s := range suites {
		log.Printf("micro-benchmarks: %s %s", s.module, s.pkg)
		found, err := s.run(ctx, root, count, benchtime)
		if err != nil {
			return report, err
		}
		for _, b := range found {
			switch {
			case strings.Contains(b.Name, "patterns=8/json"):
				col.Add("engine.8", b.MBPerSecond/1e3, "JSON text, one core")
			case strings.Contains(b.Name, "patterns=64/json"):
				col.Add("engine.64", b.MBPerSecond/1e3, "JSON text, one core")
			}
		}
		report.Micro = append(report.Micro, lines(s, found)...)
	}
	report.Results = col.Results()
	return report, nil
}

// run runs one suite.
func (s suite) run(ctx context.Context, root string, count int, benchtime string) ([]Benchmark, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", s.pattern, "-benchmem", "-benchtime", benchtime, "-count", strconv.Itoa(count), "-cpu", "1", s.pkg) //nolint:gosec // fixed
	cmd.Dir = filepath.Join(root, s.module)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w\n%s", strings.Join(cmd.Args, " "), s.module, err, out)
	}
	return parse(out), nil
}

// parse reads the output of `go test -bench`.
func parse(out []byte) []Benchmark {
	var all []Benchmark
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		f := strings.Fields(sc.Text())
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		b := Benchmark{Name: strings.TrimPrefix(f[0], "Benchmark")}
		for i := 2; i+1 < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				continue
			}
			switch f[i+1] {
			case "ns/op":
				b.NsPerOp = v
			case "B/op":
				b.BytesPerOp = v
			case "allocs/op":
				b.Allocs = v
			case "MB/s":
				b.MBPerSecond = v
			}
		}
		all = append(all, b)
	}
	return all
}

// lines are the medians of a suite's benchmarks.
func lines(s suite, found []Benchmark) []bench.Micro {
	var out []bench.Micro
	by := map[string][]Benchmark{}
	var order []string
	for _, b := range found {
		if by[b.Name] == nil {
			order = append(order, b.Name)
		}
		by[b.Name] = append(by[b.Name], b)
	}
	median := func(name string, of func(Benchmark) float64) float64 {
		var v []float64
		for _, b := range by[name] {
			v = append(v, of(b))
		}
		return bench.Median(v)
	}
	for _, name := range order {
		out = append(out, bench.Micro{
			Name:    s.module + strings.TrimPrefix(s.pkg, ".") + " " + name,
			NsPerOp: median(name, func(b Benchmark) float64 { return b.NsPerOp }), MBPerSecond: median(name, func(b Benchmark) float64 { return b.MBPerSecond }),
			BytesPerOp: median(name, func(b Benchmark) float64 { return b.BytesPerOp }), AllocsPerOp: median(name, func(b Benchmark) float64 { return b.Allocs }),
		})
	}
	return out
}
