package receipt

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// Metrics are the proxy's counts in a separate registry. Labels are constants of this code, never text from outside.
type Metrics struct {
	registry  *prometheus.Registry
	exchanges *prometheus.CounterVec
	alarms    *prometheus.CounterVec
	seconds   prometheus.Histogram

	swapped, sanitized, redacted prometheus.Counter
	up, down                     prometheus.Counter
}

func newMetrics() *Metrics {
	m := &Metrics{
		// The default registry would also have the metrics of libraries.
		registry: prometheus.NewRegistry(),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "codeforge_proxy_exchange_seconds", Help: "Time from a request's head to the last byte of its answer.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}),
	}
	m.registry.MustRegister(m.seconds)
	m.exchanges = m.addCounters("codeforge_proxy_exchanges_total", "Exchanges by outcome and code.", "outcome", "code")
	m.alarms = m.addCounters("codeforge_proxy_alarms_total", "Requests that carried a canary or a credential, by kind.",
		"kind")
	for _, kind := range [...]string{proxyapi.AlarmCanary, proxyapi.AlarmCredential} {
		m.alarms.WithLabelValues(kind) // so that the metric exists before the first alarm
	}
	done := m.addCounters("codeforge_proxy_replacements_total",
		"Credentials swapped in, credentials scrubbed, strings redacted.", "kind")
	m.swapped, m.sanitized = done.WithLabelValues("swapped"), done.WithLabelValues("sanitized")
	m.redacted = done.WithLabelValues("redacted")
	bytes := m.addCounters("codeforge_proxy_body_bytes_total", "Bytes of bodies, up and down.", "direction")
	m.up, m.down = bytes.WithLabelValues("up"), bytes.WithLabelValues("down")
	return m
}

// addCounters adds counts with labels.
func (m *Metrics) addCounters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

// AddGauge adds a value that is read when the metrics are fetched.
func (m *Metrics) AddGauge(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// AddCounter adds a count.
func (m *Metrics) AddCounter(name, help string) prometheus.Counter {
	return m.addCounters(name, help).WithLabelValues()
}

// NewMetricsHandler serves the metrics in the Prometheus text format.
func (m *Metrics) NewMetricsHandler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *Metrics) countExchange(e proxyapi.Exchange) {
	m.exchanges.WithLabelValues(e.Outcome, e.Code).Inc()
	m.seconds.Observe(e.Milliseconds / 1000)
	m.swapped.Add(float64(len(e.Swapped)))
	m.sanitized.Add(float64(e.Sanitized))
	m.redacted.Add(float64(e.Redacted))
	m.up.Add(float64(e.BytesUp))
	m.down.Add(float64(e.BytesDown))
}
