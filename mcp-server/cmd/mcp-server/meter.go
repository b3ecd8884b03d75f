package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// serverMeter counts the work of mcp-server for GET /metrics. Clients and code choose no label. Create it with
// newMeter.
type serverMeter struct {
	Registry *prometheus.Registry
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec

	serverCalls   *prometheus.CounterVec
	serverSeconds *prometheus.HistogramVec
	serverStarts  *prometheus.CounterVec
}

// meterGauges are read when the metrics are fetched.
type meterGauges struct {
	// Sessions counts sessions of protocol versions with sessions, Calls running tool calls, and Waiting runs that wait
	// for a slot.
	Sessions, Calls, Waiting func() int
	// Servers returns the number of running MCP servers.
	Servers func() int
}

func newMeter(g meterGauges) *serverMeter {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	seconds := func(name, help, label string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help,
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{label})
	}
	m := &serverMeter{
		Registry: prometheus.NewRegistry(),
		calls:    counter("codeforge_mcp_tool_calls_total", "Finished tool calls by tool and result.", "tool", "result"),
		seconds:  seconds("codeforge_mcp_tool_call_seconds", "How long tool calls took.", "tool"),
		serverCalls: counter("codeforge_server_calls_total", "Finished requests to MCP servers by server and outcome.",
			"server", "outcome"),
		serverSeconds: seconds("codeforge_server_call_seconds",
			"How long requests to MCP servers took, with starting and waiting.", "server"),
		serverStarts: counter("codeforge_server_starts_total", "Starts of MCP servers by server and result.",
			"server", "result"),
	}
	gauge := func(name, help string, f func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(f()) })
	}
	m.Registry.MustRegister(m.calls, m.seconds, m.serverCalls, m.serverSeconds, m.serverStarts,
		gauge("codeforge_server_running", "MCP servers that run, or are being started or ended.", g.Servers),
		gauge("codeforge_mcp_sessions", "Sessions.", g.Sessions),
		gauge("codeforge_mcp_tool_calls_running", "Tool calls in progress.", g.Calls),
		gauge("codeforge_mcp_runs_waiting", "Runs waiting for a slot.", g.Waiting))
	return m
}

// ServerCalled counts a finished request to an MCP server. The operator chose the server's name.
func (m *serverMeter) ServerCalled(server, outcome string, took time.Duration) {
	m.serverCalls.WithLabelValues(server, outcome).Inc()
	m.serverSeconds.WithLabelValues(server).Observe(took.Seconds())
}

// ServerStarted counts a start of an MCP server.
func (m *serverMeter) ServerStarted(server string, failed bool) {
	m.serverStarts.WithLabelValues(server, callResult(failed)).Inc()
}

func callResult(failed bool) string {
	if failed {
		return "error"
	}
	return "ok"
}

// CountCall counts a finished tool call.
func (m *serverMeter) CountCall(tool string, failed bool, took time.Duration) {
	m.calls.WithLabelValues(tool, callResult(failed)).Inc()
	m.seconds.WithLabelValues(tool).Observe(took.Seconds())
}

// fetchTime bounds the wait for another daemon's metrics. If the daemon hangs, a scrape must not hang too.
const fetchTime = 2 * time.Second

// newGatherer returns a gatherer of another daemon's metrics, which fetch returns as text. If fetch fails, the gatherer
// returns no metrics.
func newGatherer(fetch func(context.Context) (string, error)) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
		defer cancel()
		text, err := fetch(ctx)
		if err != nil {
			return nil, nil //nolint:nilerr // a scrape still gets the other metrics
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		return slices.Collect(maps.Values(families)), err
	})
}
