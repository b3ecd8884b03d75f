package entrance

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// sink is a connection that records every write.
type sink struct {
	net.Conn
	mu     sync.Mutex
	writes [][]byte
	err    error
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	s.writes = append(s.writes, bytes.Clone(p))
	return len(p), nil
}

// TestDetectTLS: the first byte decides on a port of the catalog, and a client without one is refused.
func TestDetectTLS(t *testing.T) {
	for _, c := range []struct {
		port    uint16
		first   string
		ok, tls bool
	}{
		{portHTTPS, "", true, true}, {portHTTP, "", true, false}, {3000, "\x16\x03", true, true}, {3000, "GET", true, false}, {3000, "", false, false},
	} {
		client, server := net.Pipe()
		go func() {
			_, _ = io.WriteString(client, c.first)
			_ = client.Close()
		}()
		conn := &Conn{Conn: server, port: c.port}
		if ok := conn.detectTLS(testkit.Patience); ok != c.ok || conn.tls != c.tls {
			t.Errorf("%d, %q: %v, TLS %v", c.port, c.first, ok, conn.tls)
		}
		if text, err := io.ReadAll(conn); err != nil || string(text) != c.first {
			t.Errorf("%d: read %q of %q, %v", c.port, text, c.first, err)
		}
	}
}

// TestCork: what is written while corked leaves at once, complete and in order, however much it is.
func TestCork(t *testing.T) {
	for _, sizes := range [][]int{{1}, {5, 16 << 10, 2}, {maxWire, 1}, {1, maxWire}, {1, maxWire + 1, 3}, {maxWire + 1}, {}} {
		s := &sink{}
		c := &Conn{Conn: s}
		var want []byte
		c.Cork()
		for i, n := range sizes {
			p := bytes.Repeat([]byte{byte('a' + i)}, n)
			want = append(want, p...)
			if m, err := c.Write(p); m != n || err != nil {
				t.Fatal(m, err)
			}
		}
		if len(want) <= maxWire && len(s.writes) > 0 {
			t.Errorf("%v: it wrote while corked", sizes)
		}
		if err := c.Uncork(); err != nil {
			t.Error(err)
		}
		if got := bytes.Join(s.writes, nil); !bytes.Equal(got, want) {
			t.Errorf("%v: %d bytes left, want %d", sizes, len(got), len(want))
		}
		if len(want) <= maxWire && len(s.writes) > 1 {
			t.Errorf("%v: %d writes", sizes, len(s.writes))
		}
		if _, err := c.Write([]byte("x")); err != nil || string(s.writes[len(s.writes)-1]) != "x" {
			t.Errorf("%v: it still holds after Uncork", sizes)
		}
	}
	c := &Conn{Conn: &sink{err: errors.New("gone")}}
	c.Cork()
	_, _ = c.Write([]byte("x"))
	if c.Uncork() == nil {
		t.Error("a failed write is not told")
	}
}

// TestUncorkSoon: what is held leaves within uncorkTime without an Uncork, and at once if it is much.
func TestUncorkSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{}
		c := &Conn{Conn: s}
		write := func(n int) {
			c.Cork()
			if _, err := c.Write(make([]byte, n)); err != nil {
				t.Error(err)
			}
			c.UncorkSoon()
		}
		for range 2 {
			write(2)
			write(3)
			s.expect(t, "written and held")
			time.Sleep(uncorkTime)
			synctest.Wait()
			s.expect(t, "after a while", 5)
		}
		for range 5 {
			write(maxWire / 4)
		}
		s.expect(t, "more than a cork holds", maxWire)
		if err := c.Uncork(); err != nil {
			t.Error(err)
		}
		s.expect(t, "uncorked", maxWire/4*5-maxWire)
		time.Sleep(2 * uncorkTime)
		synctest.Wait()
		s.expect(t, "after Uncork")
	})
}

// expect checks the sizes of the writes since the last time.
func (s *sink) expect(t *testing.T, when string, want ...int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var got []int
	for _, w := range s.writes {
		got = append(got, len(w))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: writes of %v bytes, want %v", when, got, want)
	}
	s.writes = nil
}

// TestRecords: pieces of a body that are framed separately leave in full TLS records, however many there are.
func TestRecords(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c := &Conn{Conn: server}
	over := textConn{tls.Server(c, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, DynamicRecordSizingDisabled: true}), c}
	const pieces, size = 6, 16 << 10
	done := make(chan error, 1)
	go func() {
		err := over.Handshake()
		c.Cork()
		for range pieces {
			for _, n := range []int{6, size, 2} {
				_, err2 := over.Write(make([]byte, n))
				err = errors.Join(err, err2)
			}
		}
		done <- errors.Join(err, c.Uncork(), over.Close())
	}()
	in := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
	var sizes []int
	buf := make([]byte, 2*size)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			sizes = append(sizes, n)
		}
		if err != nil {
			break
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if want := []int{size, size, size, size, size, size, pieces * 8}; !slices.Equal(sizes, want) {
		t.Errorf("records of %v bytes, want %v", sizes, want)
	}
}
