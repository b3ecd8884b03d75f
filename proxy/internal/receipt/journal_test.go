package receipt

import (
	"bytes"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestDrain returns each exchange once, and leaves those that another run has caused to it.
func TestDrain(t *testing.T) {
	r := NewRecorder("s", "t", 7)
	for _, cause := range []string{"", "ra", "rb"} {
		e := proxyapi.Exchange{URL: "for " + cause}
		if cause != "" {
			e.CausedBy = &proxyapi.Cause{Run: cause}
		}
		r.AddExchange(e, nil)
	}
	for _, c := range []struct{ run, want string }{{"ra", "for , for ra"}, {"ra", ""}, {"", "for rb"}, {"", ""}} {
		got := r.TakeExchanges(c.run)
		var list []string
		for _, e := range got.Exchanges {
			list = append(list, e.URL)
		}
		if text := strings.Join(list, ", "); text != c.want || got.Run != "s" || got.Tenant != "t" || got.Generation != 7 || got.Exchanges == nil {
			t.Errorf("for %q: %q, %+v", c.run, text, got)
		}
	}
	if left := r.CopyReceipt(); left.Run != "s" || left.Count.Exchanges != 0 || left.Exchanges == nil {
		t.Errorf("afterwards %+v", left)
	}
}

// TestAlarm reaches the receipt, the log, the ledger, the metrics and the subscribers, without the credential itself.
func TestAlarm(t *testing.T) {
	var logs bytes.Buffer
	var kept []ledger.Entry
	clean := func(s string) string { return strings.ReplaceAll(s, "canary-9f31", "NAME") }
	j := NewJournal(Config{Log: logline.New(&logs, "text", nil), Clean: clean, Ledger: func(e ledger.Entry) error {
		kept = append(kept, e)
		return nil
	}})
	events, cancel := j.Subscribe(proxyapi.AlarmEvents)
	defer cancel()
	rec := NewRecorder("run", "", 1)
	for _, run := range []string{"first", "second"} {
		j.RecordAlarm(3, rec, proxyapi.Alarm{Run: run, Kind: proxyapi.AlarmCanary, Method: "GET canary-9f31", Host: "canary-9f31.test"})
	}
	j.RecordAlarm(3, nil, proxyapi.Alarm{Run: "third", Kind: proxyapi.AlarmCredential})
	if a := rec.CopyReceipt().Alarm; a == nil || a.Run != "first" || a.Host != "NAME.test" || a.Method != "GET NAME" || a.At.IsZero() {
		t.Errorf("the receipt: %+v", a)
	}
	if len(kept) != 3 || kept[0].Alarm.Host != "NAME.test" || len(events) != 3 {
		t.Errorf("%d in the ledger, %d events", len(kept), len(events))
	}
	if e := <-events; e.Alarm == nil || e.Alarm.Host != "NAME.test" {
		t.Errorf("the event: %+v", e)
	}
	if text := logs.String(); strings.Count(text, "[alarm]") != 3 || strings.Contains(text, "canary-9f31") {
		t.Errorf("the log: %s", text)
	}
	w := httptest.NewRecorder()
	j.Metrics().NewMetricsHandler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{`codeforge_proxy_alarms_total{kind="canary"} 2`, `codeforge_proxy_alarms_total{kind="credential"} 1`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in the metrics: %s", want, w.Body)
		}
	}
}

// TestLogLine has what the exchange has, and leaves the rest out.
func TestLogLine(t *testing.T) {
	var logs bytes.Buffer
	j := NewJournal(Config{Log: logline.New(&logs, "text", nil)})
	parts := []string{"tenant=", "caused_by=", "code=", "cause=", "[inject]", "[redact]", "[sanitize]"}
	j.RecordExchange(Note{Exchange: proxyapi.Exchange{Run: "r", Outcome: proxyapi.OutcomeServed}})
	for _, part := range parts {
		if strings.Contains(logs.String(), part) {
			t.Errorf("%s of nothing: %s", part, logs.String())
		}
	}
	logs.Reset()
	j.RecordExchange(Note{Slot: 3, Cause: errors.New("why"), Exchange: proxyapi.Exchange{
		Run: "r", Tenant: "t1", CausedBy: &proxyapi.Cause{Run: "r2"}, Code: "c1", Outcome: proxyapi.OutcomeFailed, Status: 502, Milliseconds: 1.5,
		BytesUp: 5, BytesDown: 6, Method: "GET", URL: "https://a.test/", Redacted: 1, Sanitized: 1, Swapped: []proxyapi.Swap{{Name: "TOKEN"}},
	}})
	for _, part := range append(parts, "[error]", "slot=3", "run=r", "status=502", "up=5", "down=6", "took=1.5ms", "tenant=t1", "caused_by=r2", "code=c1",
		"cause=why", "GET https://a.test/") {
		if !strings.Contains(logs.String(), part) {
			t.Errorf("no %s: %s", part, logs.String())
		}
	}
	for tag, e := range map[string]proxyapi.Exchange{
		"[restrict]": {Code: "method_restricted", Outcome: proxyapi.OutcomeDenied}, "[deny]": {Outcome: proxyapi.OutcomeDenied}, "[req]": {Outcome: proxyapi.OutcomeServed},
	} {
		logs.Reset()
		if j.RecordExchange(Note{Exchange: e}); !strings.Contains(logs.String(), tag) {
			t.Errorf("%+v: %s", e, logs.String())
		}
	}
}

// TestMetrics counts what exchanges changed and moved.
func TestMetrics(t *testing.T) {
	j := NewJournal(Config{Log: logline.New(&bytes.Buffer{}, "text", nil)})
	j.Metrics().AddGauge("codeforge_proxy_test", "A gauge.", func() float64 { return 77 })
	j.Metrics().AddCounter("codeforge_proxy_test_total", "A counter.").Add(5)
	for range 2 {
		j.RecordExchange(Note{Exchange: proxyapi.Exchange{
			Outcome: proxyapi.OutcomeServed, Code: "c", Swapped: make([]proxyapi.Swap, 2), Sanitized: 3, Redacted: 4, BytesUp: 5, BytesDown: 6, Milliseconds: 250,
		}})
	}
	w := httptest.NewRecorder()
	j.Metrics().NewMetricsHandler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`exchanges_total{code="c",outcome="served"} 2`, `exchange_seconds_sum 0.5`, `replacements_total{kind="swapped"} 4`, `replacements_total{kind="sanitized"} 6`,
		`replacements_total{kind="redacted"} 8`, `body_bytes_total{direction="up"} 10`, `body_bytes_total{direction="down"} 12`,
		`codeforge_proxy_test 77`, `codeforge_proxy_test_total 5`, `alarms_total{kind="canary"} 0`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in the metrics: %s", want, w.Body)
		}
	}
}

// TestSubscribe gives a subscriber the events of its kind, cleaned, and the number of those that it has lost.
func TestSubscribe(t *testing.T) {
	j := NewJournal(Config{Log: logline.New(&bytes.Buffer{}, "text", nil), Clean: func(s string) string { return strings.ReplaceAll(s, "canary", "NAME") }})
	requests, cancel := j.Subscribe(proxyapi.RequestEvents)
	catalogs, cancel2 := j.Subscribe(proxyapi.CatalogEvents)
	defer cancel2()
	j.PublishEvent(proxyapi.Event{Catalog: "v"})
	j.PublishCaused(proxyapi.CausedRequests{Cause: proxyapi.Cause{Call: "of canary"}})
	if e := <-requests; e.Caused == nil || e.Caused.Call != "of NAME" || e.Lost != 0 || len(requests) != 0 || len(catalogs) != 1 {
		t.Errorf("%+v, and %d, %d more", e, len(requests), len(catalogs))
	}
	cause := &proxyapi.Cause{Run: "r", Call: "canary"}
	for range maxQueue + 3 {
		j.RecordExchange(Note{Exchange: proxyapi.Exchange{CausedBy: cause}})
	}
	e := <-requests
	if e.Lost != 0 || e.Exchange.CausedBy.Call != "NAME" || cause.Call != "canary" || e.Exchange.ID == "" {
		t.Errorf("%+v, the caller's %+v", e.Exchange, cause)
	}
	j.PublishCaused(proxyapi.CausedRequests{})
	for range maxQueue - 1 {
		e = <-requests
	}
	if e = <-requests; e.Lost != 3 || e.Caused == nil {
		t.Errorf("after a gap: %+v", e)
	}
	j.PublishCaused(proxyapi.CausedRequests{})
	if e = <-requests; e.Lost != 0 {
		t.Errorf("the gap again: %+v", e)
	}
	cancel()
	if j.PublishCaused(proxyapi.CausedRequests{}); len(requests) != 0 {
		t.Error("an event after the end")
	}
}
