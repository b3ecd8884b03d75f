package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// onSocket is an HTTP client of the program's unix socket.
func (p *program) onSocket() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", p.socket)
	}}}
}

// methodOf is how a path is asked.
func methodOf(path string) string {
	if path == "console" || path == "server/approve" || path == "server/restart" || path == "runs/remove" {
		return http.MethodPost
	}
	return http.MethodGet
}

// TestOperatorOnSocketOnly: the operator's API answers on the socket without a token, and never on an address, not even
// with the token.
// Promise: operators-socket, accepted-tools
func TestOperatorOnSocketOnly(t *testing.T) {
	const token = "a-token-of-the-endpoint"
	p := start(t, 1, map[string]string{"MCP_AUTH_TOKEN": token}, "--history", t.TempDir())
	for _, path := range []string{
		"about", "buckets", "catalog", "inspection", "exchanges", "runs", "run", "history", "events", "runs/remove", "server/review", "server/log", "server/approve", "server/restart", "console",
	} {
		for _, client := range []*http.Client{http.DefaultClient, p.onSocket()} {
			req, err := http.NewRequestWithContext(t.Context(), methodOf(path), "http://"+p.addr+operatorapi.Prefix+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = "localhost"
			if client == http.DefaultClient {
				req.Header.Set("Authorization", "Bearer "+token)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var text []byte
			if path != "events" || resp.StatusCode != http.StatusOK { // a stream
				text, _ = io.ReadAll(resp.Body)
			}
			_ = resp.Body.Close()
			onAddress := strings.Contains(string(text), "the MCP endpoint is at /mcp")
			if onAddress != (client == http.DefaultClient) {
				t.Errorf("%s, on the address: %v: %d %s", path, client == http.DefaultClient, resp.StatusCode, text)
			}
		}
	}
}

// exchangeOf makes an exchange, each with another id.
func exchangeOf(run string) proxyapi.Event {
	return proxyapi.Event{Exchange: &proxyapi.Exchange{ID: rand.Text(), Run: run, At: time.Now()}}
}

// TestOperatorAnswers: what runs CodeForge, the catalog, and the exchanges of whatever has no receipt here, which are
// told and kept.
func TestOperatorAnswers(t *testing.T) {
	p := start(t, 3, nil, "--history", t.TempDir())
	op := operatorapi.Client{HTTP: p.onSocket()}
	about, err := op.About(t.Context())
	if err != nil || about.Token || about.Slots != 8 || about.Started.IsZero() { // SANDBOX_SLOTS, not the fake's
		t.Errorf("about: %+v, %v", about, err)
	}
	cat, err := op.Catalog(t.Context())
	if err != nil || len(cat.APIs) != 1 || cat.APIs[0].Name != "stripe" {
		t.Errorf("catalog: %+v, %v", cat, err)
	}
	if _, err := op.Run(t.Context(), ""); !errors.Is(err, operatorapi.ErrNotFound) {
		t.Errorf("no run: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen, ended := make(chan string, 1000), make(chan error, 1)
	go func() {
		ended <- op.Events(ctx, "", func(e operatorapi.HistoryEvent) {
			if e.Exchange != nil {
				seen <- e.Exchange.Run
			}
		})
	}()
	// The program may not have subscribed yet: events are sent until one arrives.
	for got := ""; got == ""; {
		p.proxy.PublishEvent(exchangeOf("server-git"))
		select {
		case got = <-seen:
			if got != "server-git" {
				t.Errorf("followed %s", got)
			}
		case <-time.After(50 * time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if s, err := op.History(t.Context()); err != nil || s.Mode != "full" || s.Exchanges == 0 || s.Problem != "" || s.Cursor == "" {
		t.Errorf("history: %+v, %v", s, err)
	}
	page, err := op.Exchanges(t.Context(), operatorapi.ExchangeFilter{Run: "server-", Limit: 1, Since: time.Now().Add(-time.Hour)}, "")
	if err != nil || len(page.Exchanges) != 1 {
		t.Errorf("exchanges: %+v, %v", page, err)
	}
	if page, err := op.Exchanges(t.Context(), operatorapi.ExchangeFilter{Run: "nobody"}, ""); err != nil || len(page.Exchanges) != 0 {
		t.Errorf("an unknown run: %+v, %v", page, err)
	}
}

// TestHistory: a run is kept with its client, code, output and receipt, also over a restart, is found by its words, and
// can be removed; another process reads it when the program has stopped. HISTORY=receipts keeps no code, and off nothing.
func TestHistory(t *testing.T) {
	dir := t.TempDir()
	p := start(t, 2, nil, "--history", dir)
	p.sandbox.SetScript(func(_ context.Context, r sandboxapi.RunRequest, emit func(sandboxapi.Event)) sandboxapi.Exit {
		emit(sandboxapi.Event{Stdout: "printed "})
		p.proxy.PublishEvent(proxyapi.Event{Exchange: &proxyapi.Exchange{ID: "x1", Run: r.Run, At: time.Now(), Host: "api.stripe.com"}})
		return sandboxapi.Exit{Reason: sandboxapi.Exited, WallMS: 5, MaxRSS: 1}
	})
	p.proxy.Receipt = func(r proxyapi.Registration) proxyapi.Receipt {
		both := []proxyapi.Exchange{{ID: "x1", Run: r.Run, Host: "api.stripe.com"}, {ID: "x2", Run: r.Run, Host: "api.stripe.com", APIs: []string{"stripe"}}}
		return proxyapi.Receipt{Run: r.Run, Exchanges: both, Count: proxyapi.Count{Exchanges: 2}}
	}
	const code = "// Late invoices\nconsole.log('zebrawort')"
	call(t, p.connect(t, nil), "execute_code", map[string]any{"code": code, "apis": []string{"stripe"}})
	op := operatorapi.Client{HTTP: p.onSocket()}
	check := func(op operatorapi.Client) string {
		t.Helper()
		if s, err := op.History(t.Context()); err != nil || s.Problem != "" {
			t.Fatalf("%+v %v", s, err)
		}
		page, err := op.Runs(t.Context(), operatorapi.RunFilter{Grep: "zebra invoices", API: "stripe", State: "ok"}, "")
		if err != nil || len(page.Runs) != 1 {
			t.Fatalf("%+v %v", page, err)
		}
		d, err := op.Run(t.Context(), "")
		if err != nil || d.ID != page.Runs[0].ID || d.Client != "test" || d.Protocol == "" || d.Code.Head != code || d.Output.Head[0].Text != "printed " ||
			len(d.Exchanges) != 2 || d.Generation == 0 || d.Title != "Late invoices" || d.Answer.Head != "printed " || len(d.Narrowed) != 1 {
			t.Errorf("%+v %v", d, err)
		}
		return d.ID
	}
	id := check(op)
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p.launch(t, nil, "--history", dir)
	check(op)
	if n, err := op.RemoveRuns(t.Context(), operatorapi.RunFilter{Run: id}); err != nil || n != 1 {
		t.Errorf("removed %d: %v", n, err)
	}
	if _, err := op.Run(t.Context(), id); !errors.Is(err, operatorapi.ErrNotFound) {
		t.Errorf("it is still there: %v", err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p.launch(t, map[string]string{"HISTORY": "receipts"}, "--history", dir)
	call(t, p.connect(t, nil), "execute_code", map[string]any{"code": code})
	_, _ = op.History(t.Context()) // when everything is written
	if d, err := op.Run(t.Context(), ""); err != nil || d.Kept || d.Title != "" || d.Count.Exchanges != 2 {
		t.Errorf("receipts: %+v %v", d, err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	p.launch(t, map[string]string{"HISTORY": "off"}, "--history", filepath.Join(dir, "off"))
	call(t, p.connect(t, nil), "execute_code", map[string]any{"code": code})
	if _, err := op.Runs(t.Context(), operatorapi.RunFilter{}, ""); err == nil || !strings.Contains(err.Error(), "HISTORY=off") {
		t.Errorf("off: %v", err)
	}
	kept, err := os.ReadDir(filepath.Join(dir, "off"))
	for _, e := range kept {
		if e.Name() != "skills" { // the folder of pins, which is not about runs
			t.Errorf("off keeps %s, %v", e.Name(), err)
		}
	}
}

// TestStopEndsStreams: a stop ends the stream of a reader in good order, instead of cutting it off when time is up.
func TestStopEndsStreams(t *testing.T) {
	p := start(t, 1, nil, "--history", t.TempDir())
	op := operatorapi.Client{HTTP: p.onSocket()}
	seen, ended := make(chan string, 100), make(chan error, 1)
	go func() {
		ended <- op.Events(t.Context(), "", func(operatorapi.HistoryEvent) {
			select {
			case seen <- "":
			default:
			}
		})
	}()
	for reading := false; !reading; {
		p.proxy.PublishEvent(exchangeOf("server-git"))
		select {
		case <-seen:
			reading = true
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestOperatorServers: what the user asks and decides about MCP servers, of which there are none here.
// Promise: operators-socket
func TestOperatorServers(t *testing.T) {
	p := start(t, 1, nil)
	op := operatorapi.Client{HTTP: p.onSocket()}
	_, review := op.Review(t.Context(), "x")
	_, log := op.Log(t.Context(), "x")
	for name, err := range map[string]error{
		"review": review, "log": log, "approve": op.Approve(t.Context(), "x", ""), "restart": op.Restart(t.Context(), "x"),
	} {
		if !errors.Is(err, operatorapi.ErrNoServer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, path := range []string{"approve", "restart"} { // what changes something is no link that can be followed
		resp, err := p.onSocket().Get("http://localhost" + operatorapi.Prefix + "server/" + path + "?server=x")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %s", path, resp.Status)
		}
	}
}

// rawSession is an MCP session that goes on at any program, by its ID alone.
type rawSession struct{ id string }

// begin begins a session at a program.
func begin(t *testing.T, p *program) *rawSession {
	t.Helper()
	s := &rawSession{}
	s.post(t, p, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"claude","version":"1"}}}`)
	s.post(t, p, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

// run runs code at a program, and returns the text of the answer.
func (s *rawSession) run(t *testing.T, p *program, code string) string {
	t.Helper()
	return s.post(t, p, fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":%q}}}`, code))
}

func (s *rawSession) post(t *testing.T, p *program, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url(), strings.NewReader(body))
	testkit.Must(t, err)
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if s.id != "" {
		req.Header.Set("Mcp-Session-Id", s.id)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	resp, err := http.DefaultClient.Do(req)
	testkit.Must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	testkit.Must(t, err)
	if s.id == "" { // later requests may run at a time
		s.id = resp.Header.Get("Mcp-Session-Id")
	}
	return string(text)
}

// TestFrozenAfterRestart: a session that an alarm has frozen stays so when it is begun anew, after a restart, until the
// operator frees it.
// Promise: canaries
func TestFrozenAfterRestart(t *testing.T) {
	pins := t.TempDir()
	p := start(t, 2, nil, "--pins", pins)
	p.sandbox.SetScript(func(ctx context.Context, r sandboxapi.RunRequest, emit func(sandboxapi.Event)) sandboxapi.Exit {
		emit(sandboxapi.Event{Stdout: "it runs"})
		if r.Code == "steal" {
			p.proxy.PublishEvent(proxyapi.Event{Alarm: &proxyapi.Alarm{At: time.Now(), Run: r.Run, Kind: proxyapi.AlarmCanary, Host: "thief.test"}})
			<-ctx.Done()
			return sandboxapi.Exit{Reason: sandboxapi.Cancelled}
		}
		return sandboxapi.Exit{Reason: sandboxapi.Exited}
	})
	session := begin(t, p)
	run := func(code string) string { return session.run(t, p, code) }
	run("steal")
	testkit.Must(t, p.stop())
	p.launch(t, nil, "--pins", pins)
	if got := run("more"); strings.Contains(got, "it runs") || !strings.Contains(got, "Frozen") {
		t.Errorf("after a restart: %s", got)
	}
	op := operatorapi.Client{HTTP: p.onSocket()}
	alarms, err := op.Alarms(t.Context())
	testkit.Must(t, err)
	testkit.Must(t, op.Unfreeze(t.Context(), alarms[0].Session))
	if got := run("more"); !strings.Contains(got, "it runs") {
		t.Errorf("freed: %s", got)
	}
}
