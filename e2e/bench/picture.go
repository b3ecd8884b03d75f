package bench

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The colours of verdicts and lines.
var (
	black   = color.RGBA{R: 0x1f, G: 0x23, B: 0x28, A: 255}
	grey    = color.RGBA{R: 0x59, G: 0x63, B: 0x6e, A: 255}
	track   = color.RGBA{R: 0xe6, G: 0xe9, B: 0xed, A: 255}
	colours = map[string]color.Color{
		Ahead: color.RGBA{R: 0x1b, G: 0x7f, B: 0x5c, A: 255}, Pass: color.RGBA{R: 0x1f, G: 0x6f, B: 0xb2, A: 255},
		Fail: color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 255},
	}
	lineColours = []color.Color{
		color.RGBA{R: 0x1b, G: 0x7f, B: 0x5c, A: 255}, color.RGBA{R: 0xd3, G: 0x54, B: 0x00, A: 255},
		color.RGBA{R: 0x2e, G: 0x59, B: 0xa8, A: 255}, color.RGBA{R: 0x8e, G: 0x44, B: 0xad, A: 255},
	}
)

// Pictures writes bench.svg, the tables as bars, and an SVG per curve into dir.
func Pictures(dir string, r Report) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // pictures for everybody
		return err
	}
	if err := bars(filepath.Join(dir, "bench.svg"), r); err != nil {
		return err
	}
	for _, c := range r.Curves {
		if err := lines(filepath.Join(dir, "growth-"+c.ID+".svg"), c); err != nil {
			return err
		}
	}
	return nil
}

// score is how many times better than its gate a row is.
func (r Result) score() float64 {
	if r.Less {
		return r.Gate / math.Max(r.Median, r.Gate/100)
	}
	return r.Median / r.Gate
}

// The layout of the bars, in points; 600 points are 800 pixels. A viewer's font may be wider than the one measured
// here, so no position depends on the width of a text: each text begins at a fixed x, with room to its right, above its
// bar.
const (
	width, margin = 600, 10
	left          = 74 // of the rows' names and bars
	top, foot     = 56, 38
	headHeight    = 23
	rowHeight     = 21
	most          = 3 // times the gate, where bars end
	perGate       = (width - margin - left) / most
)

// board is a canvas whose y axis points down from the upper edge.
type board struct{ draw.Canvas }

func (b board) text(x, y, size vg.Length, c color.Color, s string) {
	style := text.Style{Color: c, Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size), Handler: plot.DefaultTextHandler}
	b.FillText(style, vg.Point{X: x, Y: b.Max.Y - y}, s)
}

func (b board) rect(x, y, w, h vg.Length, c color.Color) {
	b.SetColor(c)
	b.Fill(vg.Rectangle{Min: vg.Point{X: x, Y: b.Max.Y - y - h}, Max: vg.Point{X: x + w, Y: b.Max.Y - y}}.Path())
}

// row draws a value and its name, and below them a bar that shows how far it is ahead of its gate, the black mark.
func (b board) row(y vg.Length, r Result) {
	b.text(margin, y+11, 9, colours[r.Verdict], withUnit(r.Median, r.Unit))
	b.text(left, y+11, 9, black, strings.ReplaceAll(r.What, "`", "")+", gate "+r.goal(r.Gate))
	b.rect(left, y+14, most*perGate, 5, track)
	b.rect(left, y+14, vg.Length(math.Min(r.score(), most))*perGate, 5, colours[r.Verdict])
	b.rect(left+perGate-1, y+13, 2, 7, black)
}

// bars draws the rows that have a gate.
func bars(path string, r Report) error {
	var rows []Result
	heads, table := 0, ""
	for _, res := range r.Results {
		if res.Gate == 0 || res.Verdict == LeftOut {
			continue
		}
		rows = append(rows, res)
		if res.Table != table {
			heads, table = heads+1, res.Table
		}
	}
	if len(rows) == 0 {
		return nil
	}
	height := vg.Length(top + heads*headHeight + len(rows)*rowHeight + foot)
	svg, err := draw.NewFormattedCanvas(width, height, "svg")
	if err != nil {
		return err
	}
	b := board{draw.NewCanvas(svg, width, height)}
	b.rect(0, 0, width, height, color.White) // GitHub's dark theme shows through otherwise
	b.text(margin, 27, 14, black, "CodeForge against bare Deno, docker exec and mitmproxy")
	for i, key := range []struct{ verdict, text string }{{Ahead, "at the stretch"}, {Pass, "at the gate"}, {Fail, "below it"}} {
		x := vg.Length(margin + i*100)
		b.rect(x, 38, 12, 5, colours[key.verdict])
		b.text(x+17, 46, 9, grey, key.text)
	}
	b.rect(310, 37, 2, 7, black)
	b.text(317, 46, 9, grey, fmt.Sprintf("the gate; right of it is better, up to %d times", most))

	y := vg.Length(top)
	table = ""
	for _, res := range rows {
		if res.Table != table {
			table = res.Table
			b.text(margin, y+18, 11, black, table)
			y += headHeight
		}
		b.row(y, res)
		y += rowHeight
	}
	sum := r.summary()
	if r.Quick {
		sum += "; a quick run"
	}
	b.text(margin, y+18, 8, grey, sum)
	b.text(margin, y+30, 8, grey, fmt.Sprintf("%s, %s processors, %s %s", r.Started.Format(time.DateOnly), r.Machine["cpus"], r.Machine["arch"], r.Machine["cpu"]))
	return save(svg, path)
}

// lines draws a curve on logarithmic axes, its lines scaled to their first points: the slope is the growth.
func lines(path string, c Curve) error {
	p := plot.New()
	p.Title.Text = c.Title
	p.X.Label.Text, p.Y.Label.Text = c.X, "times the first point"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Tick.Marker = plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.TextStyle.Font.Size = vg.Points(9)
	var ticks []plot.Tick
	for _, x := range c.xs() {
		ticks = append(ticks, plot.Tick{Value: x, Label: strconv.FormatFloat(x, 'f', -1, 64)})
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	low, high := 0.5, 2.0
	for i, l := range c.Lines {
		var xy plotter.XYs
		for _, pt := range l.Points {
			if pt.X > 0 && pt.Y > 0 && l.Points[0].Y > 0 {
				y := pt.Y / l.Points[0].Y
				low, high = math.Min(low, y), math.Max(high, y)
				xy = append(xy, plotter.XY{X: pt.X, Y: y})
			}
		}
		if len(xy) < 2 {
			continue
		}
		line, points, err := plotter.NewLinePoints(xy)
		if err != nil {
			return err
		}
		line.Color, points.Color = lineColours[i%len(lineColours)], lineColours[i%len(lineColours)]
		line.Width, points.Shape = vg.Points(1.6), draw.CircleGlyph{}
		p.Add(line, points)
		p.Legend.Add(l.Name, line, points)
	}
	p.Y.Min, p.Y.Max = low/1.3, high*2
	svg, err := p.WriterTo(7*vg.Inch, 4.2*vg.Inch, "svg")
	if err != nil {
		return err
	}
	return save(svg, path)
}

// save writes an SVG with fallback fonts, since not every machine has Liberation.
func save(svg io.WriterTo, path string) error {
	var out bytes.Buffer
	if _, err := svg.WriteTo(&out); err != nil {
		return fmt.Errorf("drawing %s: %w", path, err)
	}
	named := bytes.ReplaceAll(out.Bytes(), []byte("Liberation Sans;"), []byte("Liberation Sans,Arial,Helvetica,sans-serif;"))
	named = bytes.ReplaceAll(named, []byte("Liberation Serif;"), []byte("Liberation Serif,Times New Roman,Times,serif;"))
	return os.WriteFile(path, named, 0o644) //nolint:gosec // pictures for everybody
}
