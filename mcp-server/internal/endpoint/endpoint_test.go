package endpoint

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/guard"
)

// TestRetireConnections: a retiring endpoint answers a request on an idle connection, and then closes that connection. It
// closes connections that stay idle at the end.
// Promise: lost-pods-repeat-nothing
func TestRetireConnections(t *testing.T) {
	e, err := OpenEndpoint(t.Context(), Config{
		Listen: []string{"127.0.0.1:0"}, UIDs: []int{os.Getuid()}, Guard: guard.New(guard.Config{}),
		MCP: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler),
	})
	testkit.Must(t, err)
	served := make(chan error, 1)
	go func() { served <- e.Serve() }()
	client := &http.Client{Transport: &http.Transport{}}
	get := func() (isReused, isLast bool) {
		t.Helper()
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(c httptrace.GotConnInfo) { isReused = c.Reused },
		})
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.ListAddrs()[0].String()+"/healthz", nil)
		testkit.Must(t, err)
		answer, err := client.Do(r)
		testkit.Must(t, err)
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		testkit.Must(t, err)
		if answer.StatusCode != http.StatusOK {
			t.Fatal(answer.Status)
		}
		return isReused, answer.Close
	}
	for n, want := range map[int]int{60 << 10: http.StatusOK, 100 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+e.ListAddrs()[0].String()+"/healthz", nil)
		testkit.Must(t, err)
		r.Header.Set("X-Large", strings.Repeat("a", n))
		answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		testkit.Must(t, err)
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("a header of %d bytes: %s", n, answer.Status)
		}
	}
	if _, isLast := get(); isLast {
		t.Error("the connection closes before the endpoint retires")
	}
	retired := make(chan struct{})
	go func() {
		defer close(retired)
		e.RetireConnections(2 * time.Second)
	}()
	testkit.WaitFor(t, e.retiring.Load)
	if isReused, isLast := get(); !isReused || !isLast {
		t.Errorf("reused %v, last answer %v", isReused, isLast)
	}
	e.retiring.Store(false) // an idle connection, as of a client that sent nothing meanwhile
	if isReused, isLast := get(); isReused || isLast {
		t.Errorf("reused %v, last answer %v", isReused, isLast)
	}
	<-retired
	if isReused, _ := get(); isReused {
		t.Error("the idle connection is still open")
	}
	e.Close(context.WithoutCancel(t.Context()))
	testkit.Must(t, <-served)
}
