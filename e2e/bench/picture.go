package bench

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The colours of verdicts and lines.
var (
	colours = map[string]color.Color{
		Ahead: color.RGBA{R: 0x1b, G: 0x7f, B: 0x5c, A: 255}, Pass: color.RGBA{R: 0x4c, G: 0xa3, B: 0xdd, A: 255},
		Fail: color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 255},
	}
	lineColours = []color.Color{
		color.RGBA{R: 0x1b, G: 0x7f, B: 0x5c, A: 255}, color.RGBA{R: 0xd3, G: 0x54, B: 0x00, A: 255},
		color.RGBA{R: 0x2e, G: 0x59, B: 0xa8, A: 255}, color.RGBA{R: 0x8e, G: 0x44, B: 0xad, A: 255},
	}
)

// Pictures writes an SVG per table and per curve into dir.
func Pictures(dir string, r Report) error {
	for _, table := range []string{tableRuns, tableProxy, tableEngine} {
		var rows []Result
		for _, res := range r.Results {
			if res.Table == table && res.Gate != 0 && res.Verdict != LeftOut {
				rows = append(rows, res)
			}
		}
		if len(rows) == 0 {
			continue
		}
		if err := bars(filepath.Join(dir, table+".svg"), table, rows); err != nil {
			return err
		}
	}
	for _, c := range r.Curves {
		if err := lines(filepath.Join(dir, "growth-"+c.ID+".svg"), c); err != nil {
			return err
		}
	}
	return nil
}

// score is how many times as good as its gate a row is.
func (r Result) score() float64 {
	if r.Less {
		return r.Gate / math.Max(r.Median, r.Gate/100)
	}
	return r.Median / r.Gate
}

// bars draws how far each row is ahead of its gate, which is the line at 1.
func bars(path, title string, rows []Result) error {
	p := plot.New()
	p.Title.Text = "CodeForge, " + title + ": measured against the gate (right of the line is better)"
	p.X.Min = 0
	p.X.Tick.Marker = plot.DefaultTicks{}
	names := make([]string, len(rows))
	most := 1.5
	for i, r := range rows {
		at := len(rows) - 1 - i // the first row on top
		score := math.Min(r.score(), 4)
		most = math.Max(most, score)
		names[at] = fmt.Sprintf("%s: %s (gate %s)", r.What, withUnit(r.Median, r.Unit), withUnit(r.Gate, r.Unit))
		b, err := plotter.NewBarChart(plotter.Values{score}, vg.Points(12))
		if err != nil {
			return err
		}
		b.Horizontal, b.XMin, b.Color, b.LineStyle.Width = true, float64(at), colours[r.Verdict], 0
		p.Add(b)
	}
	gate, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -0.6}, {X: 1, Y: float64(len(rows)) - 0.4}})
	if err != nil {
		return err
	}
	gate.Width, gate.Dashes = vg.Points(1.5), []vg.Length{vg.Points(4), vg.Points(3)}
	p.Add(gate)
	p.NominalY(names...)
	p.X.Max = most * 1.05
	p.X.Label.Text = "times as good as the gate (cut at 4)"
	return save(p, path, 11*vg.Inch, vg.Length(float64(len(rows))*0.36+1.4)*vg.Inch)
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
	return save(p, path, 7*vg.Inch, 4.2*vg.Inch)
}

func save(p *plot.Plot, path string, w, h vg.Length) error {
	p.BackgroundColor = color.White
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // pictures for everybody
		return err
	}
	if err := p.Save(w, h, path); err != nil {
		return fmt.Errorf("drawing %s: %w", path, err)
	}
	return nil
}
