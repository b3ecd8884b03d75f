package bench

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// box is where something is drawn, in points, y up from the lower edge.
type box struct {
	what       string
	x, y, w, h float64
}

func (a box) overlaps(b box) bool {
	return a.x < b.x+b.w && b.x < a.x+a.w && a.y < b.y+b.h && b.y < a.y+a.h
}

// TestPicture draws every row and checks that no text touches a bar, another text or an edge, even with a wide font.
func TestPicture(t *testing.T) {
	r := Report{Machine: map[string]string{"cpus": "128", "arch": "amd64", "cpu": "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"}}
	for i, row := range Rows {
		res := Result{Row: row, Rounds: []float64{[]float64{row.Gate / 2, row.Gate, row.Gate * 100}[i%3]}}
		res.Judge()
		r.Results = append(r.Results, res)
	}
	r.Results = append(r.Results, Result{Row: Row{Table: tableEngine, What: "not measured", Gate: 1}, Verdict: LeftOut})
	texts, bars := drawn(t, r)
	page, bars := bars[0], bars[1:]
	if page.what != "fill:#FFFFFF" || page.x != 0 || page.y != 0 || page.w != 600 || page.h < 400 {
		t.Errorf("the background is %+v", page)
	}
	for i, a := range texts {
		if a.x < 0 || a.y < 0 || a.x+a.w > page.w || a.y+a.h > page.h {
			t.Errorf("%q leaves the picture: %+v", a.what, a)
		}
		for _, b := range slices.Concat(texts[i+1:], bars) {
			if a.overlaps(b) {
				t.Errorf("%+v overlaps %+v", a, b)
			}
		}
	}
	for _, b := range bars {
		if b.x < 0 || b.w <= 0 || b.x+b.w > page.w || b.y < 0 || b.y+b.h > page.h {
			t.Errorf("a bar leaves the picture: %+v", b)
		}
	}
	all := fmt.Sprint(texts)
	for _, row := range Rows {
		if shown := strings.Contains(all, strings.ReplaceAll(row.What, "`", "")+", gate"); shown != (row.Gate != 0) {
			t.Errorf("%s: shown is %v with gate %v", row.ID, shown, row.Gate)
		}
	}
	if strings.Contains(all, "not measured") {
		t.Error("a row that was left out is shown")
	}
}

// TestBar checks the lengths of bars: a value twice as good has a bar twice as long as the distance to the gate's mark.
func TestBar(t *testing.T) {
	for _, c := range []struct {
		less        bool
		value, want float64
	}{
		{false, 20, 2}, {false, 5, 0.5}, {false, 1000, 3}, {true, 5, 2}, {true, 20, 0.5}, {true, 0, 3}, {true, 10, 1},
	} {
		res := Result{Row: Row{Table: "t", What: "w", Gate: 10, Stretch: 10, Less: c.less}, Rounds: []float64{c.value}}
		res.Judge()
		_, bars := drawn(t, Report{Results: []Result{res}})
		bar, mark := bars[len(bars)-2], bars[len(bars)-1]
		if got := bar.w / (mark.x + mark.w/2 - bar.x); got < c.want-0.01 || got > c.want+0.01 {
			t.Errorf("%v, less %v: the bar is %.2f gates long, want %v", c.value, c.less, got, c.want)
		}
	}
}

var (
	rectangle = regexp.MustCompile(`^M([\d.]+),([\d.]+)L([\d.]+),[\d.]+L[\d.]+,([\d.]+)L[\d.]+,[\d.]+Z$`)
	fontStyle = regexp.MustCompile(`font-family:[^;]*,sans-serif;.*font-size:([\d.]+)px`)
)

// drawn makes the chart and finds the texts and rectangles in it.
func drawn(t *testing.T, r Report) (texts, rects []box) {
	t.Helper()
	dir := t.TempDir()
	if err := Pictures(dir, r); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "bench.svg"))
	if err != nil {
		t.Fatal(err)
	}
	var svg struct {
		Texts []struct {
			X     float64 `xml:"x,attr"`
			Y     float64 `xml:"y,attr"`
			Style string  `xml:"style,attr"`
			Text  string  `xml:",chardata"`
		} `xml:"g>text"`
		Paths []struct {
			D     string `xml:"d,attr"`
			Style string `xml:"style,attr"`
		} `xml:"g>path"`
	}
	if err := xml.Unmarshal(data, &svg); err != nil {
		t.Fatal(err)
	}
	for _, e := range svg.Texts {
		m := fontStyle.FindStringSubmatch(e.Style)
		if m == nil {
			t.Fatalf("%q has no size, or no font to fall back to: %s", e.Text, e.Style)
		}
		size, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		// A letter of DejaVu Sans or Verdana is 0.6 of the size wide on average, and reaches 0.25 below the line.
		texts = append(texts, box{e.Text, e.X, -e.Y - 0.25*size, 0.62 * size * float64(utf8.RuneCountInString(e.Text)), size})
	}
	for _, p := range svg.Paths {
		m := rectangle.FindStringSubmatch(p.D)
		if m == nil {
			t.Fatalf("not a rectangle: %s", p.D)
		}
		var x, y, right, upper float64
		if _, err := fmt.Sscan(strings.Join(m[1:], " "), &x, &y, &right, &upper); err != nil {
			t.Fatal(err)
		}
		rects = append(rects, box{p.Style, x, y, right - x, upper - y})
	}
	return texts, rects
}
