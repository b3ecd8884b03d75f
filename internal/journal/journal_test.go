package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

func exchange(run, url string) controlapi.Event {
	return controlapi.Event{Exchange: &controlapi.Exchange{Run: run, URL: url, Outcome: controlapi.OutcomeServed, Sanitized: 1}}
}

// TestRecordAndFollow: events are recorded, also after the stream broke, and Follow sees them.
func TestRecordAndFollow(t *testing.T) {
	state := t.TempDir()
	socket := filepath.Join(t.TempDir(), "c.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var streams atomic.Int32
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := streams.Add(1)
		enc := json.NewEncoder(w)
		_ = enc.Encode(controlapi.Event{Catalog: "v"}) // not kept
		_ = enc.Encode(exchange("r1", map[int32]string{1: "first", 2: "second"}[min(n, 2)]))
		_, _ = w.Write([]byte("\n"))
		if n == 2 {
			_ = enc.Encode(controlapi.Event{Receipt: &controlapi.Receipt{Run: "r1", Count: controlapi.Count{Exchanges: 2}}})
		}
		if n >= 2 {
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Hour) // until the connection is cut below
		}
	})}
	go func() { _ = srv.Serve(l) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan controlapi.Event, 16)
	go func() { _, _ = Show(ctx, state, Query{Follow: true}, func(e controlapi.Event) { seen <- e }) }()
	done := make(chan error, 1)
	client := controlapi.NewClient(socket)
	go func() { done <- Record(ctx, state, client) }()
	var urls []string
	for range 2 {
		select {
		case e := <-seen:
			if e.Exchange != nil {
				urls = append(urls, e.Exchange.URL)
			}
		case <-time.After(time.Minute):
			t.Fatal("an event did not arrive")
		}
	}
	if len(urls) != 2 || urls[0] != "first" || urls[1] != "second" {
		t.Errorf("followed %v", urls)
	}
	cancel()
	_ = srv.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	r, ok, err := Receipt(state, "r1")
	if err != nil || !ok || r.Count.Exchanges != 2 {
		t.Errorf("receipt %+v, %v, %v", r, ok, err)
	}
}

// TestCaused: what calls made servers send stands below them, whether it came before the receipt or after it, and
// whether or not there is one; what another run's calls caused does not.
func TestCaused(t *testing.T) {
	call := controlapi.Exchange{Run: "aaa1", URL: "https://mcp.codeforge.internal/git/log", APIs: []string{"git"}, Outcome: controlapi.OutcomeServed}
	caused := func(run, url string) controlapi.Event {
		return controlapi.Event{Caused: &controlapi.Caused{Cause: controlapi.Cause{Run: run, Call: "git.log", Among: 1}, Exchanges: []controlapi.Exchange{{URL: url}}}}
	}
	receipt := controlapi.Event{Receipt: &controlapi.Receipt{Run: "aaa1", Exchanges: []controlapi.Exchange{call, call}}}
	one := controlapi.Event{Exchange: &call}
	for name, events := range map[string][]controlapi.Event{
		"before and after": {one, caused("aaa1", "1"), one, caused("aaa2", "x"), receipt, caused("aaa1", "2")},
		"no receipt":       {one, caused("aaa1", "1"), one, caused("aaa1", "2"), caused("bbb", "x")},
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			if err := os.MkdirAll(filepath.Join(state, "log"), 0o700); err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			for _, e := range events {
				testkit.Must(t, json.NewEncoder(&b).Encode(e))
			}
			if err := os.WriteFile(filepath.Join(state, Name), b.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, run := range []string{"aaa1", ""} {
				r, ok, err := Receipt(state, run)
				if err != nil || !ok || len(r.Exchanges) != 2 || len(r.Exchanges[0].Caused) != 1 || len(r.Exchanges[1].Caused) != 1 ||
					r.Exchanges[0].Caused[0].URL != "1" || r.Exchanges[1].Caused[0].URL != "2" {
					t.Errorf("Receipt(%q): %+v, %v, %v", run, r, ok, err)
				}
			}
		})
	}
}

// TestReceipt: a receipt is found by a prefix, as the last one, or assembled from exchanges.
func TestReceipt(t *testing.T) {
	state := t.TempDir()
	if _, ok, err := Receipt(state, ""); ok || err != nil {
		t.Errorf("an empty folder has a receipt: %v", err)
	}
	path := filepath.Join(state, Name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	enc := json.NewEncoder(f)
	for _, e := range []controlapi.Event{
		exchange("aaa1", "x"), {Receipt: &controlapi.Receipt{Run: "aaa1", Generation: 1}},
		exchange("bbb1", "x"), {Receipt: &controlapi.Receipt{Run: "bbb1", Generation: 2}},
		exchange("ccc1", "x"), exchange("ccc1", "y"),
		exchange("server-git", "z"), {Receipt: &controlapi.Receipt{Run: "server-git"}},
	} {
		if err := enc.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	_ = f.Close()
	for want, run := range map[string]string{"aaa1": "aa", "bbb1": "", "ccc1": "ccc1", "server-git": "server"} {
		r, ok, err := Receipt(state, run)
		if err != nil || !ok || r.Run != want {
			t.Errorf("Receipt(%q) = %q, %v, %v; want %q", run, r.Run, ok, err, want)
		}
	}
	if r, _, _ := Receipt(state, "ccc"); r.Count.Exchanges != 2 || r.Count.Sanitized != 2 {
		t.Errorf("assembled: %+v", r.Count)
	}
}
