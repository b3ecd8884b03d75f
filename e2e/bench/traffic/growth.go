package traffic

import (
	"cmp"
	"context"
	"log"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
	"github.com/codeforge-mcp/codeforge/e2e/bench/load"
	"github.com/codeforge-mcp/codeforge/e2e/bench/peer"
)

// plotting collects the lines of a curve.
type plotting struct {
	bench.Curve
}

func (c *plotting) point(line string, x, y float64) {
	for i := range c.Lines {
		if c.Lines[i].Name == line {
			c.Lines[i].Points = append(c.Lines[i].Points, bench.Point{X: x, Y: y})
			return
		}
	}
	c.Lines = append(c.Lines, bench.Line{Name: line, Points: []bench.Point{{X: x, Y: y}}})
}

func (m *measurement) growth(ctx context.Context) error {
	for _, f := range []func(context.Context) error{m.byCredentials, m.byAPIs, m.byBody, m.byConcurrency} {
		if err := f(ctx); err != nil {
			return err
		}
	}
	return nil
}

// steady measures a proxy's cost per small request, and per MB of JSON.
func (m *measurement) steady(ctx context.Context, p *peer.Peer, c *plotting, x float64) error {
	small, err := m.keep(ctx, p, "/small", 8, m.cfg.Unit)
	if err != nil {
		return err
	}
	big, err := m.keep(ctx, p, "/json?size=1000000", 2, m.cfg.Unit)
	if err != nil {
		return err
	}
	c.point("CPU us/request", x, micros(small.CPU))
	c.point("CPU ms per MB of JSON", x, big.CPU*1e3)
	return nil
}

func (m *measurement) byCredentials(ctx context.Context) error {
	c := &plotting{bench.Curve{ID: "credentials", Title: "Proxy, by credentials in the catalog", X: "credentials"}}
	for _, n := range []int{1, 8, 64, 500} { // the catalog takes 500 of an API
		log.Printf("growth: %d credentials", n)
		p, _, err := peer.CodeForge(peer.CodeForgeConfig{Binary: m.cfg.Binary, CA: m.ca, Credentials: n})
		if err != nil {
			return err
		}
		err = m.steady(ctx, p, c, float64(n))
		rss, err2 := p.Process.Resident()
		p.Close()
		if err := cmp.Or(err, err2); err != nil {
			return err
		}
		c.point("RSS MB", float64(n), float64(rss)/1e6)
	}
	m.curves = append(m.curves, c.Curve)
	return nil
}

func (m *measurement) byAPIs(ctx context.Context) error {
	c := &plotting{bench.Curve{ID: "apis", Title: "Proxy, by configured APIs", X: "APIs"}}
	for _, n := range []int{1, 10, 100, 1000} {
		log.Printf("growth: %d APIs", n)
		p, start, err := peer.CodeForge(peer.CodeForgeConfig{Binary: m.cfg.Binary, CA: m.ca, APIs: n})
		if err != nil {
			return err
		}
		rss, err2 := p.Process.Resident()
		err = m.steady(ctx, p, c, float64(n))
		p.Close()
		if err := cmp.Or(err, err2); err != nil {
			return err
		}
		c.point("start ms", float64(n), start.Seconds()*1e3)
		c.point("RSS MB at start", float64(n), float64(rss)/1e6)
	}
	m.curves = append(m.curves, c.Curve)
	return nil
}

func (m *measurement) byBody(ctx context.Context) error {
	c := &plotting{bench.Curve{ID: "body", Title: "One download, by size of the body", X: "KiB"}}
	p, _, err := peer.CodeForge(peer.CodeForgeConfig{Binary: m.cfg.Binary, CA: m.ca})
	if err != nil {
		return err
	}
	defer p.Close()
	for _, size := range []int64{1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20, 256 << 20} {
		log.Printf("growth: bodies of %d KiB", size>>10)
		if err := p.Process.ResetPeak(); err != nil {
			return err
		}
		var direct, cf []float64
		for range max(3, min(50, int(64<<20/size))) {
			d, err := load.Download(ctx, m.direct, m.direct.Address, "bytes", size, func() {})
			if err != nil {
				return err
			}
			t, err := load.Download(ctx, p, p.Address, "bytes", size, func() {})
			if err != nil {
				return err
			}
			direct, cf = append(direct, d.Seconds()), append(cf, t.Seconds())
		}
		peak, err := p.Process.Peak()
		if err != nil {
			return err
		}
		kib := float64(size >> 10)
		c.point("CodeForge ms", kib, bench.Median(cf)*1e3)
		c.point("direct ms", kib, bench.Median(direct)*1e3)
		c.point("peak RSS MB", kib, float64(peak)/1e6)
	}
	m.curves = append(m.curves, c.Curve)
	return nil
}

func (m *measurement) byConcurrency(ctx context.Context) error {
	c := &plotting{bench.Curve{ID: "concurrency", Title: "Small requests, by connections at once", X: "connections"}}
	p, _, err := peer.CodeForge(peer.CodeForgeConfig{Binary: m.cfg.Binary, CA: m.ca})
	if err != nil {
		return err
	}
	defer p.Close()
	for _, n := range []int{1, 2, 4, 8, 16, 32, 64} {
		log.Printf("growth: %d connections", n)
		got, err := m.keep(ctx, p, "/small", n, max(m.cfg.Unit, 500*time.Millisecond))
		if err != nil {
			return err
		}
		x := float64(n)
		c.point("requests/s", x, got.Rate())
		c.point("p50 ms", x, bench.Median(got.Took)*1e3)
		c.point("p99 ms", x, bench.Quantile(got.Took, 0.99)*1e3)
		c.point("CPU us/request", x, micros(got.CPU))
	}
	m.curves = append(m.curves, c.Curve)
	return nil
}
