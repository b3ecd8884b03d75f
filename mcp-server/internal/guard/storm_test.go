package guard

import (
	"context"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// TestLimitStorm: in a storm of connections of every kind a client that stays is never closed or refused, each request
// is served under its own name, and nothing is left of the bookkeeping.
// Promise: no-lock-out
func TestLimitStorm(t *testing.T) {
	const most = 40
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := LimitConns(inner, most).(*limitedListener)
	as := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
	}
	g := New(Config{Token: secret.New("op"), Tenant: func(token string) (string, http.Handler) {
		if strings.HasPrefix(token, "t") {
			return token, as(token)
		}
		return "", nil
	}})
	server := &http.Server{Handler: g.SplitRequests(g.RequireClient(as("op")), nil), ConnContext: ConnContext, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }()
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
	defer stop()
	var wg sync.WaitGroup
	var wrong, flood, served atomic.Int64
	for range 6 { // strangers
		wg.Go(func() {
			var held []net.Conn
			for ctx.Err() == nil {
				c, err := net.DialTimeout("tcp", inner.Addr().String(), time.Second)
				if err != nil {
					continue
				}
				flood.Add(1)
				switch rand.Intn(4) {
				case 0:
					_, _ = io.WriteString(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
				case 1:
					_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer no\r\n\r\n")
				case 2:
					_, _ = io.WriteString(c, "GET / HT")
				}
				if held = append(held, c); len(held) > 30 {
					_ = held[0].Close()
					held = held[1:]
				}
				time.Sleep(time.Millisecond)
			}
			for _, c := range held {
				_ = c.Close()
			}
		})
	}
	ask := func(c *http.Client, token string) (int, string, error) {
		req, _ := http.NewRequest("GET", "http://"+strings.Replace(inner.Addr().String(), "127.0.0.1", "localhost", 1)+"/mcp", nil)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := c.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text), nil
	}
	for i := range 4 { // clients with a token each that stay, or come anew
		token := []string{"op", "t1", "t2", "t1"}[i]
		wg.Go(func() {
			tr := &http.Transport{MaxIdleConnsPerHost: 1}
			c, had := &http.Client{Transport: tr, Timeout: 5 * time.Second}, false
			for n := 0; ctx.Err() == nil; n++ {
				status, text, err := ask(c, token)
				if err == nil && status == 200 {
					served.Add(1)
				}
				if err != nil && had || err == nil && (status == 200 && text != token || status != 200) {
					wrong.Add(1)
					t.Logf("%s: %d %q %v", token, status, text, err)
				}
				if had = err == nil; n%50 == 49 {
					tr.CloseIdleConnections()
					had = false
				}
				time.Sleep(time.Millisecond)
			}
			tr.CloseIdleConnections()
		})
	}
	wg.Wait()
	_ = server.Close()
	time.Sleep(100 * time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("%d connections of strangers, %d requests served", flood.Load(), served.Load())
	if wrong.Load() > 0 || len(l.room) != 0 || l.strangers.Len() != 0 || len(l.tenants) != 0 {
		t.Errorf("%d wrong; left: room %d, strangers %d, tenants %v", wrong.Load(), len(l.room), l.strangers.Len(), l.tenants)
	}
}

// TestLimitTakenToken: whoever had a token that was taken away keeps no connection with requests without one, neither from
// others nor from who has the tenant's name now.
// Promise: no-lock-out
func TestLimitTakenToken(t *testing.T) {
	const most = 8
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var token atomic.Value
	token.Store("stolen")
	g := New(Config{Token: secret.New("op"), Tenant: func(text string) (string, http.Handler) {
		if text != token.Load() {
			return "", nil
		}
		return "alice", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "alice") })
	}})
	mux := http.NewServeMux()
	mux.Handle("/mcp", g.RequireClient(http.NotFoundHandler()))
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Handler: g.SplitRequests(mux, nil), ConnContext: ConnContext, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(LimitConns(inner, most)) }()
	defer server.Close()
	ask := func(c net.Conn, path, token string) string {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, token)
		line := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(c, line); err != nil {
			return err.Error()
		}
		rest := make([]byte, 4096) // the rest of the answer, which is short
		_, _ = c.Read(rest)
		return string(line[9:])
	}
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	var held []net.Conn
	for range most / 2 {
		c := dial()
		if got := ask(c, "/mcp", "stolen"); got != "200" {
			t.Fatal(got)
		}
		held = append(held, c)
	}
	token.Store("new")
	for i, c := range held {
		if got, want := ask(c, []string{"/healthz", "/mcp"}[i%2], "stolen"), []string{"200", "401"}[i%2]; got != want {
			t.Fatal(got)
		}
	}
	if got := ask(dial(), "/mcp", "new"); got != "200" {
		t.Errorf("the tenant with its new token: %s", got)
	}
}
