// Package meter counts what mcp-server does, for GET /metrics. No label contains anything that clients or code chose.
package meter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Meter is mcp-server's metrics. Make it with New.
type Meter struct {
	Registry *prometheus.Registry
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// Gauges are read when the metrics are fetched.
type Gauges struct {
	// Sessions of the protocol versions that have them, tool calls in progress, and runs waiting for a slot.
	Sessions, Calls, Waiting func() int
}

// New makes the metrics.
func New(g Gauges) *Meter {
	m := &Meter{
		Registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "codeforge_mcp_tool_calls_total", Help: "Finished tool calls by tool and result.",
		}, []string{"tool", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "codeforge_mcp_tool_call_seconds", Help: "How long tool calls took.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"tool"}),
	}
	gauge := func(name, help string, f func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(f()) })
	}
	m.Registry.MustRegister(m.calls, m.seconds,
		gauge("codeforge_mcp_sessions", "Sessions.", g.Sessions),
		gauge("codeforge_mcp_tool_calls_running", "Tool calls in progress.", g.Calls),
		gauge("codeforge_mcp_runs_waiting", "Runs waiting for a slot.", g.Waiting))
	return m
}

// Called counts a finished tool call.
func (m *Meter) Called(tool string, failed bool, took time.Duration) {
	result := "ok"
	if failed {
		result = "error"
	}
	m.calls.WithLabelValues(tool, result).Inc()
	m.seconds.WithLabelValues(tool).Observe(took.Seconds())
}
