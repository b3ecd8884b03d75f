package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// TestTraces: a collector gets the trace of a run with its exchanges, without a credential. Code cannot reach the
// collector, and chooses no text in the trace.
// Promise: never-printed
func TestTraces(t *testing.T) {
	world.RunInOneMode(t, "mcp-server decides it, and a container cannot reach the test's collector")
	got := make(chan *collector.ExportTraceServiceRequest, 10)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m collector.ExportTraceServiceRequest
		if body, err := io.ReadAll(r.Body); err != nil || proto.Unmarshal(body, &m) != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s %v", r.URL, err)
			return
		}
		got <- &m
	}))
	defer s.Close()
	w := world.Start(t, world.Config{Env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": s.URL}})
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
	if w.Leak(all) != "" || strings.Contains(strings.ToLower(all), "chosen-by-code") || strings.Contains(all, "httpbin.test") {
		t.Error("the trace has a credential, or a text of code")
	}
	if last := spans[len(spans)-1]; last.Name != "tools/call execute_code" || len(spans) < 3 || string(spans[0].ParentSpanId) != string(last.SpanId) || !strings.Contains(all, "HTTPBIN_TOKEN") {
		t.Errorf("%d spans, the last is %s", len(spans), last.Name)
	}
	if len(got) > 0 {
		t.Error("code has reached the collector")
	}
}
