package telemetry

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

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
	rec, err2 := New(t.Context(), s.URL+"/", slog.New(slog.DiscardHandler))
	testkit.Must(t, err2)
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
	rec, err := New(t.Context(), s.URL, slog.New(slog.DiscardHandler))
	testkit.Must(t, err)
	rec.RecordRun(execution.RunRequest{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}, time.Now(), execution.Outcome{}, nil)
	testkit.Must(t, rec.Close(t.Context()))
	if spans != 1 {
		t.Errorf("%d spans", spans)
	}
}

// TestHostileCollector: the collector's answer leads to no other server, and fills no log.
func TestHostileCollector(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect, http.StatusBadRequest} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", other.URL)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, strings.Repeat("long ", 200_000))
		}))
		log := &testkit.Buffer{}
		rec, err := New(t.Context(), s.URL, slog.New(slog.NewTextHandler(log, nil)))
		testkit.Must(t, err)
		rec.RecordRun(execution.RunRequest{}, time.Now(), execution.Outcome{}, nil)
		_ = rec.Close(t.Context())
		if text := log.String(); elsewhere.Load() > 0 || len(text) == 0 || len(text) > 3*maxAnswer {
			t.Errorf("%d: %d requests elsewhere, a log of %d bytes", status, elsewhere.Load(), len(text))
		}
		s.Close()
	}
}

// TestUnused: without an endpoint there is no recorder, and nil records nothing.
func TestUnused(t *testing.T) {
	rec, err := New(t.Context(), "", nil)
	if rec != nil || err != nil {
		t.Fatal(rec, err)
	}
	rec.RecordRun(execution.RunRequest{}, time.Now(), execution.Outcome{}, nil)
	testkit.Must(t, rec.Close(t.Context()))
}

// TestSlowCollector: a collector that does not answer delays no run, and the queue is bounded.
func TestSlowCollector(t *testing.T) {
	done := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	defer s.Close()
	defer close(done)
	rec, err := New(t.Context(), s.URL, slog.New(slog.DiscardHandler))
	testkit.Must(t, err)
	began := time.Now()
	for range 10_000 {
		rec.RecordRun(execution.RunRequest{}, time.Now(), execution.Outcome{}, nil)
	}
	if took := time.Since(began); took > testkit.Patience/10 {
		t.Errorf("10,000 runs took %v", took)
	}
}
