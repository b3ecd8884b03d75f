package entrance_test

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/authority"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestPorts: at a port other than 443 and 80 the first byte tells whether the client speaks TLS; a listener may come
// before Serve and while it serves, and goes at any time.
// Promise: no-other-way-out
func TestPorts(t *testing.T) {
	d := &door{t: t, roots: x509.NewCertPool()}
	ca, err := authority.New(authority.Config{Private: t.TempDir(), Public: t.TempDir()})
	testkit.Must(t, err)
	d.roots.AddCert(ca.Certificate())
	var e *entrance.Entrance
	d.book = lease.NewTable(lease.Config{Drain: func(id slot.ID) { e.DrainQueue(id) }})
	e, err = entrance.New(entrance.Config{
		Attach: d.book.AttachConn, GetCertificate: ca.GetCertificate,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := entrance.FromContext(r.Context())
			if c == nil || c.IsHTTP1() && c.CheckNext() != nil {
				panic(http.ErrAbortHandler)
			}
			fmt.Fprintf(w, "%d %v %s %s", c.Port(), c.IsTLS(), c.Host(), r.URL)
		}),
	})
	testkit.Must(t, err)
	listen := func(port uint16) (string, func()) {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		testkit.Must(t, err)
		remove, err := e.AddListener(entrance.Listener{TCP: l.(*net.TCPListener), Port: port, Slot: new(slot.ID)})
		testkit.Must(t, err)
		return l.Addr().String(), remove
	}
	early, _ := listen(3000)
	gone, removeGone := listen(3000)
	removeGone()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx) }()
	_, err = d.book.BeginLease(0, proxyapi.Registration{Generation: 1, Run: "r", Deadline: time.Now().Add(10 * time.Minute)})
	testkit.Must(t, err)
	late, removeLate := listen(9200)
	for _, c := range []struct{ to, protocol, want string }{
		{early, "", "3000 false  /x"}, {early, "http/1.1", "3000 true api.demo.test:3000 /x"}, {early, "h2", "3000 true api.demo.test:3000 /x"},
		{late, "", "9200 false  /x"}, {late, "http/1.1", "9200 true api.demo.test:9200 /x"},
	} {
		conn, err := net.Dial("tcp", c.to)
		testkit.Must(t, err)
		testkit.Must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		if c.protocol != "" {
			conn, err = d.over(conn, c.protocol)
			testkit.Must(t, err)
		}
		if got := get(t, conn, c.protocol == "h2"); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
		_ = conn.Close()
	}
	removeLate()
	for _, to := range []string{gone, late} {
		if _, err := net.Dial("tcp", to); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a removed listener accepts: %v", err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	after, _ := listen(3000)
	if _, err := net.Dial("tcp", after); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a listener that came after the end accepts: %v", err)
	}
	d.book.Close()
}

// get requests /x on a connection.
func get(t *testing.T, conn net.Conn, h2 bool) string {
	t.Helper()
	if h2 {
		return getHTTP2(t, conn)
	}
	fmt.Fprintf(conn, "GET /x HTTP/1.1\r\nHost: %s\r\n\r\n", host)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	testkit.Must(t, err)
	return text(t, resp)
}

func getHTTP2(t *testing.T, conn net.Conn) string {
	t.Helper()
	tr := &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }, Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP2(true)
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/x", nil)
	testkit.Must(t, err)
	resp, err := tr.RoundTrip(req)
	testkit.Must(t, err)
	return text(t, resp)
}

func text(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	data := make([]byte, 200)
	n, _ := resp.Body.Read(data)
	return string(data[:n])
}
