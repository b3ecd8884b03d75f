package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
)

// NoopServer is the argument with which the bench is an MCP server on stdio with a tool that does nothing, and one that
// takes waitTime to do it.
const NoopServer = "noop-server"

const waitTime = 20 * time.Millisecond

// ServeNoop is that server.
func ServeNoop(ctx context.Context) error {
	s := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	for name, takes := range map[string]time.Duration{"noop": 0, "wait": waitTime} {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				time.Sleep(takes)
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ok"}}}, nil
			})
	}
	return s.Run(ctx, &mcp.StdioTransport{})
}

// warmCalls prints, in milliseconds, the median of calls one after the other, and the times of 100 calls in all of the
// tool that takes its time, one after the other and eight at once.
const warmCalls = `await mcp.warm.noop();
const each = [];
for (let i = 0; i < 300; i++) { const t = performance.now(); await mcp.warm.noop(); each.push(performance.now() - t); }
each.sort((a, b) => a - b);
const times = [each[150]];
for (const limit of [1, 8]) {
  const t = performance.now();
  const all = await parallel(Array.from({ length: 100 }, () => () => mcp.warm.wait()), { limit });
  const bad = all.find((r) => r.status !== "fulfilled");
  if (bad) throw bad.reason;
  times.push(performance.now() - t);
}
console.log(...times);
`

// coldCall prints the time of the first call of a server that does not run, in milliseconds.
const coldCall = `const t = performance.now(); await mcp.fresh.noop(); console.log(performance.now() - t);`

// unused is how many servers are configured and not used.
const unused = 100

// Servers measures calls of MCP servers' tools from code, against the SDK's client on the same program's stdio.
func Servers(ctx context.Context, cfg Config) (bench.Report, error) {
	programs, err := os.MkdirTemp("", "codeforge-bench-programs-")
	if err != nil {
		return bench.Report{}, err
	}
	defer os.RemoveAll(programs)
	program := filepath.Join(programs, "bench")
	data, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, data, 0o755) //nolint:gosec // slots have users of their own
	}
	if err == nil {
		err = os.Chmod(programs, 0o755) //nolint:gosec // as above
	}
	if err != nil {
		return bench.Report{}, err
	}
	apis := map[string]string{}
	add := func(name, state string) {
		apis[name] = fmt.Sprintf(`{"description": "benchmark", "mcp": {"command": ["bench", %q], "state": %q}}`, NoopServer, state)
	}
	add("warm", "shared")
	add("fresh", "run")
	few, err := embedded(ctx, cfg, cfg.deno(), 2, apis, "SANDBOX_PROGRAMS="+programs)
	if err != nil {
		return bench.Report{}, err
	}
	defer few.Close()
	for n := range unused {
		add("unused"+strconv.Itoa(n), "shared")
	}
	many, err := embedded(ctx, cfg, cfg.deno(), 2, apis, "SANDBOX_PROGRAMS="+programs)
	if err != nil {
		return bench.Report{}, err
	}
	defer many.Close()
	col := &bench.Collector{}
	for round := range cfg.Rounds {
		log.Printf("MCP servers, round %d of %d", round+1, cfg.Rounds)
		if err := calls(ctx, cfg, few, program, col); err != nil {
			return bench.Report{}, err
		}
		if err := gateway(ctx, cfg, few, program, col); err != nil {
			return bench.Report{}, err
		}
		if err := listing(ctx, few, many, col); err != nil {
			return bench.Report{}, err
		}
		if err := idling(ctx, cfg, apis, programs, col); err != nil {
			return bench.Report{}, err
		}
	}
	report := bench.Report{}
	if err := packages(ctx, cfg, col); err != nil {
		report.Notes = append(report.Notes, "the first call of a package is left out: "+err.Error())
	}
	report.Results = col.Results()
	return report, nil
}

// calls measures the rows of calls.
func calls(ctx context.Context, cfg Config, s *server, program string, col *bench.Collector) error {
	printed, err := s.numbers(ctx, warmCalls)
	if err != nil || len(printed) != 3 {
		return fmt.Errorf("calls of a warm server: %v %w", printed, err)
	}
	direct, _, err := noopDirect(ctx, exec.CommandContext(ctx, program, NoopServer), doNothing, 300)
	if err != nil {
		return err
	}
	col.Add("servers.call", printed[0]-direct, "from code %.2f ms, the SDK on stdio %.2f ms", printed[0], direct)
	col.Add("servers.eight", printed[1]/printed[2], "100 calls: %.0f ms one by one, %.0f ms at 8 at once", printed[1], printed[2])
	var ours, theirs []float64
	for range cfg.Each {
		time.Sleep(settle)
		first, err := s.numbers(ctx, coldCall)
		if err != nil || len(first) != 1 {
			return fmt.Errorf("the first call of a server: %v %w", first, err)
		}
		time.Sleep(settle)
		_, start, err := noopDirect(ctx, exec.CommandContext(ctx, program, NoopServer), doNothing, 1)
		if err != nil {
			return err
		}
		ours, theirs = append(ours, first[0]), append(theirs, start)
	}
	o, t := bench.Median(ours), bench.Median(theirs)
	col.Add("servers.cold", o-t, "from code %.1f ms, the SDK starting it %.1f ms", o, t)
	return nil
}

// doNothing is a call of the tool that does nothing.
var doNothing = &mcp.CallToolParams{Name: "noop"}

// noopDirect starts the server as the SDK's client does, and gives the median of calls and the time from the start to
// the first answer, in milliseconds.
func noopDirect(ctx context.Context, cmd *exec.Cmd, call *mcp.CallToolParams, n int) (median, first float64, err error) {
	start := time.Now()
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return 0, 0, fmt.Errorf("starting a server directly: %w", err)
	}
	defer session.Close()
	var each []float64
	for i := range n + 1 {
		began := time.Now()
		if _, err := session.CallTool(ctx, call); err != nil {
			return 0, 0, fmt.Errorf("calling a server directly: %w", err)
		}
		if i == 0 {
			first = time.Since(start).Seconds() * 1e3
			continue
		}
		each = append(each, time.Since(began).Seconds()*1e3)
	}
	return bench.Median(each), first, nil
}

// listing measures what configured servers add to list_apis.
func listing(ctx context.Context, few, many *server, col *bench.Collector) error {
	var times [2][]float64
	for i, s := range []*server{few, many} {
		c, err := s.caller(ctx, "list_apis", map[string]any{})
		if err != nil {
			return err
		}
		for range 60 {
			_, took, err := c.call()
			if err != nil {
				c.Close()
				return err
			}
			times[i] = append(times[i], took.Seconds()*1e3)
		}
		c.Close()
	}
	a, b := bench.Median(times[0]), bench.Median(times[1])
	col.Add("servers.unused", b-a, "%.2f ms with %d more servers, %.2f ms without", b, unused, a)
	return nil
}

// numbers runs code and parses the numbers that it prints.
func (s *server) numbers(ctx context.Context, code string) ([]float64, error) {
	c, err := s.caller(ctx, "execute_code", map[string]any{"code": code})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	res, _, err := c.call()
	if err != nil {
		return nil, err
	}
	return floats(firstText(res))
}

// floats parses the numbers that a script has printed.
func floats(text string) (out []float64, err error) {
	for _, field := range strings.Fields(text) {
		f, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return nil, fmt.Errorf("the script printed %q", text)
		}
		out = append(out, f)
	}
	return out, nil
}
