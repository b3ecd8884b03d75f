package telemetry

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	logspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// openRecorder returns a recorder of these signals.
func openRecorder(t *testing.T, url string, log *slog.Logger, signals ...string) *Recorder {
	t.Helper()
	rec, err := New(t.Context(), Config{Endpoint: url, Signals: signals, Interval: time.Hour, Log: log})
	testkit.Must(t, err)
	return rec
}

// record sends a run to a collector, and returns its spans and the text of the request.
func record(t *testing.T, r execution.RunRequest, o execution.Outcome, err error) (spans []*tracepb.Span, all string) {
	t.Helper()
	got := make(chan *collector.ExportTraceServiceRequest, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		testkit.Must(t, err)
		var m collector.ExportTraceServiceRequest
		testkit.Must(t, proto.Unmarshal(body, &m))
		if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %s", r.URL, r.Header)
		}
		got <- &m
	}))
	defer s.Close()
	rec := openRecorder(t, s.URL+"/", slog.New(slog.DiscardHandler), Traces)
	rec.RecordRun(r, time.Now().Add(-time.Second), o, err)
	testkit.Must(t, rec.Close(t.Context()))
	m := <-got
	return m.ResourceSpans[0].ScopeSpans[0].Spans, m.String()
}

// hostileMethod is what code may write as a method: a value, a new line and much more.
var hostileMethod = "sk_live_value\nnext: line" + strings.Repeat("x", 10_000)

// exchangeOf returns an exchange in which code wrote a text wherever it can.
func exchangeOf(text string) proxyapi.Exchange {
	return proxyapi.Exchange{ID: text, At: time.Now(), Method: text, URL: "https://" + text, Host: text, Outcome: proxyapi.OutcomeServed, Status: 200, Type: text, Milliseconds: 2,
		APIs: []string{"stripe"}, Swapped: []proxyapi.Swap{{Name: "STRIPE_TOKEN"}}}
}

// TestAttributes: no attribute has a text that code, an API or a model chose.
// Promise: never-printed
func TestAttributes(t *testing.T) {
	x := exchangeOf(hostileMethod)
	x.Caused = []proxyapi.Exchange{exchangeOf(hostileMethod)}
	spans, all := record(t, execution.RunRequest{Code: hostileMethod, Client: hostileMethod, Session: hostileMethod, Language: "sk_live_value", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		execution.Outcome{Run: "r1", Receipt: proxyapi.Receipt{Exchanges: []proxyapi.Exchange{x}}}, errors.New(hostileMethod))
	if len(spans) != 3 || strings.Contains(all, "sk_live") || strings.Contains(all, "next: line") || strings.Contains(all, "xxxx") {
		t.Errorf("%d spans\n%.2000s", len(spans), all)
	}
	for _, want := range []string{"_OTHER", "STRIPE_TOKEN", "stripe", "gen_ai.tool.name", "mcp.method.name", "http.response.status_code"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s in %.2000s", want, all)
		}
	}
	if id := fmt.Sprintf("%x", spans[2].TraceId); id != "0af7651916cd43dd8448eb211c80319c" || string(spans[1].ParentSpanId) != string(spans[2].SpanId) {
		t.Errorf("trace %s", id)
	}
}

// TestStatus: a run or an exchange without success is an error. Attributes without a value are left out.
func TestStatus(t *testing.T) {
	const set, failed = tracepb.Status_STATUS_CODE_UNSET, tracepb.Status_STATUS_CODE_ERROR
	for _, c := range []struct {
		code int
		err  error
		want tracepb.Status_StatusCode
	}{{0, nil, set}, {1, nil, failed}, {-1, nil, failed}, {0, io.EOF, failed}} {
		spans, _ := record(t, execution.RunRequest{}, execution.Outcome{Exit: sandboxapi.Exit{Code: c.code}}, c.err)
		if got := spans[0].GetStatus().GetCode(); len(spans) != 1 || got != c.want {
			t.Errorf("exit code %d, %v: %v", c.code, c.err, got)
		}
	}
	optional := []string{"codeforge.apis", "codeforge.credentials", "error.type", "mcp.method.name"}
	full := exchangeOf(http.MethodPost)
	full.Code, full.URL = "x", "https://"+proxyapi.ServersHost+"/git/log"
	for _, c := range []struct {
		x    proxyapi.Exchange
		want tracepb.Status_StatusCode
		all  bool
	}{
		{proxyapi.Exchange{Outcome: proxyapi.OutcomeServed, Method: "GET"}, set, false},
		{proxyapi.Exchange{Outcome: proxyapi.OutcomePlanned, Method: "GET"}, set, false},
		{proxyapi.Exchange{Outcome: proxyapi.OutcomeDenied, Method: "GET"}, failed, false},
		{full, set, true},
	} {
		spans, _ := record(t, execution.RunRequest{}, execution.Outcome{Receipt: proxyapi.Receipt{Exchanges: []proxyapi.Exchange{c.x}}}, nil)
		if got := spans[0].GetStatus().GetCode(); got != c.want {
			t.Errorf("%s: %v, want %v", c.x.Outcome, got, c.want)
		}
		for _, name := range optional {
			if has := strings.Contains(fmt.Sprint(spans[0].Attributes), name); has != c.all {
				t.Errorf("%s: %s is there: %t", c.x.Outcome, name, has)
			}
		}
	}
}

// TestSampler: a client cannot hide its run by the flag of its trace.
func TestSampler(t *testing.T) {
	spans := 0
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		testkit.Must(t, err)
		var m collector.ExportTraceServiceRequest
		testkit.Must(t, proto.Unmarshal(body, &m))
		spans += len(m.ResourceSpans[0].ScopeSpans[0].Spans)
	}))
	defer s.Close()
	rec := openRecorder(t, s.URL, slog.New(slog.DiscardHandler), Traces)
	rec.RecordRun(execution.RunRequest{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}, time.Now(), execution.Outcome{}, nil)
	testkit.Must(t, rec.Close(t.Context()))
	if spans != 1 {
		t.Errorf("%d spans", spans)
	}
}

// sendAll sends a run, the metrics and the lines of a logger with the signals, and closes the recorder, which logs
// problems to log.
func sendAll(t *testing.T, url string, log, lines *slog.Logger, signals ...string) error {
	t.Helper()
	rec := openRecorder(t, url, log, signals...)
	rec.RecordRun(execution.RunRequest{}, time.Now(), execution.Outcome{}, nil)
	metrics := prometheus.NewRegistry()
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "calls_total"}, []string{"tool"})
	calls.WithLabelValues("execute_code").Add(7)
	metrics.MustRegister(calls)
	testkit.Must(t, rec.ReportMetrics(t.Context(), metrics))
	l, err := rec.ExtendLogger(lines, strings.NewReplacer("internal-word", "REDACTED").Replace)
	testkit.Must(t, err)
	l.With(logline.Tag("mcp")).WithGroup("g").Warn("a line of internal-word", "key", "internal-word \xff"+strings.Repeat("x", 10_000), "err", errors.New("of internal-word"))
	l.Debug(">>> code-of-a-run", "body", "code-of-a-run")
	return rec.Close(t.Context())
}

// TestSignals: the collector gets the signals of the settings: the metrics with their labels, and the lines of standard
// error, redacted and cut. It gets no line of DEBUG_MODE.
// Promise: never-printed
func TestSignals(t *testing.T) {
	for _, signals := range [][]string{{Traces, Metrics, Logs}, {Metrics}, {Logs}, {}} {
		all, stderr := collectSignals(t, signals...)
		if got := slices.Sorted(maps.Keys(all)); strings.Join(got, " ") != strings.Join(slices.Sorted(slices.Values(signals)), " ") {
			t.Errorf("want %q, got %q", signals, got)
		}
		if text := all[Metrics]; text != "" && (!strings.Contains(text, "calls_total") || !strings.Contains(text, "execute_code") || !strings.Contains(text, "as_double:7") || !strings.Contains(text, "service.instance.id")) {
			t.Errorf("metrics: %s", text)
		}
		if text := all[Logs]; text != "" && (!strings.Contains(text, "a line of REDACTED") || !strings.Contains(text, "of REDACTED") || !strings.Contains(text, "WARN") || strings.Contains(text, "internal-word") || strings.Contains(text, "code-of-a-run") || len(text) > 2*maxLine) {
			t.Errorf("logs: %s", text)
		}
		if !strings.Contains(stderr, "a line of") || !strings.Contains(stderr, "code-of-a-run") || strings.Contains(stderr, "the collector does not accept") {
			t.Errorf("standard error: %s", stderr)
		}
	}
}

// collectSignals returns the text of each signal that a collector gets, and standard error.
func collectSignals(t *testing.T, signals ...string) (all map[string]string, stderr string) {
	t.Helper()
	all = map[string]string{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/v1/")
		m := map[string]proto.Message{Traces: &collector.ExportTraceServiceRequest{}, Metrics: &metricspb.ExportMetricsServiceRequest{}, Logs: &logspb.ExportLogsServiceRequest{}}[name]
		body, err := io.ReadAll(r.Body)
		testkit.Must(t, err)
		testkit.Must(t, proto.Unmarshal(body, m))
		all[name] += strings.ReplaceAll(fmt.Sprint(m), "  ", " ")
	}))
	defer s.Close()
	log := &testkit.Buffer{}
	stderrLog := logline.New(log, "text", nil)
	testkit.Must(t, sendAll(t, s.URL, stderrLog, stderrLog, signals...))
	return all, log.String()
}

// TestHostileCollector: the collector's answer leads to no other server, and fills no log.
func TestHostileCollector(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect, http.StatusBadRequest} {
		for _, signal := range []string{Traces, Metrics, Logs} {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", other.URL)
				w.WriteHeader(status)
				_, _ = io.WriteString(w, strings.Repeat("long ", 200_000))
			}))
			log := &testkit.Buffer{}
			err := sendAll(t, s.URL, slog.New(slog.NewTextHandler(log, nil)), slog.New(slog.DiscardHandler), signal)
			if text := fmt.Sprint(err, log); elsewhere.Load() > 0 || text == "<nil>" || len(text) > 3*maxAnswer {
				t.Errorf("%s, %d: %d requests elsewhere, %d bytes: %.1000s", signal, status, elsewhere.Load(), len(text), text)
			}
			s.Close()
		}
	}
}

// TestRareLines: a collector that refuses each request causes one line in a minute, which is not sent to it.
func TestRareLines(t *testing.T) {
	requests := atomic.Int32{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer s.Close()
	log := &testkit.Buffer{}
	rec, err := New(t.Context(), Config{Endpoint: s.URL, Signals: []string{Metrics}, Interval: time.Millisecond, Log: logline.New(log, "text", nil)})
	testkit.Must(t, err)
	testkit.Must(t, rec.ReportMetrics(t.Context(), prometheus.NewRegistry()))
	testkit.WaitFor(t, func() bool { return requests.Load() > 20 })
	_ = rec.Close(t.Context())
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "404") {
		t.Errorf("%d lines: %s", n, log)
	}
}

// TestUnused: without an endpoint there is no recorder, and nil records nothing.
func TestUnused(t *testing.T) {
	rec, err := New(t.Context(), Config{Signals: []string{Traces, Metrics, Logs}})
	if rec != nil || err != nil {
		t.Fatal(rec, err)
	}
	before, log := runtime.NumGoroutine(), slog.New(slog.DiscardHandler)
	rec.RecordRun(execution.RunRequest{}, time.Now(), execution.Outcome{}, nil)
	testkit.Must(t, rec.ReportMetrics(t.Context(), prometheus.NewRegistry()))
	if l, err := rec.ExtendLogger(log, nil); l != log || err != nil || runtime.NumGoroutine() > before {
		t.Error(l, err)
	}
	testkit.Must(t, rec.Close(t.Context()))
}

// TestSlowCollector: a collector that does not answer delays no run and no line, and the queues are bounded.
func TestSlowCollector(t *testing.T) {
	done := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	defer s.Close()
	defer close(done)
	log := slog.New(slog.DiscardHandler)
	rec := openRecorder(t, s.URL, log, Traces, Logs)
	l, err := rec.ExtendLogger(log, strings.Clone)
	testkit.Must(t, err)
	began, before := time.Now(), readHeap()
	for range 20_000 {
		rec.RecordRun(execution.RunRequest{}, time.Now(), execution.Outcome{}, nil)
		l.Info("a line", "key", strings.Repeat("x", 2*maxLine))
	}
	if took := time.Since(began); took > testkit.Patience/10 {
		t.Errorf("20,000 runs took %v", took)
	}
	// Without bounds, the lines alone would take 40 MB.
	if grew := readHeap() - before; grew > 20<<20 {
		t.Errorf("the queues take %d bytes", grew)
	}
}

// readHeap returns the memory in use after a collection, in bytes.
func readHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
