// Package bench is the report of the benchmark: tables whose rows have gates, growth curves, and their output as text,
// JSON and charts.
//
// Machines differ and are noisy. So every gate is a ratio or a difference of values measured side by side in one run,
// in interleaved rounds. A row's value is the median of its rounds.
package bench

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Row is one row of a table: what is measured and which values are good.
type Row struct {
	// ID names the row in JSON and in the code that measures it, e.g. "proxy.cpu".
	ID    string `json:"id"`
	Table string `json:"table"`
	What  string `json:"what"`
	// Unit is the unit of the value: "x" for "times as good", "" for a plain ratio.
	Unit string `json:"unit"`
	// Gate is the value to reach, Stretch a better one to aim for. Both zero: the row is for information only.
	Gate    float64 `json:"gate,omitempty"`
	Stretch float64 `json:"stretch,omitempty"`
	// Less means that smaller is better.
	Less bool `json:"less_is_better,omitempty"`
}

// Result is a row with what was measured.
type Result struct {
	Row
	Rounds []float64 `json:"rounds,omitempty"`
	Median float64   `json:"median"`
	// Detail gives the absolute figures behind the value.
	Detail string `json:"detail,omitempty"`
	// Missing says why there is no value.
	Missing string `json:"missing,omitempty"`
	Verdict string `json:"verdict"`
}

// Curve shows how quantities grow with X: a column per line, a row per x.
type Curve struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	// X is what grows.
	X     string `json:"x"`
	Lines []Line `json:"lines"`
}

// Line is one quantity of a curve.
type Line struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Point is one measured point.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// Report is the result of one run of the benchmark.
type Report struct {
	Started time.Time         `json:"started"`
	Seconds float64           `json:"seconds"`
	Machine map[string]string `json:"machine"`
	Quick   bool              `json:"quick"`
	Results []Result          `json:"results"`
	Curves  []Curve           `json:"curves"`
	Notes   []string          `json:"notes,omitempty"`
}

// The verdicts.
const (
	Ahead   = "stretch"
	Pass    = "pass"
	Fail    = "FAIL"
	Informs = "-"
	LeftOut = "left out"
)

// Judge computes the median and the verdict.
func (r *Result) Judge() {
	if len(r.Rounds) == 0 {
		r.Verdict = LeftOut
		if r.Missing == "" {
			r.Missing = "not measured"
		}
		return
	}
	r.Median = Median(r.Rounds)
	reached := func(want float64) bool {
		if r.Less {
			return r.Median <= want
		}
		return r.Median >= want
	}
	switch {
	case r.Gate == 0 && r.Stretch == 0:
		r.Verdict = Informs
	case reached(r.Stretch):
		r.Verdict = Ahead
	case reached(r.Gate):
		r.Verdict = Pass
	default:
		r.Verdict = Fail
	}
}

// Collector gathers the readings of rounds. The zero Collector is ready.
type Collector struct {
	rounds  map[string][]float64
	details map[string]string
	missing map[string]string
}

// Add records the value of a row in one round. The detail of the last round is kept.
func (c *Collector) Add(id string, value float64, detail string, args ...any) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	if c.rounds == nil {
		c.rounds, c.details = map[string][]float64{}, map[string]string{}
	}
	c.rounds[id] = append(c.rounds[id], value)
	c.details[id] = fmt.Sprintf(detail, args...)
}

// Miss records why rows have no value.
func (c *Collector) Miss(why string, ids ...string) {
	if c.missing == nil {
		c.missing = map[string]string{}
	}
	for _, id := range ids {
		c.missing[id] = why
	}
}

// Results are the rows of the table that were added or missed, in the table's order.
func (c *Collector) Results() []Result {
	var out []Result
	for _, row := range Rows {
		_, missing := c.missing[row.ID]
		if len(c.rounds[row.ID]) == 0 && !missing {
			continue
		}
		r := Result{Row: row, Rounds: c.rounds[row.ID], Detail: c.details[row.ID], Missing: c.missing[row.ID]}
		r.Judge()
		out = append(out, r)
	}
	return out
}

// Merge adds the results of another part of the benchmark.
func (r *Report) Merge(o Report) {
	r.Results = append(r.Results, o.Results...)
	r.Curves = append(r.Curves, o.Curves...)
	r.Notes = append(r.Notes, o.Notes...)
}

// Sort puts the results in the order of the tables.
func (r *Report) Sort() {
	at := map[string]int{}
	for i, row := range Rows {
		at[row.ID] = i
	}
	slices.SortStableFunc(r.Results, func(a, b Result) int { return at[a.ID] - at[b.ID] })
}

// Median is the middle value, or the mean of the two middle ones, or NaN if there are none.
func Median(v []float64) float64 { return Quantile(v, 0.5) }

// Quantile is the q-quantile with linear interpolation, or NaN if there are no values.
func Quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	at := q * float64(len(s)-1)
	low := int(at)
	if low+1 >= len(s) {
		return s[low]
	}
	return s[low] + (at-float64(low))*(s[low+1]-s[low])
}
