package runs

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
)

// prints are scripts that print %d lines of 1 KiB, each by itself, by language.
var prints = map[string]string{
	"deno":    "const line = '" + line + "';\nfor (let i = 0; i < %d; i++) console.log(line);\n",
	"python3": "line = '" + line + "'\nfor i in range(%d):\n    print(line)\n",
}

// line is a line of 1 KiB without its line feed.
var line = strings.Repeat("x", 1023)

// Printing measures warm runs that print much, in embedded mode, against one that prints 1 KiB. Without cfg.Python it
// leaves Python out.
func Printing(ctx context.Context, cfg Config) (bench.Report, error) {
	col := &bench.Collector{}
	languages := []language{cfg.deno()}
	if cfg.Python != "" {
		languages = append(languages, cfg.python())
	}
	for _, l := range languages {
		if err := printing(ctx, cfg, l, col); err != nil {
			return bench.Report{}, err
		}
	}
	return bench.Report{Results: col.Results()}, nil
}

func printing(ctx context.Context, cfg Config, l language, col *bench.Collector) error {
	s, err := embedded(ctx, cfg, l, 2, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	for round := range cfg.Rounds {
		log.Printf("execute_code, printing in %s, round %d of %d", l.program, round+1, cfg.Rounds)
		took := map[int][]float64{}
		for range cfg.Each {
			for _, kib := range []int{1, 16, 1024} {
				time.Sleep(settle)
				t, warm, err := s.run(ctx, fmt.Sprintf(prints[l.program], kib), "")
				if err != nil {
					return err
				}
				if warm {
					took[kib] = append(took[kib], t.Seconds()*1e3)
				}
			}
		}
		one := bench.Median(took[1])
		for kib, row := range map[int]string{16: l.prints + ".16k", 1024: l.prints + ".1m"} {
			if len(took[kib]) < cfg.Each/2 || len(took[1]) < cfg.Each/2 {
				return fmt.Errorf("too few of %d runs found a warm slot", cfg.Each)
			}
			many := bench.Median(took[kib])
			col.Add(row, many/one, "%.1f ms, 1 KiB %.1f ms", many, one)
		}
	}
	return nil
}
