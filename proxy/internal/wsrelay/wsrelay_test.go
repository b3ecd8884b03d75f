package wsrelay

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/redact"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
)

const canary = "sk_live_51Hx/Zq+canary=="

func options() Options {
	creds := []catalog.Credential{{
		Name: "STRIPE_AUTH_TOKEN", Value: secret.New(canary),
		Surfaces: []catalog.Surface{{Kind: catalog.SurfaceBody, Field: "auth.token"}},
	}}
	return Options{
		Scrub: scrub.New(creds), Swap: swap.New(creds), SwapOptions: swap.Options{Allowed: creds},
		Redact: redact.New([]string{"Jane Doe"}), Report: &Report{},
	}
}

// connect joins a client to an upstream that runs serve, through a relay whose end it returns.
func connect(t *testing.T, o Options, serve func(context.Context, *websocket.Conn)) (*websocket.Conn, <-chan error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	t.Cleanup(cancel)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		c.SetReadLimit(-1)
		defer c.CloseNow()
		serve(r.Context(), c)
	}))
	t.Cleanup(upstream.Close)
	ends := make(chan error, 1)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ends <- through(ctx, w, r, upstream.URL, o)
	}))
	t.Cleanup(front.Close)
	c, _, err := websocket.Dial(ctx, front.URL, &websocket.DialOptions{CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadLimit(-1)
	t.Cleanup(func() { _ = c.CloseNow() })
	return c, ends
}

// through does what egress does: it forwards the handshake and relays the two connections.
func through(ctx context.Context, w http.ResponseWriter, r *http.Request, url string, o Options) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header = r.Header.Clone()
	DropExtensions(req.Header)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	upstream, ok := resp.Body.(interface {
		Read([]byte) (int, error)
		Write([]byte) (int, error)
		Close() error
	})
	if !ok || resp.StatusCode != http.StatusSwitchingProtocols || !HasNoExtensions(resp.Header) {
		return errors.New("no upgrade")
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = resp.Header.Write(rw)
	_, _ = rw.WriteString("\r\n")
	_ = rw.Flush()
	return RelayMessages(ctx, struct {
		net.Conn
	}{conn}, upstream, o)
}

// Promise: scrubbed-responses
func TestRelay(t *testing.T) {
	got := make(chan string, 10)
	o := options()
	c, ends := connect(t, o, func(ctx context.Context, c *websocket.Conn) {
		for {
			kind, data, err := c.Read(ctx)
			if err != nil {
				return
			}
			got <- string(data)
			w, _ := c.Writer(ctx, kind) // frames of a byte or two
			for i := 0; i < len(data); i += 2 {
				_, _ = w.Write(data[i:min(i+2, len(data))])
				if i == 8 {
					go func() { _ = c.Ping(ctx) }()
				}
			}
			_ = w.Close()
			if strings.Contains(string(data), "bye") {
				_ = c.Close(4321, "not you, "+canary)
			}
		}
	})
	send := func(in, up, down string) {
		t.Helper()
		if err := c.Write(t.Context(), websocket.MessageText, []byte(in)); err != nil {
			t.Fatal(err)
		}
		if s := <-got; s != up {
			t.Errorf("the upstream got %.80q, want %.80q", s, up)
		}
		if _, data, err := c.Read(t.Context()); err != nil || string(data) != down {
			t.Errorf("the client got %.80q, %v, want %.80q", data, err, down)
		}
	}
	send("hello", "hello", "hello")
	send("", "", "")
	send(`{"auth":{"token":"STRIPE_AUTH_TOKEN"}}`, `{"auth":{"token":"`+canary+`"}}`, `{"auth":{"token":"STRIPE_AUTH_TOKEN"}}`)
	send(`{"text":"STRIPE_AUTH_TOKEN","who":"Jane Doe"}`, `{"text":"STRIPE_AUTH_TOKEN","who":"REDACTED"}`, `{"text":"STRIPE_AUTH_TOKEN","who":"REDACTED"}`)
	big := strings.Repeat("0123456789abcdef", 5000)
	send(big, big, big)
	send("bye", "bye", "bye")
	_, _, err := c.Read(t.Context())
	var closed websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != 4321 || closed.Reason != "not you, STRIPE_AUTH_TOKEN" {
		t.Errorf("got %v", err)
	}
	if err := <-ends; err != nil {
		t.Errorf("relay: %v", err)
	}
	if scrubbed, redacted, _, _ := o.Report.Counts(); scrubbed != 1 || redacted != 1 || len(o.Report.Swapped()) != 1 || len(o.Report.Seen()) != 1 {
		t.Errorf("report: %d, %d, %v, %v", scrubbed, redacted, o.Report.Swapped(), o.Report.Seen())
	}
}

func TestRelayRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		data string
		code websocket.StatusCode
	}{
		"a value":      {"it is " + canary, closePolicy},
		"two readings": {`{"x":/*1,"auth":*/{"token":"STRIPE_AUTH_TOKEN"}}`, closePolicy},
		"too large":    {strings.Repeat("x", 3000), closeTooBig},
	} {
		o := options()
		o.MaxUp = 2000
		c, ends := connect(t, o, func(ctx context.Context, c *websocket.Conn) {
			if _, data, err := c.Read(ctx); err == nil {
				t.Errorf("%s: the upstream got %q", name, data)
			}
		})
		if err := c.Write(t.Context(), websocket.MessageText, []byte(tc.data)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != tc.code {
			t.Errorf("%s: got %v, want %d", name, err, tc.code)
		}
		if err := <-ends; err == nil {
			t.Errorf("%s: the relay ended well", name)
		}
	}
}

// TestLarge: a long message waits for memory, a short one does not, and the end of a relay does not wait at all.
// Promise: bounded-connections
func TestLarge(t *testing.T) {
	o := options()
	memory := membudget.New(4 * bufferCopies * defaultUp)
	other := memory.OpenAccount("run") // another connection
	o.Held = memory.OpenAccount("run")
	other.TryTake(1)
	got := make(chan int, 2)
	serve := func(ctx context.Context, c *websocket.Conn) {
		for {
			_, data, err := c.Read(ctx)
			if err != nil {
				return
			}
			got <- len(data)
		}
	}
	long := strings.Repeat("x", 100<<10)
	client, _ := connect(t, o, serve)
	for _, text := range []string{"short", long} {
		if err := client.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if n := <-got; n != len("short") {
		t.Fatalf("first came %d bytes", n)
	}
	select {
	case n := <-got:
		t.Fatalf("%d bytes came without memory", n)
	case <-time.After(100 * time.Millisecond):
	}
	other.Close()
	if n := <-got; n != len(long) {
		t.Errorf("then came %d bytes", n)
	}

	other.TryTake(1)
	leave := make(chan struct{})
	client, end := connect(t, o, func(context.Context, *websocket.Conn) { <-leave })
	if err := client.Write(t.Context(), websocket.MessageText, []byte(long)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // until the relay has it, and waits for memory
	close(leave)
	select {
	case <-end:
	case <-time.After(testkit.Patience):
		t.Error("the relay waits for memory although its upstream has gone")
	}
}

// TestLargeWaits: a long message does not wait for memory for ever.
// Promise: bounded-connections
func TestLargeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := membudget.New(4 * bufferCopies * defaultUp)
		memory.OpenAccount("run").TryTake(1) // another connection, which never ends
		o := options()
		o.Held = memory.OpenAccount("run")
		client, a := net.Pipe()
		b, upstream := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, upstream) }()
		end := make(chan error, 1)
		go func() { end <- RelayMessages(t.Context(), a, b, o) }()
		go func() { _, _ = io.WriteString(client, frame(fin, opText, true, strings.Repeat("x", 100<<10))) }()
		h, err := readHead(bufio.NewReader(client), false)
		if err != nil || h.op != opClose {
			t.Errorf("%+v, %v", h, err)
		}
		if err := <-end; !errors.Is(err, membudget.ErrFull) || memory.UsedBytes() != 1 {
			t.Errorf("%v, %d bytes are taken", err, memory.UsedBytes())
		}
		_, _ = client.Close(), upstream.Close()
	})
}
