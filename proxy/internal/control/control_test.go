package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codeforge-mcp/codeforge/internal/database"
	"github.com/codeforge-mcp/codeforge/internal/dialguard"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/internal/unixsocket"
	"github.com/codeforge-mcp/codeforge/proxy/internal/brokerlink"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reload"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const canary = "sk_live_51canary0123456789"

const operations = `{"format":1,"server":"https://demo.test","operations":1,"types":0}
{"m":"GET","p":"/v1/things"}
`

// read is the text of an answer.
func read(body io.ReadCloser, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	return string(text), err
}

// newControl is a control API over a catalog of three APIs, one inactive and one an MCP server.
func newControl(t testing.TB) (*Control, *receipt.Journal) {
	t.Helper()
	apis := t.TempDir()
	for name, active := range map[string]bool{"demo": true, "off": false} {
		dir := filepath.Join(apis, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`{"description": "d", "domains": ["%s.test"], "credentials": {"%s_TOKEN": "%s"}, "active": %t}`,
			name, strings.ToUpper(name), canary+name, active)
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"types.d.ts": "type X = 1", "operations.jsonl": operations} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	server := filepath.Join(apis, "server")
	if err := os.Mkdir(server, 0o755); err != nil {
		t.Fatal(err)
	}
	text := `{"description": "s", "mcp": {"package": "npm:server@1.2.3", "env": {"A": "b"}, "timeout": 5}}`
	if err := os.WriteFile(filepath.Join(server, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log := logline.New(io.Discard, "text", nil)
	r := reload.New(reload.Config{Dir: apis})
	r.LoadFirst(log)
	j := receipt.NewJournal(receipt.Config{Log: log})
	var c *Control
	book := lease.NewTable(lease.Config{Lost: func(id slot.ID, rec proxyapi.Receipt) { c.RecordLost(id, rec) }})
	c = New(Config{Leases: book, Journal: j, Current: r.Current, Broker: &brokerlink.Broker{}, Ready: func() error { return nil }})
	return c, j
}

// serve listens on a real socket and returns a client for it.
func serve(t *testing.T, c *Control) *proxyapi.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.sock")
	l, err := unixsocket.Listen(t.Context(), path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Serve(ctx, l) }()
	client := proxyapi.NewClient(path)
	t.Cleanup(func() {
		client.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return client
}

// TestCaused: what a server sent because of a call is an event; what it sent for no call, or if it sent nothing, is
// none.
func TestCaused(t *testing.T) {
	control, journal := newControl(t)
	c := serve(t, control)
	reg := proxyapi.Registration{Generation: 7, Run: "server-server", APIs: []string{"server"}, Deadline: time.Now().Add(10 * time.Minute)}
	if err := c.RegisterRun(t.Context(), slot.Max, reg); err != nil {
		t.Fatal(err)
	}
	l, err := control.conf.Leases.AttachConn(slot.Max, io.NopCloser(nil))
	if err != nil {
		t.Fatal(err)
	}
	events, cancel := journal.Subscribe(proxyapi.RequestEvents)
	defer cancel()
	cause := proxyapi.Cause{Run: "r1", Call: "server.a tool", Among: 2}
	for i, cause := range []proxyapi.Cause{cause, {}, cause} {
		if i < 2 {
			journal.RecordExchange(receipt.Note{Exchange: proxyapi.Exchange{Run: "server-server", URL: fmt.Sprint("https://x/", i)}, Recorder: l.Recorder})
		}
		if _, err := c.DrainExchanges(t.Context(), slot.Max, 7, cause); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.UnregisterRun(t.Context(), slot.Max, 7, proxyapi.Summary{}); err != nil {
		t.Fatal(err)
	}
	<-events // the first exchange
	e := <-events
	if e.Caused == nil || e.Caused.Cause != cause || len(e.Caused.Exchanges) != 1 || e.Caused.Exchanges[0].URL != "https://x/0" {
		t.Errorf("the event is %+v", e)
	}
	<-events // the second one
	if e := <-events; e.Receipt == nil {
		t.Errorf("another event: %+v", e)
	}
}

// TestLedger: the checkpoint in the receipt of a run that sent something covers its end, which is on record by then. A
// run that sent nothing has none, and an MCP server is not a run.
// Promise: ledger
func TestLedger(t *testing.T) {
	control, journal := newControl(t)
	dir := t.TempDir()
	records, err := ledger.Open(ledger.Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = records.Close() })
	control.conf.Ledger = records
	c := serve(t, control)
	run := func(generation uint64, exchanges int) string {
		name := fmt.Sprintf("r%d", generation)
		testkit.Must(t, c.RegisterRun(t.Context(), 3, proxyapi.Registration{Generation: generation, Run: name, Deadline: time.Now().Add(time.Minute)}))
		l, err := control.conf.Leases.AttachConn(3, io.NopCloser(nil))
		testkit.Must(t, err)
		for range exchanges {
			journal.RecordExchange(receipt.Note{Exchange: proxyapi.Exchange{Run: name}, Recorder: l.Recorder})
		}
		rec, err := c.UnregisterRun(t.Context(), 3, generation, proxyapi.Summary{CodeSHA256: "abc", Client: "client " + canary + "demo"})
		testkit.Must(t, err)
		return rec.Audit
	}
	if got := run(1, 0); got != "" {
		t.Errorf("a run that sent nothing has the checkpoint %q", got)
	}
	head, err := ledger.ParseHead(run(2, 2))
	testkit.Must(t, err)
	report, err := ledger.Verify(ledger.Dir(dir), "", []ledger.KnownCheckpoint{{Head: head, Where: "the receipt"}})
	if err != nil || report.Compared != 1 || report.Unsigned != 0 || len(report.Findings) > 0 {
		t.Errorf("%+v, %v", report, err)
	}
	var last ledger.Record
	testkit.Must(t, ledger.EachRecord(ledger.Dir(dir), ledger.Query{}, func(r ledger.Record) error { last = r; return nil }))
	if last.N != head.Size-1 || last.Run == nil || last.Run.Run != "r2" || last.Run.Slot != 3 || last.Run.Generation != 2 || last.Run.CodeSHA256 != "abc" || last.Run.Count.Exchanges != 2 {
		t.Errorf("the last record is %+v", last)
	}
	reg := proxyapi.Registration{Generation: 3, Run: "server-server", APIs: []string{"server"}, Deadline: time.Now().Add(time.Minute)}
	testkit.Must(t, c.RegisterRun(t.Context(), slot.Max, reg))
	rec, err := c.UnregisterRun(t.Context(), slot.Max, 3, proxyapi.Summary{})
	if err != nil || rec.Audit != "" {
		t.Errorf("a server's end: %q, %v", rec.Audit, err)
	}
}

// TestLedgerOfLost: a run whose mcp-server has ended is in the ledger too, with what it sent, when its slot gets another
// run or the proxy ends.
// Promise: ledger
func TestLedgerOfLost(t *testing.T) {
	control, journal := newControl(t)
	dir := t.TempDir()
	records, err := ledger.Open(ledger.Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = records.Close() })
	control.conf.Ledger = records
	c := serve(t, control)
	for generation := range uint64(3) {
		name := fmt.Sprintf("r%d", generation+1)
		testkit.Must(t, c.RegisterRun(t.Context(), 3, proxyapi.Registration{Generation: generation + 1, Run: name, Deadline: time.Now().Add(time.Minute)}))
		l, err := control.conf.Leases.AttachConn(3, io.NopCloser(nil))
		testkit.Must(t, err)
		journal.RecordExchange(receipt.Note{Exchange: proxyapi.Exchange{Run: name}, Recorder: l.Recorder})
	}
	_, err = c.UnregisterRun(t.Context(), 3, 3, proxyapi.Summary{Outcome: "exited"})
	testkit.Must(t, err)
	testkit.Must(t, c.RegisterRun(t.Context(), 4, proxyapi.Registration{Generation: 1, Run: "r4", Deadline: time.Now().Add(time.Minute)}))
	control.conf.Leases.Close()
	var got []string
	testkit.Must(t, ledger.EachRecord(ledger.Dir(dir), ledger.Query{}, func(r ledger.Record) error {
		if r.Run != nil {
			got = append(got, fmt.Sprint(r.Run.Run, " ", r.Run.Outcome, " ", r.Run.Count.Exchanges))
		}
		return nil
	}))
	if want := "r1 lost 1, r2 lost 1, r3 exited 1, r4 lost 0"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", strings.Join(got, ", "), want)
	}
}

// TestLedgerCheck: mcp-server may ask whether the ledger is whole and fits what runs were given. It is not read again
// at once, and what was changed is found when it is.
// Promise: ledger
func TestLedgerCheck(t *testing.T) {
	control, _ := newControl(t)
	c := serve(t, control)
	if _, err := c.CheckLedger(t.Context(), nil); !errors.Is(err, proxyapi.ErrNotFound) {
		t.Errorf("without a ledger: %v", err)
	}
	dir := t.TempDir()
	records, err := ledger.Open(ledger.Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = records.Close() })
	control.conf.Ledger = records
	for range 3 {
		testkit.Must(t, records.AppendRecord(ledger.Entry{Login: &ledger.Login{Name: "GMAIL_TOKEN"}}))
	}
	head, err := records.WriteCheckpoint("r1")
	testkit.Must(t, err)
	known := []proxyapi.KnownHead{{Run: "r1", Audit: head.String()}, {Run: "r2", Audit: "none"}}
	check := func(again bool, known []proxyapi.KnownHead) proxyapi.LedgerCheck {
		t.Helper()
		if again {
			control.checked.last.Checked = time.Time{}
		}
		got, err := c.CheckLedger(t.Context(), known)
		testkit.Must(t, err)
		return got
	}
	if got := check(false, known); got.Records != 4 || got.Compared != 1 || len(got.Findings) > 0 || got.Head != head.String() || got.Unsigned != 0 {
		t.Errorf("a whole one: %+v", got)
	}
	days, err := ledger.Dir(dir).ListDays()
	testkit.Must(t, err)
	file := filepath.Join(dir, days[0])
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(file, bytes.Replace(text, []byte("GMAIL"), []byte("EMAIL"), 1), 0o600))
	if got := check(false, known); len(got.Findings) > 0 {
		t.Errorf("it was read again at once: %+v", got)
	}
	if got := check(true, known); len(got.Findings) == 0 || !strings.Contains(strings.Join(got.Findings, "\n"), "record 1 was changed") {
		t.Errorf("a changed one: %+v", got)
	}
	testkit.Must(t, os.WriteFile(file, text, 0o600))
	ahead := []proxyapi.KnownHead{{Run: "r3", Audit: strings.Replace(head.String(), "4 ", "9 ", 1)}}
	if got := check(true, ahead); len(got.Findings) != 1 || !strings.Contains(got.Findings[0], "the receipt of run r3 says 9") {
		t.Errorf("one whose end is missing: %+v", got)
	}
	if _, err := c.CheckLedger(t.Context(), make([]proxyapi.KnownHead, maxKnown+1)); err == nil {
		t.Error("more checkpoints than are compared were taken")
	}
}

func TestClient(t *testing.T) {
	control, journal := newControl(t)
	c := serve(t, control)
	ctx := context.Background()
	cat, err := c.FetchCatalog(ctx)
	if err != nil || len(cat.APIs) != 2 || cat.APIs[0].Name != "demo" || cat.APIs[0].Server != nil || cat.Version == "" || strings.Contains(fmt.Sprint(cat), canary) {
		t.Errorf("catalog: %+v, %v", cat, err)
	}
	want := mcpserver.Settings{Package: "npm:server@1.2.3", Env: map[string]string{"A": "b"}, Transport: "auto", State: "shared",
		TimeoutMS: 5000, ConnectTimeoutMS: 30000, IdleMS: 600000, MaxConcurrent: 8}
	if diff := cmp.Diff(&want, cat.APIs[1].Server); diff != "" {
		t.Error(diff)
	}
	if text, err := read(c.OpenTypes(ctx, "demo")); err != nil || text != "type X = 1" {
		t.Errorf("types: %q, %v", text, err)
	}
	if text, err := read(c.OpenOperations(ctx, "demo")); err != nil || text != operations || len(cat.APIs[0].Operations) != 64 {
		t.Errorf("operations: %q, %v, digest %q", text, err, cat.APIs[0].Operations)
	}
	for _, name := range []string{"off", "nothing", "../demo", "demo/config.json"} {
		if text, err := read(c.OpenOperations(ctx, name)); !errors.Is(err, proxyapi.ErrNotFound) {
			t.Errorf("operations of %q: %q, %v", name, text, err)
		}
		if text, err := read(c.OpenTypes(ctx, name)); !errors.Is(err, proxyapi.ErrNotFound) {
			t.Errorf("types of %q: %q, %v", name, text, err)
		}
	}
	reg := proxyapi.Registration{Generation: 7, Run: "r", APIs: []string{"demo"}, Deadline: time.Now().Add(time.Minute)}
	if err := c.RegisterRun(ctx, 3, reg); err != nil {
		t.Error(err)
	}
	if err := c.RegisterRun(ctx, 3, reg); !errors.Is(err, proxyapi.ErrFenced) {
		t.Errorf("again: %v", err)
	}
	if rec, err := c.DrainExchanges(ctx, 3, 7, proxyapi.Cause{}); err != nil || rec.Run != "r" || rec.Generation != 7 {
		t.Errorf("drained: %+v, %v", rec, err)
	}
	for _, bad := range []proxyapi.Cause{
		{Run: "r", Among: 1}, {Call: "git.log", Among: 1}, {Run: "r", Call: "git.log"}, {Run: "r", Call: "git.log", Among: -1},
		{Run: strings.Repeat("r", 65), Call: "git.log", Among: 1}, {Run: "r", Call: strings.Repeat("x", 1025), Among: 1},
	} {
		if _, err := c.DrainExchanges(ctx, 3, 7, bad); err == nil || errors.Is(err, proxyapi.ErrFenced) {
			t.Errorf("drained for %+v: %v", bad, err)
		}
	}
	if _, err := c.DrainExchanges(ctx, 3, 6, proxyapi.Cause{}); !errors.Is(err, proxyapi.ErrFenced) {
		t.Errorf("drained for an older generation: %v", err)
	}
	if _, err := c.UnregisterRun(ctx, 3, 6, proxyapi.Summary{}); !errors.Is(err, proxyapi.ErrFenced) {
		t.Errorf("older: %v", err)
	}
	if rec, err := c.UnregisterRun(ctx, 3, 7, proxyapi.Summary{}); err != nil || rec.Run != "r" || rec.Generation != 7 || rec.Exchanges == nil {
		t.Errorf("receipt: %+v, %v", rec, err)
	}
	if _, err := c.UnregisterRun(ctx, 3, 7, proxyapi.Summary{}); !errors.Is(err, proxyapi.ErrFenced) {
		t.Errorf("twice: %v", err)
	}
	if h, err := c.FetchHealth(ctx); err != nil || !h.Ready {
		t.Errorf("health: %+v, %v", h, err)
	}
	journal.RecordExchange(receipt.Note{Exchange: proxyapi.Exchange{Outcome: proxyapi.OutcomeServed}})
	if text, err := c.FetchMetrics(ctx); err != nil || !strings.Contains(text, `codeforge_proxy_exchanges_total{code="",outcome="served"} 1`) {
		t.Errorf("metrics: %s, %v", text, err)
	}
}

// A subscription misses nothing that is published after it began.
// TestInspection: whoever runs CodeForge sees inactive APIs and every mistake, and no credential.
// Promise: operators-socket
func TestInspection(t *testing.T) {
	apis := t.TempDir()
	for name, text := range map[string]string{
		"demo":   `{"description": "d", "domains": ["demo.test"], "credentials": {"DEMO_TOKEN": {"value": "` + canary + `", "in": ["query:key"]}}, "allowed_methods": ["GET"]}`,
		"off":    `{"description": "d", "domains": ["off.test"], "credentials": {"OFF_TOKEN": "` + canary + `2"}, "active": false}`,
		"broken": `{"description": "d", "domains": ["broken.test"], "credential": {"BROKEN_TOKEN": "` + canary + `3"}}`,
	} {
		if err := os.Mkdir(filepath.Join(apis, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(apis, name, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := logline.New(io.Discard, "text", nil)
	r := reload.New(reload.Config{Dir: apis})
	r.LoadFirst(log)
	s := New(Config{Leases: lease.NewTable(lease.Config{}), Journal: receipt.NewJournal(receipt.Config{Log: log}), Current: r.Current})
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/inspection", nil))
	text := w.Body.String()
	var got proxyapi.Inspection
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.APIs) != 2 || got.APIs[0].Name != "demo" || !got.APIs[0].Active || got.APIs[0].Credentials[0].In[0] != "query:key" || got.APIs[1].Name != "off" || got.APIs[1].Active {
		t.Errorf("%s", text)
	}
	if len(got.Problems) != 1 || got.Problems[0].Severity != "error" || got.Problems[0].API != "broken" || got.Problems[0].File != "apis/broken/config.json" || !strings.Contains(got.Problems[0].Text, "credential") {
		t.Errorf("%s", text)
	}
	if strings.Contains(text, canary) {
		t.Errorf("it holds a credential: %s", text)
	}
}

func TestSubscribe(t *testing.T) {
	control, journal := newControl(t)
	c := serve(t, control)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		events, err := c.Subscribe(ctx, proxyapi.CatalogEvents)
		if err != nil {
			t.Fatal(err)
		}
		requests, err := c.Subscribe(ctx, proxyapi.RequestEvents)
		if err != nil {
			t.Fatal(err)
		}
		journal.PublishEvent(proxyapi.Event{Exchange: &proxyapi.Exchange{Run: "r1"}})
		journal.PublishEvent(proxyapi.Event{Catalog: "v2"})
		journal.PublishEvent(proxyapi.Event{Receipt: &proxyapi.Receipt{Run: "r1"}})
		got := make(chan proxyapi.Event, 10)
		done := make(chan error, 1)
		go func() { done <- events.EachEvent(func(e proxyapi.Event) { got <- e }) }()
		if e := <-got; e.Catalog != "v2" {
			t.Errorf("event %+v", e)
		}
		var told []proxyapi.Event
		err = requests.EachEvent(func(e proxyapi.Event) {
			if told = append(told, e); len(told) == 2 {
				cancel()
			}
		})
		if err == nil || len(told) != 2 || told[0].Exchange == nil || told[1].Receipt == nil {
			t.Errorf("events %+v, %v", told, err)
		}
		if err := <-done; err == nil {
			t.Error("the stream ended without an error")
		}
		if len(got) > 0 {
			t.Errorf("another event: %+v", <-got)
		}
	}
}

func TestBadRequests(t *testing.T) {
	control, _ := newControl(t)
	good := fmt.Sprintf(`{"generation": 1, "run": "r", "deadline": %q}`, time.Now().Add(time.Minute).Format(time.RFC3339))
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"PUT", "/v1/slots/0", good, 204},
		{"PUT", "/v1/slots/0", good, 409},
		{"PUT", "/v1/slots/132", good, 400},
		{"PUT", "/v1/slots/-1", good, 400},
		{"PUT", "/v1/slots/01", good, 400},
		{"PUT", "/v1/slots/+1", good, 400},
		{"PUT", "/v1/slots/1", "", 400},
		{"PUT", "/v1/slots/1", "[]", 400},
		{"PUT", "/v1/slots/1", good + good, 400},
		{"PUT", "/v1/slots/1", strings.Replace(good, `"run"`, `"unknown": 1, "run"`, 1), 400},
		{"PUT", "/v1/slots/1", strings.Replace(good, `"r"`, `""`, 1), 400},
		{"PUT", "/v1/slots/1", strings.Replace(good, "1,", "0,", 1), 400},
		{"PUT", "/v1/slots/1", strings.Replace(good, "1,", "-1,", 1), 400},
		{"PUT", "/v1/slots/1", `{"generation": 1, "run": "r"}`, 400},
		{"PUT", "/v1/slots/1", `{"generation": 1, "run": "r", "deadline": "2001-01-01T00:00:00Z"}`, 400},
		{"PUT", "/v1/slots/1", strings.Replace(good, `"run"`, `"apis": ["off"], "run"`, 1), 400},
		{"PUT", "/v1/slots/1", strings.Replace(good, `"run"`, `"apis": ["nothing"], "run"`, 1), 400},
		// A tenant's run keeps its other APIs if one of its list is not active.
		{"PUT", "/v1/slots/2", strings.Replace(good, `"run"`, `"apis": ["demo", "off", "nothing"], "closed": true, "run"`, 1), 204},
		{"PUT", "/v1/slots/100", strings.Replace(good, `"run"`, `"apis": ["off"], "closed": true, "run"`, 1), 400},
		{"PUT", "/v1/slots/3", good + strings.Repeat(" ", maxBody-len(good)), 204},
		{"PUT", "/v1/slots/4", good + strings.Repeat(" ", 65<<10-len(good)), 400},
		{"DELETE", "/v1/slots/0", "", 400},
		{"DELETE", "/v1/slots/0?generation=x", "", 400},
		{"DELETE", "/v1/slots/0?generation=2", "", 409},
		{"DELETE", "/v1/slots/5?generation=1", "", 409},
		{"DELETE", "/v1/slots/0?generation=1", "", 200},
		{"POST", "/v1/slots/0", good, 405},
		{"GET", "/v1/nothing", "", 404},
		{"GET", "/v1/events", "", 400},
		{"GET", "/v1/events?of=all", "", 400},
		{"PUT", "/v1/slots/100", good, 400},
		{"PUT", "/v1/slots/100", strings.Replace(good, `"run"`, `"apis": ["demo"], "run"`, 1), 400}, // no MCP server
		{"PUT", "/v1/slots/100", strings.Replace(good, `"run"`, `"install": true, "run"`, 1), 400},  // no registry
		{"PUT", "/v1/slots/2", strings.Replace(good, `"run"`, `"install": true, "run"`, 1), 400},
		{"PUT", "/v1/slots/100", strings.Replace(good, `"run"`, `"apis": ["server"], "run"`, 1), 204},
		{"PUT", "/v1/slots/101", strings.Replace(good, `"run"`, `"apis": ["server", "server"], "run"`, 1), 400},
		{"POST", "/v1/slots/100/drain?generation=1", "", 200},
		{"POST", "/v1/slots/100/drain?generation=2", "", 409},
		{"POST", "/v1/slots/101/drain?generation=1", "", 409},
		{"POST", "/v1/slots/100/drain", "", 400},
		{"POST", "/v1/slots/132/drain?generation=1", "", 400},
		{"GET", "/v1/slots/100/drain?generation=1", "", 405},
		{"GET", "/v1/broker", "", 426},
		{"POST", "/v1/broker", "", 405},
		{"GET", "/debug/pprof/", "", 404},
	} {
		w := httptest.NewRecorder()
		control.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
		if w.Code != c.status {
			t.Errorf("%s %s %.60s: %d %s", c.method, c.path, c.body, w.Code, w.Body)
		}
	}
}

func FuzzControl(f *testing.F) {
	f.Add("PUT", "/v1/slots/1", `{"generation": 1, "run": "r", "deadline": "2100-01-01T00:00:00Z"}`)
	f.Add("DELETE", "/v1/slots/1?generation=1", "")
	f.Add("GET", "/v1/catalog/demo/types", "")
	control, _ := newControl(f)
	f.Fuzz(func(t *testing.T, method, path, body string) {
		req, err := http.NewRequest(method, "http://proxy"+path, strings.NewReader(body))
		if err != nil || strings.HasPrefix(req.URL.Path, "/v1/events") {
			return
		}
		w := httptest.NewRecorder()
		control.ServeHTTP(w, req)
		if w.Code >= 500 || strings.Contains(w.Body.String(), canary) {
			t.Errorf("%s %s %q: %d %s", method, path, body, w.Code, w.Body)
		}
	})
}

// TestDatabaseAddress: from the registration of a run on, no request reaches the database that the proxies share.
// Promise: several-proxies
func TestDatabaseAddress(t *testing.T) {
	if err := dialShared(t, 5439); !errors.Is(err, dialguard.ErrRefused) {
		t.Errorf("the database's address: %v", err)
	}
}

// dialShared checks the address of the proxies' database after the registration of a run. Each caller has another
// port, because closed addresses stay closed.
func dialShared(t *testing.T, port uint16) error {
	t.Helper()
	c, _ := newControl(t)
	var err error
	c.conf.Database, err = database.OpenPostgres(
		secret.New(fmt.Sprintf("postgres://x:y@127.0.0.1:%d/x?sslmode=disable", port)), "codeforge_proxy", time.Second)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = c.conf.Database.Close() })
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	guard := dialguard.Guard{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	if err := guard.CheckPort(to); err != nil {
		t.Fatalf("it is closed before: the check below proves nothing: %v", err)
	}
	testkit.Must(t, serve(t, c).RegisterRun(t.Context(), 0, proxyapi.Registration{
		Generation: 1, Run: "r", APIs: []string{"demo"}, Deadline: time.Now().Add(time.Minute),
	}))
	return guard.CheckPort(to)
}
