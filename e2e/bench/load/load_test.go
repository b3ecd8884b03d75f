package load

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/bench/origin"
	"github.com/codeforge-mcp/codeforge/e2e/bench/peer"
)

// serve is an origin made with net/http, and returns a peer that connects to it.
func serve(t *testing.T, h http.Handler) *peer.Peer {
	t.Helper()
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := origin.Certificate(ca, cert, key); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	go func() { _ = server.ServeTLS(l, cert, key) }()
	t.Cleanup(func() { _ = server.Close() })
	pem, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer.Peer{Name: "test", Address: l.Addr().String(), Roots: x509.NewCertPool(), Auth: "Bearer X"}
	p.Roots.AppendCertsFromPEM(pem)
	return p
}

// TestDo checks that bodies of every size and framing arrive as they were sent, in sequence on one connection.
func TestDo(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789"), 20_000)
	p := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.FormValue("n"))
		if r.Header.Get("Authorization") != "Bearer X" || r.Host != origin.Host {
			w.WriteHeader(http.StatusForbidden)
		}
		if r.FormValue("chunks") != "" {
			for rest := text[:n]; len(rest) > 0; {
				size := min(len(rest), 7777)
				_, _ = w.Write(rest[:size])
				_ = http.NewResponseController(w).Flush()
				rest = rest[size:]
			}
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(n))
		_, _ = w.Write(text[:n])
	}))
	c, err := Dial(t.Context(), p, p.Address, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, n := range []int{0, 1, 100, 16 << 10, len(text), 3} {
		for _, chunks := range []string{"", "&chunks=1"} {
			var got bytes.Buffer
			if err := c.Do(Request(p, "/?n="+strconv.Itoa(n)+chunks), &got); err != nil {
				t.Fatalf("%d%s: %v", n, chunks, err)
			}
			if !bytes.Equal(got.Bytes(), text[:n]) {
				t.Errorf("%d%s: %d other bytes", n, chunks, got.Len())
			}
		}
	}
	p.Auth = "Bearer Y"
	if err := c.Do(Request(p, "/?n=1"), io.Discard); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a refusal gives %v", err)
	}
}

// TestVerify checks that a certificate of another authority is refused, even after a valid one.
func TestVerify(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	p, other := serve(t, ok), serve(t, ok)
	for _, address := range []string{other.Address, p.Address, p.Address, other.Address} {
		c, err := Dial(t.Context(), p, address, 0)
		if (err == nil) != (address == p.Address) {
			t.Errorf("dialling the own server %v: %v", address == p.Address, err)
		}
		if err == nil {
			c.Close()
		}
	}
}
