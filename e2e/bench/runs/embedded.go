package runs

import (
	"context"
	"fmt"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
)

// Config says how much to measure.
type Config struct {
	// Bin is the folder of CodeForge's programs, Deno and Python the interpreters, Root the source tree.
	Bin, Deno, Python, Root string
	Rounds                  int
	// Each is how many runs of a kind a round has.
	Each   int
	Growth bool
}

// settle is the pause in which a slot gets a new warm interpreter, with its preloading done. Until then the slot takes
// processor time from the next measurement.
const settle = 300 * time.Millisecond

// Embedded measures the rows of embedded mode.
func Embedded(ctx context.Context, cfg Config) (bench.Report, error) {
	col, l := &bench.Collector{}, cfg.deno()
	hot, err := embedded(ctx, cfg, l, 2, nil)
	if err != nil {
		return bench.Report{}, err
	}
	defer hot.Close()
	cold, err := embedded(ctx, cfg, l, 0, nil)
	if err != nil {
		return bench.Report{}, err
	}
	defer cold.Close()
	for round := range cfg.Rounds {
		log.Printf("execute_code, embedded, round %d of %d", round+1, cfg.Rounds)
		if err := single(ctx, cfg, l, hot, cold, col); err != nil {
			return bench.Report{}, err
		}
		if err := noop(ctx, hot, col); err != nil {
			return bench.Report{}, err
		}
		if err := idle(hot, l, 2, col); err != nil {
			col.Miss(err.Error(), "runs.idle")
		}
	}
	var report bench.Report
	if cfg.Growth {
		curve, err := byOutput(ctx, hot)
		if err != nil {
			return report, err
		}
		report.Curves = append(report.Curves, curve)
	}
	cold.Close()
	hot.Close()
	if err := eight(ctx, cfg, col); err != nil {
		return report, err
	}
	report.Results = col.Results()
	return report, nil
}

// Python measures the rows of Python in embedded mode.
func Python(ctx context.Context, cfg Config) (bench.Report, error) {
	col, l := &bench.Collector{}, cfg.python()
	hot, err := embedded(ctx, cfg, l, 2, nil)
	if err != nil {
		return bench.Report{}, err
	}
	defer hot.Close()
	for round := range cfg.Rounds {
		log.Printf("execute_code, Python, round %d of %d", round+1, cfg.Rounds)
		if err := single(ctx, cfg, l, hot, nil, col); err != nil {
			return bench.Report{}, err
		}
		if err := idle(hot, l, 2, col); err != nil {
			col.Miss(err.Error(), l.memory)
		}
	}
	return bench.Report{Results: col.Results()}, nil
}

// single compares warm, cold and bare runs, one of each in turn. cold may be nil.
func single(ctx context.Context, cfg Config, l language, hot, cold *server, col *bench.Collector) error {
	var warms, colds, bares []float64
	missed := 0
	for range cfg.Each {
		time.Sleep(settle)
		took, warm, err := hot.run(ctx, l.script, "2")
		if err != nil {
			return err
		}
		if warm {
			warms = append(warms, took.Seconds()*1e3)
		} else {
			missed++
		}
		time.Sleep(settle)
		b, err := timed(l.bare(l.script, ""))
		if err != nil {
			return err
		}
		bares = append(bares, b.Seconds()*1e3)
		if cold == nil {
			continue
		}
		time.Sleep(settle / 4)
		c, _, err := cold.run(ctx, l.script, "2")
		if err != nil {
			return err
		}
		colds = append(colds, c.Seconds()*1e3)
	}
	if missed > cfg.Each/2 {
		return fmt.Errorf("%d of %d runs found no warm slot", missed, cfg.Each)
	}
	w, b := bench.Median(warms), bench.Median(bares)
	col.Add(l.warm, b/w, "warm %.1f ms, bare %.1f ms", w, b)
	if cold != nil {
		c := bench.Median(colds)
		col.Add("runs.cold", c-b, "cold %.1f ms, bare %.1f ms", c, b)
	}
	return nil
}

// noop measures a tool that involves only mcp-server. The request is prepared before, and the time ends with the last
// byte of the response, so that the client adds next to nothing.
func noop(ctx context.Context, s *server, col *bench.Collector) error {
	c, err := s.caller(ctx, "list_apis", nil)
	if err != nil {
		return err
	}
	defer c.Close()
	var took []float64
	for range 300 {
		_, t, err := c.call()
		if err != nil {
			return err
		}
		took = append(took, t.Seconds()*1e3)
	}
	col.Add("runs.noop", bench.Median(took), "list_apis without APIs, answered over HTTP; p99 %.2f ms", bench.Quantile(took, 0.99))
	return nil
}

// eight compares eight runs at once with eight bare interpreters at once: in bursts, each with all slots warm, and
// without a pause.
func eight(ctx context.Context, cfg Config, col *bench.Collector) error {
	s, err := embedded(ctx, cfg, cfg.deno(), 8, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	ours := func() error { _, _, err := s.run(ctx, Script, "2"); return err }
	theirs := func() error { _, err := timed(cfg.deno().bare(Script, "")); return err }
	for round := range cfg.Rounds {
		log.Printf("execute_code, 8 at once, round %d of %d", round+1, cfg.Rounds)
		var bursts, bares []float64
		for range max(3, cfg.Each/3) {
			time.Sleep(5 * settle)
			a, err := atOnce(8, 1, ours)
			if err != nil {
				return err
			}
			time.Sleep(5 * settle)
			b, err := atOnce(8, 1, theirs)
			if err != nil {
				return err
			}
			bursts, bares = append(bursts, a.Seconds()*1e3), append(bares, b.Seconds()*1e3)
		}
		b, t := bench.Median(bursts), bench.Median(bares)
		col.Add("runs.burst", t/b, "8 runs in %.0f ms (8 slots warm), 8 bare Denos in %.0f ms", b, t)
		const each = 5
		a, err := atOnce(8, each, ours)
		if err != nil {
			return err
		}
		time.Sleep(5 * settle)
		c, err := atOnce(8, each, theirs)
		if err != nil {
			return err
		}
		col.Add("runs.sustained", c.Seconds()/a.Seconds(), "%.0f runs/s, bare %.0f/s", 8*each/a.Seconds(), 8*each/c.Seconds())
	}
	return nil
}

// atOnce calls f from n goroutines, each times in sequence, and returns the time until the last call has ended.
func atOnce(n, each int, f func() error) (time.Duration, error) {
	errs := make(chan error, n)
	var wg sync.WaitGroup
	start := time.Now()
	for range n {
		wg.Go(func() {
			for range each {
				if err := f(); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	select {
	case err := <-errs:
		return 0, err
	default:
		return took, nil
	}
}

// byOutput measures runs with increasing output.
func byOutput(ctx context.Context, s *server) (bench.Curve, error) {
	c := bench.Curve{ID: "output", Title: "One warm run, by what it prints", X: "KiB printed"}
	var line bench.Line
	line.Name = "p50 ms"
	for _, kib := range []int{1, 16, 256, 1024, 4096, 16384} {
		var took []float64
		code := fmt.Sprintf("const line = %q;\nfor (let i = 0; i < %d; i++) console.log(line);\n", strings.Repeat("x", 1023), kib)
		for range 5 {
			time.Sleep(settle)
			t, _, err := s.run(ctx, code, "")
			if err != nil {
				return c, err
			}
			took = append(took, t.Seconds()*1e3)
		}
		line.Points = append(line.Points, bench.Point{X: float64(kib), Y: bench.Median(took)})
	}
	c.Lines = []bench.Line{line}
	return c, nil
}
