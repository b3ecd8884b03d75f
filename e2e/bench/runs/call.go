package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"path/filepath"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
	"github.com/codeforge-mcp/codeforge/e2e/bench/arena"
	"github.com/codeforge-mcp/codeforge/e2e/bench/origin"
)

// called is what a language's call prints.
const called = "200 cus_9s6XKzkNRiz8i3"

// Call measures what most runs do: one API call over HTTPS, whose response is parsed. The bare interpreter does the same
// with the credential in its script. Both use the same resolver and the same origin. It must be called in an arena.
func Call(ctx context.Context, cfg Config) (bench.Report, error) { return call(ctx, cfg, cfg.deno()) }

// CallPython is Call in Python.
func CallPython(ctx context.Context, cfg Config) (bench.Report, error) {
	return call(ctx, cfg, cfg.python())
}

func call(ctx context.Context, cfg Config, l language) (bench.Report, error) {
	col := &bench.Collector{}
	at := func(name string) string { return filepath.Join(arena.Dir, name) }
	if err := origin.Certificate(at("ca.pem"), at("cert.pem"), at("key.pem")); err != nil {
		return bench.Report{}, err
	}
	p, err := arena.Start(arena.In(arena.AtOrigin, "/proc/self/exe", "origin", at("cert.pem"), at("key.pem")), true)
	if err != nil {
		return bench.Report{}, err
	}
	defer p.Stop()
	if err := arena.ReachOrigin(); err != nil {
		return bench.Report{}, err
	}
	const name = "BENCH_TOKEN"
	api, err := json.Marshal(map[string]any{
		"description": "benchmark", "domains": []string{origin.Host}, "credentials": map[string]string{name: origin.Credential},
		"allow_private": []string{arena.Origin + "/32"}, "ca_file": at("ca.pem"),
	})
	if err != nil {
		return bench.Report{}, err
	}
	s, err := embedded(ctx, cfg, l, 2, map[string]string{"bench": string(api)})
	if err != nil {
		return bench.Report{}, err
	}
	defer s.Close()
	ours, theirs := fmt.Sprintf(l.call, name), fmt.Sprintf(l.call, origin.Credential)
	for round := range cfg.Rounds {
		log.Printf("execute_code, one call from %s, round %d of %d", l.program, round+1, cfg.Rounds)
		var warms, bares []float64
		for range cfg.Each {
			time.Sleep(settle)
			took, warm, err := s.run(ctx, ours, called)
			if err != nil {
				return bench.Report{}, err
			}
			if warm {
				warms = append(warms, took.Seconds()*1e3)
			}
			time.Sleep(settle)
			took, err = timed(l.bare(theirs, at("ca.pem")))
			if err != nil {
				return bench.Report{}, err
			}
			bares = append(bares, took.Seconds()*1e3)
		}
		if len(warms) < cfg.Each/2 {
			return bench.Report{}, errors.New("too few runs found a warm slot")
		}
		w, b := bench.Median(warms), bench.Median(bares)
		col.Add(l.one, b/w, "warm %.1f ms, bare %.1f ms", w, b)
		if l.name != "" {
			continue
		}
		many, err := measureLoad(8, cfg.Each, func() error { _, _, err := s.run(ctx, ours, called); return err })
		if err != nil {
			return bench.Report{}, err
		}
		col.Add("runs.rate.call", many.rate, "%.1f ms of processor time a run", many.cost)
	}
	return bench.Report{Results: col.Results()}, nil
}
