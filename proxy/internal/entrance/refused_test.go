package entrance_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/authority"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
)

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.TCPListener)
}

// TestBadListeners: a listener that could not be served, or whose clients have no slot, is an error.
func TestBadListeners(t *testing.T) {
	none, find := slot.ID(slot.Total), func(netip.Addr) (slot.ID, bool) { return 0, true }
	for name, l := range map[string]entrance.Listener{
		"no socket":                {Port: 443, Slot: new(slot.ID)},
		"no port":                  {TCP: listen(t), Slot: new(slot.ID)},
		"a slot that is none":      {TCP: listen(t), Port: 443, Slot: &none},
		"neither a slot nor Find":  {TCP: listen(t), Port: 443},
		"a slot that is none, too": {TCP: listen(t), Port: 443, Slot: &none, Find: find},
	} {
		if _, err := entrance.New(entrance.Config{Listeners: []entrance.Listener{l}}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, l := range []entrance.Listener{{TCP: listen(t), Port: 443, Slot: new(slot.ID)}, {TCP: listen(t), Port: 443, Find: find}} {
		if _, err := entrance.New(entrance.Config{Listeners: []entrance.Listener{l}}); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
}

// TestRefusedConnections: a connection that gets no lease, or whose handshake fails, is closed and reported once.
// Promise: one-run-one-identity
func TestRefusedConnections(t *testing.T) {
	ca, err := authority.New(authority.Config{Private: t.TempDir(), Public: t.TempDir()})
	testkit.Must(t, err)
	book := lease.NewTable(lease.Config{})
	reports := make(chan string, 10)
	var found atomic.Int64 // a slot.ID
	l := listen(t)
	e, err := entrance.New(entrance.Config{
		Listeners: []entrance.Listener{{TCP: l, Port: 443, Find: func(a netip.Addr) (slot.ID, bool) {
			id := slot.ID(found.Load())
			return id, id.IsValid() && a == netip.MustParseAddr("127.0.0.1")
		}}},
		Attach: book.AttachConn, GetCertificate: ca.GetCertificate, Handler: http.NotFoundHandler(),
		Refused: func(l *lease.Lease, from string, err error) {
			var h *entrance.HandshakeError
			reports <- fmt.Sprint(l != nil, " ", from, " ", errors.As(err, &h) && h.HasNoHost(), " ", err)
		},
	})
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx) }()
	for _, c := range []struct {
		slot slot.ID
		name string // of the host; "" for a client without one
		want string
	}{
		{-1, host, "false 127.0.0.1: false the source address belongs to no slot"},
		{3, host, "false slot3 false "},
		{0, "", "true slot0 true TLS handshake: "},
		{0, "other.test", "true slot0 false TLS handshake: "}, // this client does not trust the certificate
	} {
		found.Store(int64(c.slot))
		if c.slot == 0 && c.name == "" {
			begin(t, book, 1, "first")
		}
		conn, err := net.Dial("tcp", l.Addr().String())
		testkit.Must(t, err)
		testkit.Must(t, conn.SetDeadline(time.Now().Add(testkit.Patience)))
		if err := tls.Client(conn, &tls.Config{ServerName: c.name, InsecureSkipVerify: c.name == ""}).Handshake(); err == nil { //nolint:gosec // the server refuses it
			t.Errorf("%+v: a handshake", c)
		}
		if report := <-reports; !strings.HasPrefix(strings.Replace(report, conn.LocalAddr().String(), "127.0.0.1:", 1), c.want) {
			t.Errorf("%+v: %s", c, report)
		}
		if _, err := conn.Read(make([]byte, 1)); !slices.ContainsFunc([]error{io.EOF, syscall.ECONNRESET, net.ErrClosed}, func(e error) bool { return errors.Is(err, e) }) {
			t.Errorf("%+v: the connection is open: %v", c, err)
		}
		_ = conn.Close()
	}
	cancel()
	testkit.Must(t, <-done)
	book.Close()
	if len(reports) > 0 {
		t.Errorf("also reported: %s", <-reports)
	}
}

// TestServeFails: a listener that another party closes ends Serve with an error, and with it all other listeners.
func TestServeFails(t *testing.T) {
	broken, other := listen(t), listen(t)
	e, err := entrance.New(entrance.Config{Listeners: []entrance.Listener{
		{TCP: broken, Port: 443, Slot: new(slot.ID)}, {TCP: other, Port: 80, Slot: new(slot.ID)},
	}})
	testkit.Must(t, err)
	done := make(chan error, 1)
	go func() { done <- e.Serve(t.Context()) }()
	testkit.Must(t, broken.Close())
	if err := <-done; !errors.Is(err, net.ErrClosed) || !strings.HasPrefix(err.Error(), "accepting connections: ") {
		t.Errorf("got %v", err)
	}
	if c, err := net.Dial("tcp", other.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the other listener is open: %v, %v", c, err)
	}
	e.DrainQueue(0) // it does not wait for listeners that are gone
}
