package egress_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// hanging serves requests that never end, and reports when each began and ended.
func hanging() (h http.Handler, began, ended chan string) {
	began, ended = make(chan string, 100), make(chan string, 100)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		began <- r.URL.Path
		<-r.Context().Done()
		ended <- r.URL.Path
	}), began, ended
}

// TestEndAborts: DELETE aborts what is in flight, waits for it, and returns it in the receipt.
func TestEndAborts(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%t", h2), func(t *testing.T) {
			r := newRig(t, setup{})
			h, began, ended := hanging()
			r.upstreams.https(h)
			end := r.begin()
			resp, err := r.startGet(h2, "/hang")
			check(t, err)
			defer resp.Body.Close()
			<-began
			rec := end()
			if len(rec.Exchanges) != 1 || rec.Exchanges[0].Outcome != proxyapi.OutcomeAborted || rec.Exchanges[0].Code != "run_ended" {
				t.Errorf("the receipt says %+v", rec)
			}
			if _, err := io.ReadAll(resp.Body); err == nil {
				t.Error("the client saw a complete response")
			}
			select {
			case <-ended:
			case <-time.After(testkit.Patience):
				t.Error("the upstream's exchange goes on")
			}
			if n := r.handler.InFlight(); n != 0 {
				t.Errorf("%d exchanges are still in flight", n)
			}
		})
	}
}

// TestConnectionDiesWithItsRun: a connection kept open by one run is useless to the next.
// Promise: one-run-one-identity
func TestConnectionDiesWithItsRun(t *testing.T) {
	r := newRig(t, setup{})
	var up seen
	r.upstreams.https(up.echo())
	get := "GET / HTTP/1.1\r\nHost: " + demoHost + "\r\n\r\n"
	for name, between := range map[string]func(){
		"ended, then begun": func() { _, err := r.book.EndLease(0, 1); check(t, err); r.beginIn(0, 2) },
		"begun over it":     func() { r.beginIn(0, 2) },
	} {
		r = newRig(t, setup{})
		r.upstreams.https(up.echo())
		r.beginIn(0, 1)
		in, c := r.raw(demoHost, get)
		resp, err := http.ReadResponse(in, nil)
		check(t, err)
		body(t, resp)
		before := up.count()
		between()
		_, _ = io.WriteString(c, get)
		if resp, err := http.ReadResponse(in, nil); err == nil {
			t.Errorf("%s: the old connection got %d", name, resp.StatusCode)
		}
		if up.count() != before {
			t.Errorf("%s: the upstream was reached", name)
		}
	}
}

// TestNoRun: a slot without a run is refused.
func TestNoRun(t *testing.T) {
	r := newRig(t, setup{})
	var up seen
	r.upstreams.https(up.echo())
	if resp, err := r.client(false).Get("https://" + demoHost + "/"); err == nil {
		t.Errorf("got %d", resp.StatusCode)
	}
	r.begin()()
	if resp, err := r.client(false).Get("https://" + demoHost + "/"); err == nil {
		t.Errorf("after the run: got %d", resp.StatusCode)
	}
	if up.count() != 0 {
		t.Error("the upstream was reached")
	}
}

// TestQueuedConnection: a request that an ended run left in the accept queue is not served as the next run's. The next
// run begins at once, many times, so that the acceptor has no time to accept.
func TestQueuedConnection(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "allow_http": true`)}})
	var mu sync.Mutex
	served := map[string]bool{}
	r.upstreams.plain(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		served[req.URL.Path] = true
	}))
	for g := uint64(1); g <= 150; g++ {
		// Between two runs the slot's code is dead; what it sent is still in flight.
		c, err := net.Dial("tcp", r.http[0])
		check(t, err)
		_, _ = fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", g, demoHost)
		end := r.beginIn(0, g)
		if g%3 == 0 {
			time.Sleep(time.Millisecond)
		}
		if rec := end(); rec.Count.Exchanges != 0 {
			t.Fatalf("run %d has %+v", g, rec.Exchanges)
		}
		c.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	if len(served) != 0 {
		t.Errorf("the upstream served %v", served)
	}
}

// TestNoRunIsReportedAsAnother races clients of two slots against the begin and end of runs: every exchange is in the
// receipt of the run that made it.
func TestNoRunIsReportedAsAnother(t *testing.T) {
	r := newRig(t, setup{})
	var up seen
	r.upstreams.https(up.echo())
	var wg sync.WaitGroup
	for id := range 2 {
		wg.Go(func() {
			for g := uint64(1); g <= 15; g++ {
				_, err := r.book.BeginLease(slot.ID(id), proxyapi.Registration{Generation: g, Run: fmt.Sprintf("s%d-g%d", id, g), Deadline: time.Now().Add(time.Minute)})
				if err != nil {
					t.Error(err)
					return
				}
				var clients sync.WaitGroup
				for range 3 {
					clients.Go(func() {
						client := r.clientIn(slot.ID(id), g%2 == 0)
						for i := range 3 {
							req, _ := http.NewRequest("GET", fmt.Sprintf("https://%s/s%d-g%d/%d", demoHost, id, g, i), nil)
							resp, err := client.Do(req)
							if err == nil {
								_, _ = io.Copy(io.Discard, resp.Body)
								resp.Body.Close()
							}
						}
						client.CloseIdleConnections()
					})
				}
				if g%3 == 0 { // the run is aborted while its clients are busy
					time.Sleep(2 * time.Millisecond)
				} else {
					clients.Wait()
				}
				rec, err := r.book.EndLease(slot.ID(id), g)
				if err != nil {
					t.Error(err)
				}
				clients.Wait()
				want := fmt.Sprintf("/s%d-g%d/", id, g)
				for _, e := range rec.Exchanges {
					if e.URL != "" && !strings.Contains(e.URL, want) || e.Run != rec.Run {
						t.Errorf("the receipt of %s has %+v", want, e)
					}
				}
				if g%3 != 0 && rec.Count.Exchanges != 9 {
					t.Errorf("the receipt of %s has %d exchanges", want, rec.Count.Exchanges)
				}
			}
		})
	}
	wg.Wait()
}

// TestConnectionBound: a slot has at most lease.MaxConnections open.
// Promise: bounded-connections
func TestConnectionBound(t *testing.T) {
	r := newRig(t, setup{})
	r.begin()
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range lease.MaxConnections {
		c, err := net.Dial("tcp", r.http[0])
		check(t, err)
		open = append(open, c)
	}
	one := func() error {
		c, err := net.Dial("tcp", r.http[0])
		check(t, err)
		defer c.Close()
		check(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+demoHost+"\r\n\r\n")
		_, err = http.ReadResponse(bufio.NewReader(c), nil)
		return err
	}
	if err := one(); err == nil {
		t.Error("one connection too many was served")
	}
	open[0].Close()
	eventually(t, func() bool { return one() == nil })
}

// TestReloadTells: what a change of the catalog cuts off is not said to be the upstream's fault.
func TestReloadTells(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		r := newRig(t, setup{})
		h, began, _ := hanging()
		r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/answers" {
				h.ServeHTTP(w, req)
				return
			}
			_, _ = io.Copy(io.Discard, req.Body) // or a client that goes is not noticed
			began <- req.URL.Path
			<-req.Context().Done()
		}))
		end := r.begin()
		client := r.client(h2)
		client.Timeout = 0
		resp, err := client.Get("https://" + demoHost + "/answers")
		check(t, err)
		defer resp.Body.Close()
		waits := make(chan error, 1)
		go func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+demoHost+"/waits", strings.NewReader("x"))
			check(t, err)
			resp, err := client.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			waits <- err
		}()
		<-began
		<-began
		r.writeAPI("demo", strings.Replace(demoAPI(""), secretValue, "another-secret-9", 1))
		r.reloader.Load()
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("the stream ended as if it were complete")
		}
		<-waits
		var hints []string
		for _, h := range end().Hints {
			hints = append(hints, h.VoiceText().Model)
		}
		slices.Sort(hints)
		const what = " " + demoHost + ": was cut off, because the user changed a credential or an API. If it only reads, send it again. A write may already have taken effect."
		if want := []string{"GET" + what, "POST" + what}; !slices.Equal(hints, want) {
			t.Errorf("h2=%t:\n got %q\nwant %q", h2, hints, want)
		}
	}
}

// TestReloadCuts: open streams of a removed API, or with a credential that is not the same, end; others continue.
// Promise: configuration-fails-closed
func TestReloadCuts(t *testing.T) {
	other := strings.NewReplacer(demoHost, "other.test", tokenName, "OTHER_TOKEN", secretValue, "other-secret-value").Replace(demoAPI(""))
	cert, key := clientPair(t)
	shows := demoAPI(`, "client_cert": {"cert": "client.pem", "key": {"file": "client.key"}}`)
	inBody := strings.Replace(demoAPI(""), `"`+secretValue+`"`, `{"value": "`+secretValue+`", "in": ["header", "body"]}`, 1)
	for name, c := range map[string]struct {
		change  func(*rig)
		otherUp bool   // the stream of the other API goes on
		before  string // demoAPI("") if empty
	}{
		"removed":        {func(r *rig) { check(t, os.RemoveAll(filepath.Join(r.apis, "demo"))) }, true, ""},
		"inactive":       {func(r *rig) { r.writeAPI("demo", demoAPI(`, "active": false`)) }, true, ""},
		"new value":      {func(r *rig) { r.writeAPI("demo", strings.Replace(demoAPI(""), secretValue, "another-secret-9", 1)) }, false, ""},
		"no certificate": {func(r *rig) { r.writeAPI("demo", demoAPI("")) }, true, shows},
		"not in bodies":  {func(r *rig) { r.writeAPI("demo", demoAPI("")) }, true, inBody},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(""), "other": other}})
			if c.before != "" {
				check(t, os.WriteFile(filepath.Join(r.apis, "demo", "client.pem"), cert, 0o600))
				check(t, os.WriteFile(filepath.Join(r.apis, "demo", "client.key"), key, 0o600))
				r.writeAPI("demo", c.before)
				r.reloader.Load()
			}
			h, began, _ := hanging()
			r.upstreams.https(h)
			r.begin()
			client := r.client(false)
			client.Timeout = 0
			demo, err := client.Get("https://" + demoHost + "/demo")
			check(t, err)
			defer demo.Body.Close()
			second, err := client.Get("https://other.test/other")
			check(t, err)
			defer second.Body.Close()
			<-began
			<-began
			c.change(r)
			r.reloader.Load()
			hangs := time.AfterFunc(testkit.Patience, func() { t.Error("the stream of the changed API goes on"); demo.Body.Close() })
			if _, err := io.ReadAll(demo.Body); err == nil {
				t.Errorf("the stream of the changed API ended as if it were complete: %s", r.logs)
			}
			hangs.Stop()
			ended := make(chan error, 1)
			go func() { _, err := io.ReadAll(second.Body); ended <- err }()
			wait := 300 * time.Millisecond
			if !c.otherUp {
				wait = testkit.Patience
			}
			select {
			case <-ended:
				if c.otherUp {
					t.Error("the stream of the other API was cut")
				}
			case <-time.After(wait):
				if !c.otherUp {
					t.Error("a stream whose scrubber does not know the new value goes on")
				}
			}
		})
	}
}

// TestReplacedValueStaysScrubbed: a server may still echo the value from before the reload.
func TestReplacedValueStaysScrubbed(t *testing.T) {
	r := newRig(t, setup{})
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "old: "+secretValue) }))
	r.writeAPI("demo", strings.Replace(demoAPI(""), secretValue, "another-secret-9", 1))
	r.reloader.Load()
	r.begin()
	resp, err := r.client(false).Get("https://" + demoHost + "/")
	check(t, err)
	if text := body(t, resp); text != "old: "+tokenName {
		t.Errorf("the client saw %q", text)
	}
}

// TestStale: a broken new version keeps the old one, and says so.
func TestStale(t *testing.T) {
	r := newRig(t, setup{})
	var up seen
	r.upstreams.https(up.echo())
	before := r.reloader.Current().Public.Version
	r.writeAPI("demo", `{"description": `)
	r.reloader.Load()
	now := r.reloader.Current().Public
	if now.Version == before || len(now.APIs) != 1 || !now.APIs[0].Stale || len(now.Problems) == 0 {
		t.Errorf("the public catalog is %+v", now)
	}
	r.begin()
	req, _ := http.NewRequest("GET", "https://"+demoHost+"/", nil)
	req.Header.Set("Authorization", tokenName)
	resp, err := r.client(false).Do(req)
	check(t, err)
	body(t, resp)
	if got := up.last(t).Header.Get("Authorization"); got != secretValue {
		t.Errorf("the upstream saw %q", got)
	}
}

// TestWatch: a change of apis/ is noticed without a signal.
func TestWatch(t *testing.T) {
	r := newRig(t, setup{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan bool)
	go func() { r.reloader.WatchFolder(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	time.Sleep(50 * time.Millisecond)
	r.writeAPI("fresh", strings.NewReplacer(demoHost, "fresh.test", tokenName, "FRESH_TOKEN").Replace(demoAPI("")))
	eventually(t, func() bool { return len(r.reloader.Current().Public.APIs) == 2 })
	r.writeAPI("fresh", strings.NewReplacer(demoHost, "fresher.test", tokenName, "FRESH_TOKEN").Replace(demoAPI("")))
	eventually(t, func() bool {
		apis := r.reloader.Current().Public.APIs
		return len(apis) == 2 && apis[1].Domains[0] == "fresher.test"
	})
}

// TestWebSocket: after a valid handshake messages pass, swapped and scrubbed; the run's end cuts them.
func TestWebSocket(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{
		"demo": strings.Replace(demoAPI(""), `"`+secretValue+`"`, `{"value": "`+secretValue+`", "in": ["header", "body"]}`, 1)}})
	gone := make(chan bool, 1)
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c, err := websocket.Accept(w, req, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		_ = c.Write(req.Context(), websocket.MessageText, []byte("hello "+req.Header.Get("Authorization")))
		for {
			kind, data, err := c.Read(context.Background())
			if err != nil {
				gone <- true
				return
			}
			_ = c.Write(req.Context(), kind, append([]byte("echo "), data...))
		}
	}))
	end := r.begin()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	client := r.client(false)
	client.Timeout = 0
	c, _, err := websocket.Dial(ctx, "wss://"+demoHost+"/ws", &websocket.DialOptions{
		HTTPClient: client, HTTPHeader: http.Header{"Authorization": {"Bearer " + tokenName}},
	})
	check(t, err)
	defer c.CloseNow()
	for _, want := range []string{"hello Bearer " + tokenName, "echo text"} {
		_, data, err := c.Read(ctx)
		check(t, err)
		if string(data) != want {
			t.Errorf("the client saw %q, want %q", data, want)
		}
		check(t, c.Write(ctx, websocket.MessageText, []byte("text")))
	}
	rec := end()
	if _, _, err := c.Read(ctx); err == nil {
		_, _, err = c.Read(ctx)
		if err == nil {
			t.Error("the connection outlives the run")
		}
	}
	select {
	case <-gone:
	case <-time.After(testkit.Patience):
		t.Error("the upstream was left waiting")
	}
	if len(rec.Exchanges) != 1 || rec.Exchanges[0].Status != 101 || rec.Count.Swapped != 1 || rec.Count.Sanitized < 1 {
		t.Errorf("the receipt says %+v", rec)
	}
}

// TestWebSocketInvalidAnswer: a 101 that does not complete the handshake is not relayed.
func TestWebSocketInvalidAnswer(t *testing.T) {
	r := newRig(t, setup{})
	r.upstreams.raw(func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: AAAA\r\n\r\ntunnel")
		}
	})
	r.begin()
	client := r.client(false)
	_, resp, err := websocket.Dial(context.Background(), "wss://"+demoHost+"/ws", &websocket.DialOptions{HTTPClient: client})
	if err == nil || resp == nil || resp.StatusCode != 502 {
		t.Errorf("the client saw %v, %v", resp, err)
	}
}

// TestFenceErrors: late and repeated ends and beginnings are refused, and have no receipt.
// Promise: one-run-one-identity
func TestFenceErrors(t *testing.T) {
	r := newRig(t, setup{})
	reg := func(g uint64) error {
		_, err := r.book.BeginLease(0, proxyapi.Registration{Generation: g, Run: "r", Deadline: time.Now().Add(time.Minute)})
		return err
	}
	check(t, reg(5))
	for _, g := range []uint64{5, 4, 1} {
		if err := reg(g); !errors.Is(err, proxyapi.ErrFenced) {
			t.Errorf("generation %d: %v", g, err)
		}
	}
	for _, g := range []uint64{4, 6} {
		if _, err := r.book.EndLease(0, g); !errors.Is(err, proxyapi.ErrFenced) {
			t.Errorf("end of %d: %v", g, err)
		}
	}
	_, err := r.book.EndLease(0, 5)
	check(t, err)
	if _, err := r.book.EndLease(0, 5); !errors.Is(err, proxyapi.ErrFenced) {
		t.Errorf("second end: %v", err)
	}
	if err := reg(5); !errors.Is(err, proxyapi.ErrFenced) {
		t.Errorf("the same generation again: %v", err)
	}
	check(t, reg(6))
}
