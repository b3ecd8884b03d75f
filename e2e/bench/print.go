package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Print writes the tables as text.
func Print(w io.Writer, r Report) error {
	table := ""
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, res := range r.Results {
		if res.Table != table {
			table = res.Table
			fmt.Fprintf(t, "\n%s\tgate\tstretch\tmeasured\t\tfigures\n", strings.ToUpper(table))
		}
		if res.Verdict == LeftOut {
			fmt.Fprintf(t, "%s\t%s\t%s\t\t%s\t%s\n", res.What, res.goal(res.Gate), res.goal(res.Stretch), res.Verdict, res.Missing)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", res.What, res.goal(res.Gate), res.goal(res.Stretch), withUnit(res.Median, res.Unit), res.Verdict, res.Detail)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range r.Curves {
		if err := printCurve(w, c); err != nil {
			return err
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, "\nnote: "+n)
	}
	_, err := fmt.Fprintf(w, "\n%s; %.0f s\n", r.summary(), r.Seconds)
	return err
}

// goal is a gate or stretch with its unit, and a sign for the direction that is better.
func (r Row) goal(v float64) string {
	if v == 0 {
		return ""
	}
	sign := "≥ "
	if r.Less {
		sign = "≤ "
	}
	return sign + withUnit(v, r.Unit)
}

func withUnit(v float64, unit string) string {
	text := strconv.FormatFloat(v, 'g', 3, 64)
	if v >= 1000 {
		text = strconv.FormatFloat(v, 'f', 0, 64)
	}
	switch {
	case unit == "":
		return text
	case strings.HasPrefix(unit, "x"):
		return text + unit
	}
	return text + " " + unit
}

func printCurve(w io.Writer, c Curve) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\n%s\n%s\t", c.Title, c.X)
	for _, l := range c.Lines {
		fmt.Fprint(t, l.Name+"\t")
	}
	fmt.Fprintln(t)
	for _, x := range c.xs() {
		fmt.Fprint(t, strconv.FormatFloat(x, 'f', -1, 64)+"\t")
		for _, l := range c.Lines {
			fmt.Fprint(t, l.at(x)+"\t")
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// xs are all x of all lines, in order of appearance.
func (c Curve) xs() []float64 {
	var out []float64
	seen := map[float64]bool{}
	for _, l := range c.Lines {
		for _, p := range l.Points {
			if !seen[p.X] {
				seen[p.X] = true
				out = append(out, p.X)
			}
		}
	}
	return out
}

func (l Line) at(x float64) string {
	for _, p := range l.Points {
		if p.X == x {
			return withUnit(p.Y, "")
		}
	}
	return "-"
}

// summary counts the verdicts.
func (r Report) summary() string {
	n := map[string]int{}
	for _, res := range r.Results {
		n[res.Verdict]++
	}
	text := fmt.Sprintf("%d rows at stretch, %d at gate, %d below", n[Ahead], n[Pass], n[Fail])
	if n[LeftOut] > 0 {
		text += fmt.Sprintf(", %d left out", n[LeftOut])
	}
	return text
}
