package runs

import (
	"context"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
)

// idling measures what configured servers cost of which none is used: the start, the memory of all processes, and runs.
func idling(ctx context.Context, cfg Config, apis map[string]string, programs string, col *bench.Collector) error {
	var start, memory, run [2]float64
	for i, configured := range []map[string]string{nil, apis} {
		s, err := embedded(ctx, cfg, cfg.deno(), 2, configured, "SANDBOX_PROGRAMS="+programs)
		if err != nil {
			return err
		}
		start[i] = s.ready.Seconds() * 1e3
		var times []float64
		for range 3 * cfg.Each {
			time.Sleep(settle)
			took, _, err := s.run(ctx, Script, "2")
			if err != nil {
				s.Close()
				return err
			}
			times = append(times, took.Seconds()*1e3)
		}
		run[i] = bench.Median(times)
		time.Sleep(4 * settle)
		for pid := range descendants(s.process.PID()) {
			if private, err := privateMemory(pid); err == nil { // a process that has just ended has none
				memory[i] += float64(private) / 1e6
			}
		}
		s.Close()
	}
	col.Add("servers.start", start[1]-start[0], "%.0f ms with %d servers, %.0f ms without", start[1], len(apis), start[0])
	col.Add("servers.memory", memory[1]-memory[0], "%.0f MB with %d servers, %.0f MB without", memory[1], len(apis), memory[0])
	col.Add("servers.runs", run[1]-run[0], "%.1f ms with %d servers, %.1f ms without", run[1], len(apis), run[0])
	return nil
}
