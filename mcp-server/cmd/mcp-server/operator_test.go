package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/journal"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// onSocket is an HTTP client of the program's unix socket.
func (p *program) onSocket() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", p.socket)
	}}}
}

// methodOf is how a path is asked.
func methodOf(path string) string {
	if path == "server/approve" || path == "server/restart" {
		return http.MethodPost
	}
	return http.MethodGet
}

// TestOperatorOnSocketOnly: the operator's API answers on the socket without a token, and never on an address, not even
// with the token.
func TestOperatorOnSocketOnly(t *testing.T) {
	const token = "a-token-of-the-endpoint"
	p := start(t, 1, map[string]string{"MCP_AUTH_TOKEN": token}, "--journal", t.TempDir())
	for _, path := range []string{
		"about", "catalog", "inspection", "exchanges", "receipt", "server/review", "server/log", "server/approve", "server/restart",
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
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			onAddress := strings.Contains(string(text), "the MCP endpoint is at /mcp")
			if onAddress != (client == http.DefaultClient) {
				t.Errorf("%s, on the address: %v: %d %s", path, client == http.DefaultClient, resp.StatusCode, text)
			}
		}
	}
}

// TestOperatorAnswers: what runs CodeForge, the catalog, and the record of exchanges, which follows new ones.
func TestOperatorAnswers(t *testing.T) {
	p := start(t, 3, nil, "--journal", t.TempDir())
	op := operatorapi.Client{HTTP: p.onSocket()}
	about, err := op.About(t.Context())
	if err != nil || about.Token || about.Slots != 8 || about.Started.IsZero() { // SANDBOX_SLOTS, not the fake's
		t.Errorf("about: %+v, %v", about, err)
	}
	cat, err := op.Catalog(t.Context())
	if err != nil || len(cat.APIs) != 1 || cat.APIs[0].Name != "stripe" {
		t.Errorf("catalog: %+v, %v", cat, err)
	}
	if _, err := op.Receipt(t.Context(), ""); !errors.Is(err, operatorapi.ErrNotFound) {
		t.Errorf("no receipt: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen, ended := make(chan string, 16), make(chan error, 1)
	go func() {
		_, err := op.Exchanges(ctx, journal.Query{Run: "r", Follow: true}, func(e controlapi.Event) { seen <- e.Exchange.Run })
		ended <- err
	}()
	// The program may not have subscribed yet: events are sent until one arrives.
	for got := ""; got == ""; {
		p.proxy.Publish(controlapi.Event{Exchange: &controlapi.Exchange{Run: "other", At: time.Now()}})
		p.proxy.Publish(controlapi.Event{Exchange: &controlapi.Exchange{Run: "r1", At: time.Now()}})
		select {
		case got = <-seen:
			if got != "r1" {
				t.Errorf("followed %s", got)
			}
		case <-time.After(50 * time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	n, err := op.Exchanges(t.Context(), journal.Query{Run: "r1", Last: 1, Since: time.Now().Add(-time.Hour)}, func(controlapi.Event) {})
	if err != nil || n != 1 {
		t.Errorf("the last of run r1: %d, %v", n, err)
	}
	if n, err := op.Exchanges(t.Context(), journal.Query{Run: "nobody"}, func(controlapi.Event) {}); err != nil || n != 0 {
		t.Errorf("an unknown run: %d, %v", n, err)
	}
	if r, err := op.Receipt(t.Context(), "r1"); err != nil || r.Run != "r1" {
		t.Errorf("receipt: %+v, %v", r, err)
	}
}

// TestStopEndsStreams: a stop ends the stream of a reader in good order, instead of cutting it off when time is up.
func TestStopEndsStreams(t *testing.T) {
	p := start(t, 1, nil, "--journal", t.TempDir())
	op := operatorapi.Client{HTTP: p.onSocket()}
	seen, ended := make(chan string, 100), make(chan error, 1)
	go func() {
		_, err := op.Exchanges(t.Context(), journal.Query{Follow: true}, func(controlapi.Event) {
			select {
			case seen <- "":
			default:
			}
		})
		ended <- err
	}()
	for reading := false; !reading; {
		p.proxy.Publish(controlapi.Event{Exchange: &controlapi.Exchange{Run: "r1", At: time.Now()}})
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
