package entrance_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/authority"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// patience of these tests: short for them, long for a healthy client on a busy machine.
const patience = 5 * time.Second

const host = "api.demo.test"

// door is an entrance for two slots, each with a run.
type door struct {
	t           *testing.T
	book        *lease.Table
	roots       *x509.CertPool
	https, http [2]string
}

func newDoor(t *testing.T) *door {
	t.Helper()
	d := &door{t: t, roots: x509.NewCertPool()}
	ca, err := authority.New(authority.Config{Private: t.TempDir(), Public: t.TempDir()})
	testkit.Must(t, err)
	d.roots.AddCert(ca.Certificate())
	var e *entrance.Entrance
	d.book = lease.NewTable(lease.Config{Drain: func(id slot.ID) { e.DrainQueue(id) }})
	var listeners []entrance.Listener
	for n := range d.https {
		id := slot.ID(n)
		for _, over := range []bool{true, false} {
			port := map[bool]uint16{true: 443, false: 80}[over]
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			testkit.Must(t, err)
			listeners = append(listeners, entrance.Listener{TCP: l.(*net.TCPListener), Port: port, Slot: &id})
			if over {
				d.https[n] = l.Addr().String()
			} else {
				d.http[n] = l.Addr().String()
			}
		}
	}
	e, err = entrance.New(entrance.Config{
		Listeners: listeners, Attach: d.book.AttachConn, GetCertificate: ca.GetCertificate, Handler: http.HandlerFunc(answer),
		Patience: entrance.Patience{Handshake: patience, Head: patience, Idle: patience},
	})
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		d.book.Close()
	})
	for n := range d.https {
		_, err := d.book.BeginLease(slot.ID(n), proxyapi.Registration{Generation: 1, Run: "r", Deadline: time.Now().Add(10 * time.Minute)})
		testkit.Must(t, err)
	}
	return d
}

// answer reads the whole request, as the proxy's handler may.
func answer(w http.ResponseWriter, r *http.Request) {
	if c := entrance.FromContext(r.Context()); c == nil || c.CheckNext() != nil {
		panic(http.ErrAbortHandler)
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(w, "ok")
}

// over opens TLS.
func (d *door) over(c net.Conn, protocol string) (net.Conn, error) {
	t := tls.Client(c, &tls.Config{RootCAs: d.roots, ServerName: host, NextProtos: []string{protocol}})
	return t, t.Handshake()
}

// healthy sends one request on a new connection and returns how long it took.
func (d *door) healthy(id int) (time.Duration, error) {
	began := time.Now()
	c, err := net.Dial("tcp", d.https[id])
	if err != nil {
		return time.Since(began), err
	}
	defer c.Close()
	if err := c.SetDeadline(began.Add(time.Minute)); err != nil {
		return time.Since(began), err
	}
	t, err := d.over(c, "http/1.1")
	if err != nil {
		return time.Since(began), err
	}
	fmt.Fprintf(t, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
	resp, err := http.ReadResponse(bufio.NewReader(t), nil)
	if err != nil {
		return time.Since(began), err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return time.Since(began), err
}

// serves checks that a slot is served. A machine that stands still makes every client a slow one, which is cut: that says
// nothing, and the next one is asked.
func (d *door) serves(t *testing.T, id int, what string) {
	t.Helper()
	for range 5 {
		took, err := d.healthy(id)
		if err == nil {
			return
		}
		if took < patience {
			t.Errorf("%s: %v after %s", what, err, took)
			return
		}
	}
	t.Errorf("%s: not served in time", what)
}

// hello is the first message of a client.
func hello(t *testing.T) []byte {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		_ = tls.Client(theirs, &tls.Config{ServerName: host}).Handshake()
	}()
	buffer := make([]byte, 4<<10)
	n, err := ours.Read(buffer)
	testkit.Must(t, err)
	return buffer[:n]
}

// drip sends a byte from time to time until the connection is closed.
func drip(c net.Conn, text []byte, end <-chan struct{}) {
	for _, b := range text {
		if _, err := c.Write([]byte{b}); err != nil {
			return
		}
		select {
		case <-time.After(patience / 20):
		case <-end:
			return
		}
	}
	<-end
}

const head = "GET / HTTP/1.1\r\nHost: " + host + "\r\n"

// slow are slow clients. Each opens its connection, returns what its response is read from, and goes on sending until
// end.
var slow = map[string]func(d *door, c net.Conn, end <-chan struct{}) (net.Conn, error){
	"silent on 443": func(_ *door, c net.Conn, _ <-chan struct{}) (net.Conn, error) { return c, nil },
	"ClientHello byte by byte": func(d *door, c net.Conn, end <-chan struct{}) (net.Conn, error) {
		go drip(c, hello(d.t), end)
		return c, nil
	},
	"handshake that stops in the middle": func(d *door, c net.Conn, _ <-chan struct{}) (net.Conn, error) {
		_, err := c.Write(hello(d.t))
		return c, err
	},
	"silent after the handshake": func(d *door, c net.Conn, _ <-chan struct{}) (net.Conn, error) { return d.over(c, "http/1.1") },
	"request line byte by byte": func(d *door, c net.Conn, end <-chan struct{}) (net.Conn, error) {
		over, err := d.over(c, "http/1.1")
		go drip(over, []byte("GET /"+string(bytes.Repeat([]byte("a"), 1000))), end)
		return over, err
	},
	"headers byte by byte": func(d *door, c net.Conn, end <-chan struct{}) (net.Conn, error) {
		over, err := d.over(c, "http/1.1")
		if err == nil {
			_, err = io.WriteString(over, head)
		}
		go drip(over, bytes.Repeat([]byte("A: b\r\n"), 200), end)
		return over, err
	},
	"second request's headers": func(d *door, c net.Conn, end <-chan struct{}) (net.Conn, error) {
		over, err := d.over(c, "http/1.1")
		if err != nil {
			return over, err
		}
		_, _ = io.WriteString(over, head+"\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(over), nil)
		if err != nil {
			return over, err
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return over, err
		}
		_, err = io.WriteString(over, head)
		go drip(over, bytes.Repeat([]byte("A: b\r\n"), 200), end)
		return over, err
	},
	"half a head in HTTP/2": func(d *door, c net.Conn, _ <-chan struct{}) (net.Conn, error) {
		over, err := d.over(c, "h2")
		if err != nil {
			return over, err
		}
		_, _ = io.WriteString(over, http2.ClientPreface)
		f := http2.NewFramer(over, over)
		_ = f.WriteSettings()
		return over, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}) // and no CONTINUATION
	},
	"silent in HTTP/2": func(d *door, c net.Conn, _ <-chan struct{}) (net.Conn, error) {
		over, err := d.over(c, "h2")
		if err != nil {
			return over, err
		}
		_, _ = io.WriteString(over, http2.ClientPreface)
		return over, http2.NewFramer(over, over).WriteSettings()
	},
}

// onPlain are those without TLS.
var onPlain = map[string]func(d *door, c net.Conn, end <-chan struct{}) (net.Conn, error){
	"silent on 80": func(_ *door, c net.Conn, _ <-chan struct{}) (net.Conn, error) { return c, nil },
	"head byte by byte on 80": func(_ *door, c net.Conn, end <-chan struct{}) (net.Conn, error) {
		go drip(c, bytes.Repeat([]byte(head), 10), end)
		return c, nil
	},
}

// TestSlowClients: a client that takes too long is disconnected, at the deadline and not before; the slot can open
// connections again, and another slot is served normally all the while.
// Promise: bounded-connections
func TestSlowClients(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	const each = 8
	end := make(chan struct{})
	defer close(end)
	var attack sync.WaitGroup
	begin := func(name, address string, f func(d *door, c net.Conn, end <-chan struct{}) (net.Conn, error)) {
		for range each {
			attack.Go(func() {
				began := time.Now()
				raw, err := net.Dial("tcp", address)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				defer raw.Close()
				_ = raw.SetDeadline(began.Add(patience + testkit.Patience))
				c, err := f(d, raw, end)
				if err == nil { // otherwise a busy machine delayed the slow client even more
					_, err = io.Copy(io.Discard, c)
				}
				took := time.Since(began)
				if timeout, ok := err.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // not wrapped
					t.Errorf("%s: not cut after %s", name, took)
				}
				if took < patience-100*time.Millisecond {
					t.Errorf("%s: cut after %s already, by %v: not by the deadline of %s", name, took, err, patience)
				}
			})
		}
	}
	for name, f := range slow {
		begin(name, d.https[0], f)
	}
	for name, f := range onPlain {
		begin(name, d.http[0], f)
	}
	over := make(chan struct{})
	go func() { attack.Wait(); close(over) }()
	served := 0
	var worst time.Duration
	for done := false; !done; {
		select {
		case <-over:
			done = true
		default:
			took, err := d.healthy(1)
			switch {
			case took >= patience: // see serves
			case err != nil:
				t.Errorf("the other slot: %v after %s", err, took)
			default:
				worst = max(worst, took)
				served++
			}
			time.Sleep(patience / 100)
		}
	}
	t.Logf("%d slow clients; the other slot was served %d times, at worst in %s", each*(len(slow)+len(onPlain)), served, worst)
	if served < 5 {
		t.Errorf("the other slot was served %d times", served)
	}
	d.serves(t, 0, "the slot itself, afterwards")
}

// TestSlowBound: silent connections are bounded per slot, and any beyond the bound are closed at once.
// Promise: bounded-connections
func TestSlowBound(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	const extra = 20
	var closed atomic.Int32
	for range lease.MaxConnections + extra {
		c, err := net.Dial("tcp", d.https[0])
		testkit.Must(t, err)
		defer c.Close()
		go func() {
			_, _ = c.Read(make([]byte, 1))
			closed.Add(1)
		}()
	}
	began := time.Now()
	for closed.Load() < extra {
		if time.Since(began) > testkit.Patience {
			t.Fatalf("%d of %d connections too many are closed", closed.Load(), extra)
		}
		time.Sleep(5 * time.Millisecond)
	}
	d.serves(t, 1, "the other slot")
	for closed.Load() < lease.MaxConnections+extra {
		if time.Since(began) > patience+testkit.Patience {
			t.Fatalf("%d connections are closed", closed.Load())
		}
		time.Sleep(5 * time.Millisecond)
	}
	d.serves(t, 0, "the slot itself, afterwards")
}

// TestSlowBody: a body may take as long as its run; the run's end aborts it.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	end := make(chan struct{})
	defer close(end)
	const many = 30
	cut := make(chan error, many)
	begun := time.Now()
	for range many {
		raw, err := net.Dial("tcp", d.https[0])
		testkit.Must(t, err)
		defer raw.Close()
		c, err := d.over(raw, "http/1.1")
		testkit.Must(t, err)
		_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 100000\r\n\r\n", host)
		testkit.Must(t, err)
		go drip(c, bytes.Repeat([]byte("x"), 1000), end)
		go func() {
			_, err := c.Read(make([]byte, 1))
			cut <- err
		}()
	}
	for time.Since(begun) < patience+patience/2 {
		d.serves(t, 1, "the other slot")
		time.Sleep(patience / 20)
	}
	select {
	case err := <-cut:
		t.Errorf("a slow body was cut within its run: %v", err)
	default:
	}
	if _, err := d.book.EndLease(0, 1); err != nil {
		t.Error(err)
	}
	for range many {
		select {
		case err := <-cut:
			if err == nil {
				t.Error("half a body was answered")
			}
		case <-time.After(testkit.Patience):
			t.Fatal("a slow body survives its run")
		}
	}
}
