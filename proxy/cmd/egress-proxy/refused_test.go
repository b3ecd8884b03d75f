package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestRefusedConnections: a failed handshake of a run is an exchange of the run. Any other refused connection is counted
// and logged.
func TestRefusedConnections(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	j := receipt.NewJournal(receipt.Config{Log: log})
	events, cancel := j.Subscribe(proxyapi.RequestEvents)
	defer cancel()
	l, end := lease.NewDetached("run1", "", nil, nil)
	defer end()
	record := newRefusalRecorder(j, log)
	handshake := &entrance.HandshakeError{Err: errors.New("no hello")}
	for _, c := range []struct {
		l        *lease.Lease
		err      error
		exchange bool
	}{{nil, handshake, false}, {l, errors.New("too many"), false}, {nil, errors.New("no slot"), false}, {l, handshake, true}} {
		text.Reset()
		record(c.l, "slot 3", c.err)
		if logged := strings.Contains(text.String(), "connection refused"); logged == c.exchange {
			t.Errorf("%v of %v: %s", c.err, c.l, text.String())
		}
		select {
		case e := <-events:
			if !c.exchange || e.Exchange == nil || e.Exchange.Run != "run1" {
				t.Errorf("%v of %v: %+v", c.err, c.l, e.Exchange)
			}
		default:
			if c.exchange {
				t.Errorf("%v of %v: there is no exchange", c.err, c.l)
			}
		}
	}
	w := httptest.NewRecorder()
	j.Metrics().NewMetricsHandler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(w.Body.String(), "\ncodeforge_proxy_connections_refused_total 3\n") {
		t.Error(w.Body)
	}
	for range 200 {
		record(nil, "slot 3", errors.New("flood"))
	}
	if n := strings.Count(text.String(), "flood"); n < 10 || n > 60 {
		t.Errorf("%d lines of a flood", n)
	}
}
