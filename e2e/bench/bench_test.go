package bench

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		q    float64
		want float64
	}{
		{[]float64{3}, 0.5, 3}, {[]float64{3, 1, 2}, 0.5, 2}, {[]float64{4, 1}, 0.5, 2.5},
		{[]float64{5, 1, 2, 3, 4}, 1, 5}, {[]float64{5, 1, 2, 3, 4}, 0, 1}, {[]float64{0, 10}, 0.99, 9.9},
	} {
		if got := Quantile(c.v, c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("Quantile(%v, %v) = %v, want %v", c.v, c.q, got, c.want)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

func TestJudge(t *testing.T) {
	more, less := Row{Gate: 2, Stretch: 3}, Row{Gate: 5, Stretch: 2, Less: true}
	for _, c := range []struct {
		row    Row
		rounds []float64
		want   string
	}{
		{more, []float64{1, 3, 9}, Ahead}, {more, []float64{2, 2, 9}, Pass}, {more, []float64{9, 1.99, 1.9}, Fail},
		{less, []float64{2, 1, 9}, Ahead}, {less, []float64{2.1, 5, 5}, Pass}, {less, []float64{5.1, 5.1, 0}, Fail},
		{Row{}, []float64{7}, Informs}, {more, nil, LeftOut},
	} {
		r := Result{Row: c.row, Rounds: c.rounds}
		if r.Judge(); r.Verdict != c.want {
			t.Errorf("%+v with %v: %s, want %s", c.row, c.rounds, r.Verdict, c.want)
		}
	}
}

// TestRows checks that names are unique and that no stretch is easier than its gate.
func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rows {
		if seen[r.ID] || r.ID == "" || r.What == "" || r.Table == "" {
			t.Errorf("row %+v: no name, or one that another has", r)
		}
		seen[r.ID] = true
		if r.Less && r.Stretch > r.Gate || !r.Less && r.Stretch < r.Gate {
			t.Errorf("%s: the stretch %v is easier than the gate %v", r.ID, r.Stretch, r.Gate)
		}
	}
}

// TestGates holds the gates and stretches that docs/contribute/performance.md lists to those of the rows.
func TestGates(t *testing.T) {
	page, err := os.ReadFile("../../docs/contribute/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	number, line := regexp.MustCompile(`[\d.]+`), regexp.MustCompile(`(?m)^\|[^|]+\| ([^|]*\d[^|]*) \| ([^|]*\d[^|]*) \|`)
	for heading, tables := range map[string][]string{
		"execute_code": {tableRuns}, "Python": {tablePython}, "MCP servers": {tableServers},
		"The proxy": {tableProxy, tableIron, tableEngine},
	} {
		_, section, _ := strings.Cut(string(page), "\n## "+heading+"\n")
		section, _, _ = strings.Cut(section, "\n\n") // the table follows the heading
		have, want := map[string]bool{}, map[string]bool{}
		for _, m := range line.FindAllStringSubmatch(section, -1) {
			gates, stretches := number.FindAllString(m[1], -1), number.FindAllString(m[2], -1)
			for i := range min(len(gates), len(stretches)) {
				have[gates[i]+" "+stretches[i]] = true
			}
		}
		for _, r := range Rows {
			if slices.Contains(tables, r.Table) && r.Gate != 0 {
				want[fmt.Sprint(r.Gate, " ", r.Stretch)] = true
			}
		}
		if !maps.Equal(have, want) {
			t.Errorf("%s: docs/contribute/performance.md has the gates and stretches\n%v, the benchmark\n%v", heading, have, want)
		}
	}
}

func TestReport(t *testing.T) {
	var c Collector
	for _, v := range []float64{1, 30, 20} {
		c.Add("proxy.rps", v, "detail %v", v) // the last detail counts
	}
	c.Add("proxy.cpu", math.Inf(1), "never shown")
	c.Miss("no peer", "proxy.tls")
	r := Report{Results: c.Results(), Notes: []string{"a note"}, Curves: []Curve{{ID: "c", Title: "A curve", X: "size", Lines: []Line{{Name: "ms", Points: []Point{{1, 2}, {1000, 3}}}}}}}
	if len(r.Results) != 2 || r.Results[0].Median != 20 || r.Results[0].Verdict != Ahead || r.Results[1].Verdict != LeftOut {
		t.Fatalf("results %+v", r.Results)
	}
	var out bytes.Buffer
	if err := Print(&out, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"20x", "≥ 14x", "detail 20", "no peer", "A curve", "1000", "a note", "1 rows at stretch, 0 at gate, 0 below, 1 left out"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, out.String())
		}
	}
	dir := t.TempDir()
	if err := Pictures(dir, r); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bench.svg", "growth-c.svg"} {
		if svg, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Contains(svg, []byte("<svg")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPrintVerdicts: each row of the text has its own verdict, and the last line counts each kind.
func TestPrintVerdicts(t *testing.T) {
	var r Report
	for _, c := range []struct {
		what   string
		rounds []float64
	}{{"far ahead", []float64{4}}, {"good enough", []float64{2.5}}, {"too slow", []float64{1}}, {"not tried", nil}} {
		res := Result{Row: Row{Table: "proxy", What: c.what, Gate: 2, Stretch: 3, Unit: "x"}, Rounds: c.rounds}
		res.Judge()
		r.Results = append(r.Results, res)
	}
	var out bytes.Buffer
	if err := Print(&out, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^far ahead +≥ 2x +≥ 3x +4x +stretch`, `(?m)^good enough +≥ 2x +≥ 3x +2.5x +pass`, `(?m)^too slow +≥ 2x +≥ 3x +1x +FAIL`,
		`(?m)^not tried +≥ 2x +≥ 3x +left out +not measured`, `1 rows at stretch, 1 at gate, 1 below, 1 left out`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no line matches %s in\n%s", want, &out)
		}
	}
}
