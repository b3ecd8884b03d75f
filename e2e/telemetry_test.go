package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// TestTelemetry: a collector gets the trace of a run with its exchanges, the metrics and the log lines, without a
// credential. Code cannot reach the collector, and chooses no text in the trace and the metrics.
// Promise: never-printed
func TestTelemetry(t *testing.T) {
	world.RunInOneMode(t, "mcp-server decides it, and a container cannot reach the test's collector")
	got := make(chan *collector.ExportTraceServiceRequest, 10)
	var mu sync.Mutex
	texts := map[string]string{} // by path
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		trace := &collector.ExportTraceServiceRequest{}
		m := map[string]proto.Message{"/v1/traces": trace, "/v1/metrics": &metricspb.ExportMetricsServiceRequest{}, "/v1/logs": &logspb.ExportLogsServiceRequest{}}[r.URL.Path]
		body, err := io.ReadAll(r.Body)
		if err != nil || m == nil || proto.Unmarshal(body, m) != nil {
			t.Errorf("%s %v", r.URL, err)
			return
		}
		mu.Lock()
		texts[r.URL.Path] += fmt.Sprint(m, r.Header)
		mu.Unlock()
		if r.URL.Path == "/v1/traces" {
			got <- trace
		}
	}))
	defer s.Close()
	w := world.Start(t, world.Config{Env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": s.URL, "OTEL_METRIC_EXPORT_INTERVAL": "1000", "DEBUG_MODE": "true"}})
	code := fmt.Sprintf(script, "traces") + `
for (const [to, method] of [["https://httpbin.test/get?word=chosen-by-code", "CHOSEN-BY-CODE"], ["https://chosen-by-code.test/", "GET"], ["` + s.URL + `/v1/traces", "POST"]]) {
  try { await (await fetch(to, { method, headers: { "X-Word": "chosen-by-code" } })).text(); } catch {}
}`
	r, err := w.Do(within(t, 60), w.Session(), world.Run{Code: code})
	if err != nil || !strings.HasPrefix(r.Out, "200 HTTPBIN_TOKEN\n") {
		t.Fatal(err, r.Out)
	}
	var m *collector.ExportTraceServiceRequest
	select {
	case m = <-got:
	case <-time.After(30 * time.Second):
		t.Fatal("no trace came")
	}
	all, spans := m.String(), m.ResourceSpans[0].ScopeSpans[0].Spans
	t.Logf("%.3000s", all)
	if strings.Contains(all, "httpbin.test") {
		t.Error("the trace has a host")
	}
	if last := spans[len(spans)-1]; last.Name != "tools/call execute_code" || len(spans) < 3 || string(spans[0].ParentSpanId) != string(last.SpanId) || !strings.Contains(all, "HTTPBIN_TOKEN") {
		t.Errorf("%d spans, the last is %s", len(spans), last.Name)
	}
	for path, words := range map[string][]string{
		"/v1/metrics": {"codeforge_mcp_tool_calls_total", `"execute_code"`, "codeforge_proxy_exchanges_total", `"served"`},
		"/v1/logs":    {`"listening"`, `"sandbox"`},
	} {
		for _, word := range words {
			read := func() string { mu.Lock(); defer mu.Unlock(); return texts[path] }
			for range 300 {
				if strings.Contains(read(), word) {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			if text := read(); !strings.Contains(text, word) {
				t.Errorf("%s has no %s: %.3000s", path, word, text)
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for path, text := range texts {
		if w.Leak(text) != "" || strings.Contains(strings.ToLower(text), "chosen-by-code") {
			t.Errorf("%s has a credential, or a text of code: %.3000s", path, text)
		}
	}
	if len(got) > 0 {
		t.Error("code has reached the collector")
	}
}
