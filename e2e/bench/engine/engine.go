// Package engine measures the rows of the scan engine with the Go benchmarks of proxy/internal/multisearch.
package engine

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"

	"golang.org/x/perf/benchfmt"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
)

// rows are the benchmarks behind each row.
var rows = map[string]string{"Reader/patterns=8/json": "engine.8", "Reader/patterns=64/json": "engine.64"}

// Run runs them count times on one core, each for the time given as `go test -benchtime`.
func Run(ctx context.Context, root string, count int, benchtime string) (bench.Report, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkReader$/^patterns=(8|64)$/^json$", "-benchtime", benchtime, //nolint:gosec // fixed
		"-count", strconv.Itoa(count), "-cpu", "1", "./proxy/internal/multisearch")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return bench.Report{}, fmt.Errorf("the benchmarks of the scan engine: %w\n%s", err, out)
	}
	col := &bench.Collector{}
	for r := benchfmt.NewReader(bytes.NewReader(out), "go test"); r.Scan(); {
		found, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		speed, ok := found.Value("B/s")
		if id := rows[string(found.Name)]; ok && id != "" {
			col.Add(id, speed/1e9, "JSON text, one core")
		}
	}
	return bench.Report{Results: col.Results()}, nil
}
