package control

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/brokerlink"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// connect makes a handler the broker of a proxy and waits until it is. stop disconnects it and returns why it ended.
func connect(t *testing.T, c *proxyapi.Client, b *brokerlink.Broker, h http.HandlerFunc) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.ServeBroker(ctx, h) }()
	stop = func() error { cancel(); return <-done }
	testkit.WaitFor(t, b.IsConnected)
	return stop
}

func call(t *testing.T, ctx context.Context, b *brokerlink.Broker, path, body string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://elsewhere.test"+path, strings.NewReader(body))
	testkit.Must(t, err)
	r.Header.Set(proxyapi.HeaderRun, "run-1")
	return b.RoundTrip(r)
}

// TestBroker: requests reach the broker as they are, under the reserved host's name.
func TestBroker(t *testing.T) {
	control, _ := newControl(t)
	b := control.conf.Broker
	c := serve(t, control)
	if _, err := call(t, t.Context(), b, "/demo/tool", "{}"); !errors.Is(err, brokerlink.ErrNone) {
		t.Errorf("without a broker: %v", err)
	}
	stop := connect(t, c, b, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+" "+r.Host+r.URL.EscapedPath()+" "+r.Header.Get(proxyapi.HeaderRun)+" "+string(body))
	})
	resp, err := call(t, t.Context(), b, "/demo/a%2Fb", `{"x": 1}`)
	testkit.Must(t, err)
	text, err := io.ReadAll(resp.Body)
	testkit.Must(t, err)
	if want := "POST " + proxyapi.ServersHost + `/demo/a%2Fb run-1 {"x": 1}`; string(text) != want || resp.ProtoMajor != 2 {
		t.Errorf("%s %q, want %q", resp.Proto, text, want)
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	testkit.WaitFor(t, func() bool { return !b.IsConnected() })
	if _, err := call(t, t.Context(), b, "/demo/tool", "{}"); !errors.Is(err, brokerlink.ErrNone) {
		t.Errorf("after its end: %v", err)
	}
}

// TestBrokerCancel: the end of a call, with its arguments sent or not, is the end of the broker's request.
// Promise: calls-end-with-their-run
func TestBrokerCancel(t *testing.T) {
	control, _ := newControl(t)
	b := control.conf.Broker
	began, ended := make(chan bool, 1), make(chan bool, 1)
	stop := connect(t, serve(t, control), b, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "head") {
			w.WriteHeader(200)
			_ = http.NewResponseController(w).Flush()
		}
		began <- true
		<-r.Context().Done()
		ended <- true
	})
	defer func() { _ = stop() }()
	for _, kind := range []string{"sent", "open", "open-head"} {
		ctx, cancel := context.WithCancel(t.Context())
		body, w := io.Pipe()
		go func() {
			_, _ = io.WriteString(w, "{")
			if kind == "sent" {
				_ = w.Close()
			}
		}()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://x.test/demo/"+kind, body)
		testkit.Must(t, err)
		done := make(chan error, 1)
		go func() {
			resp, err := b.RoundTrip(r)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
			}
			done <- err
		}()
		<-began
		cancel()
		select {
		case <-ended:
		case <-time.After(testkit.Patience):
			t.Fatalf("%s: the broker's request goes on", kind)
		}
		if err := <-done; err == nil {
			t.Errorf("%s: no error", kind)
		}
		_ = w.Close()
	}
}

// TestBrokerReplaced: a new broker takes the place of the old one, whose calls end.
// Promise: calls-end-with-their-run
func TestBrokerReplaced(t *testing.T) {
	control, _ := newControl(t)
	b := control.conf.Broker
	c := serve(t, control)
	old := make(chan error, 1)
	began := make(chan bool)
	go func() {
		old <- c.ServeBroker(t.Context(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			began <- true
			<-r.Context().Done()
		}))
	}()
	testkit.WaitFor(t, b.IsConnected)
	hung := make(chan error, 1)
	go func() { _, err := call(t, t.Context(), b, "/demo/tool", "{}"); hung <- err }()
	<-began
	var served atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		second <- c.ServeBroker(ctx, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Store(true) }))
	}()
	for _, ends := range []chan error{old, hung} {
		select {
		case err := <-ends:
			if err == nil {
				t.Error("the old one ended without an error")
			}
		case <-time.After(testkit.Patience):
			t.Fatal("the old connection is still used")
		}
	}
	if _, err := call(t, t.Context(), b, "/demo/tool", "{}"); err != nil || !served.Load() {
		t.Errorf("the new one: %v", err)
	}
	cancel()
	<-second
}

// TestBrokerStalled: answers and arguments that nobody reads hold up no other call.
// Promise: calls-end-with-their-run
func TestBrokerStalled(t *testing.T) {
	control, _ := newControl(t)
	b := control.conf.Broker
	release := make(chan bool)
	stop := connect(t, serve(t, control), b, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/demo/long": // an answer that code does not read
			_, _ = w.Write(make([]byte, 8<<20))
		case "/demo/deaf": // arguments that the broker does not read
			select {
			case <-release:
			case <-r.Context().Done():
			}
		default:
			_, _ = io.Copy(w, r.Body)
		}
	})
	defer func() { _ = stop() }()
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 40 {
		resp, err := call(t, ctx, b, "/demo/long", "{}")
		testkit.Must(t, err)
		defer resp.Body.Close()
		go func() {
			if resp, err := call(t, ctx, b, "/demo/deaf", strings.Repeat(" ", 2<<20)); err == nil {
				_ = resp.Body.Close()
			}
		}()
	}
	time.Sleep(100 * time.Millisecond)
	quick, stopQuick := context.WithTimeout(t.Context(), testkit.Patience)
	defer stopQuick()
	resp, err := call(t, quick, b, "/demo/tool", strings.Repeat(" ", 100<<10))
	if err != nil {
		t.Fatalf("another call: %v", err)
	}
	if text, err := io.ReadAll(resp.Body); err != nil || len(text) != 100<<10 {
		t.Errorf("another call: %d bytes, %v", len(text), err)
	}
}
