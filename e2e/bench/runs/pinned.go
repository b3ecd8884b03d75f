package runs

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
)

// pinnedFile is a packages.json.
const pinnedFile = `{"packages": ["npm:zod@4.6.7", "npm:stripe@18.1.0", "npm:axios@1.21.1"]}`

// pinnedKeys is the number of credentials, each with two variables.
const pinnedKeys = 20

// Pinned compares runs in a CodeForge with packages and keys for code with the same runs in one without.
func Pinned(ctx context.Context, cfg Config) (bench.Report, error) {
	_, settings, err := findRegistry(ctx)
	if err != nil {
		return bench.Report{}, err
	}
	var keys []string
	for n := range pinnedKeys {
		keys = append(keys, fmt.Sprintf(`"KEY_%d_TOKEN": {"value": "value-of-key-%d", "variable": "KEY_%d_SECOND"}`, n, n, n))
	}
	loaded, err := embedded(ctx, cfg, cfg.deno(), 2, map[string]string{
		"packages.json": pinnedFile,
		"keys":          `{"description": "benchmark", "domains": ["keys.example.com"], "credentials": {` + strings.Join(keys, ",") + "}}",
	}, settings...)
	if err != nil {
		return bench.Report{}, err
	}
	defer loaded.Close()
	const imports = `import { z } from "npm:zod"; console.log(z.number().parse(2));`
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Second) {
		if _, _, err = loaded.run(ctx, imports, "2"); err == nil {
			break
		}
		if time.Now().After(end) {
			return bench.Report{}, fmt.Errorf("installing the packages: %w", err)
		}
	}
	plain, err := embedded(ctx, cfg, cfg.deno(), 2, nil)
	if err != nil {
		return bench.Report{}, err
	}
	defer plain.Close()
	col := &bench.Collector{}
	for round := range cfg.Rounds {
		log.Printf("packages and keys for code, round %d of %d", round+1, cfg.Rounds)
		var times [4][]float64
		for range cfg.Each {
			for i, kind := range []struct {
				of   *server
				code string
			}{
				{plain, Script},
				{loaded, Script},
				{loaded, `console.log(process.env.KEY_7_SECOND === "KEY_7_TOKEN" ? 2 : 0);`},
				{loaded, imports},
			} {
				time.Sleep(settle)
				took, warm, err := kind.of.run(ctx, kind.code, "2")
				if err != nil {
					return bench.Report{}, err
				}
				if warm {
					times[i] = append(times[i], took.Seconds()*1e3)
				}
			}
		}
		for _, t := range times {
			if len(t) < cfg.Each/2 {
				return bench.Report{}, fmt.Errorf("only %d of %d runs found a warm slot", len(t), cfg.Each)
			}
		}
		none, unused := bench.Median(times[0]), bench.Median(times[1])
		read, imported := bench.Median(times[2]), bench.Median(times[3])
		col.Add("runs.pinned", unused/none, "%.1f ms, without both %.1f ms", unused, none)
		col.Add("runs.environment", read-none, "%.1f ms, without %.1f ms", read, none)
		col.Add("runs.import", imported-none, "%.1f ms, without %.1f ms", imported, none)
	}
	return bench.Report{Results: col.Results()}, nil
}
