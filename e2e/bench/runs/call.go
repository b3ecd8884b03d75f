package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"path/filepath"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
	"github.com/codeforge-mcp/codeforge/e2e/bench/arena"
	"github.com/codeforge-mcp/codeforge/e2e/bench/origin"
)

// callScript calls the origin once, with the given credential.
const callScript = "const r = await fetch('https://" + origin.Host + "/small', { headers: { authorization: 'Bearer %s' } });\nconsole.log(r.status, (await r.json()).id);\n"

// called is the output of callScript.
const called = "200 cus_9s6XKzkNRiz8i3"

// Call measures what most runs do: one API call over HTTPS, whose response is parsed. Bare Deno does the same with the
// credential in its script. Both use the same resolver and the same origin. It must be called in an arena.
func Call(ctx context.Context, cfg Config) (bench.Report, error) {
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
	s, err := embedded(ctx, cfg, 2, map[string]string{"bench": string(api)})
	if err != nil {
		return bench.Report{}, err
	}
	defer s.Close()
	ours, theirs := fmt.Sprintf(callScript, name), fmt.Sprintf(callScript, origin.Credential)
	theirs = strings.Replace(theirs, "console.log(", "if (r.status !== 200) throw r.status; console.log(", 1)
	for round := range cfg.Rounds {
		log.Printf("execute_code, one call, round %d of %d", round+1, cfg.Rounds)
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
			took, err = bare(ctx, cfg.Deno, theirs, "--allow-net="+origin.Host, "--cert="+at("ca.pem"))
			if err != nil {
				return bench.Report{}, err
			}
			bares = append(bares, took.Seconds()*1e3)
		}
		if len(warms) < cfg.Each/2 {
			return bench.Report{}, errors.New("too few runs found a warm slot")
		}
		w, b := bench.Median(warms), bench.Median(bares)
		col.Add("runs.call", b/w, "warm %.1f ms, bare %.1f ms", w, b)
	}
	return bench.Report{Results: col.Results()}, nil
}
