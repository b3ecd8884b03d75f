package entrance_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestEarlierConnection: a listener is open in the kernel before it belongs to the entrance. What a run connects to it
// in between is never bound to the lease of the next run in the slot.
// Promise: one-run-one-identity
func TestEarlierConnection(t *testing.T) {
	var e *entrance.Entrance
	book := lease.NewTable(lease.Config{Drain: func(id slot.ID) { e.DrainQueue(id) }})
	e, err := entrance.New(entrance.Config{
		Attach: book.AttachConn,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := entrance.FromContext(r.Context())
			if c.CheckNext() != nil {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, c.Lease().Run)
		}),
	})
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx) }()
	begin(t, book, 1, "first")
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	testkit.Must(t, err)
	earlier := request(t, l.Addr().String())
	begin(t, book, 2, "second")
	_, err = e.AddListener(entrance.Listener{TCP: l.(*net.TCPListener), Port: 3000, Slot: new(slot.ID)})
	testkit.Must(t, err)
	if got, err := answerOf(earlier); err == nil {
		t.Errorf("what the first run sent was served as of the %s", got)
	}
	if got, err := answerOf(request(t, l.Addr().String())); got != "second" || err != nil {
		t.Errorf("the second run's request: %q, %v", got, err)
	}
	cancel()
	testkit.Must(t, <-done)
	book.Close()
}

// TestRemovedListener: while a listener is being removed, a slot is not given to the next run before the last
// connection from it is bound to a lease, or to none.
// Promise: one-run-one-identity
func TestRemovedListener(t *testing.T) {
	reached, release := make(chan struct{}), make(chan struct{})
	var bound atomic.Bool
	e, err := entrance.New(entrance.Config{Attach: func(slot.ID, io.Closer) (*lease.Lease, error) {
		close(reached)
		<-release
		bound.Store(true)
		return nil, lease.ErrNone
	}})
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx) }()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	testkit.Must(t, err)
	remove, err := e.AddListener(entrance.Listener{TCP: l.(*net.TCPListener), Port: 3000, Slot: new(slot.ID)})
	testkit.Must(t, err)
	c, err := net.Dial("tcp", l.Addr().String())
	testkit.Must(t, err)
	defer c.Close()
	<-reached
	removed, drained := make(chan struct{}), make(chan struct{})
	go func() { remove(); close(removed) }()
	testkit.WaitFor(t, func() bool {
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	go func() {
		e.DrainQueue(0)
		if !bound.Load() {
			t.Error("Drain has returned, and a connection made before it is not bound yet")
		}
		close(drained)
	}()
	select {
	case <-drained:
	case <-time.After(50 * time.Millisecond): // enough for a Drain that does not wait; one that does passes at any speed
	}
	close(release)
	<-drained
	<-removed
	cancel()
	testkit.Must(t, <-done)
}

func begin(t *testing.T, b *lease.Table, generation uint64, run string) {
	t.Helper()
	_, err := b.BeginLease(0, proxyapi.Registration{Generation: generation, Run: run, Deadline: time.Now().Add(10 * time.Minute)})
	testkit.Must(t, err)
}

// request connects and sends a request.
func request(t *testing.T, to string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", to)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	testkit.Must(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
	_, err = fmt.Fprintf(c, "GET /x HTTP/1.1\r\nHost: %s\r\n\r\n", host)
	testkit.Must(t, err)
	return c
}

// answerOf is the body of the answer.
func answerOf(c net.Conn) (string, error) {
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}
