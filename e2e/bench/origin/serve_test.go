package origin

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestServe checks that net/http understands the origin, on one connection, and that the response depends on the
// credential.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	ca, certFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := Certificate(ca, certFile, keyFile); err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := newServer(cert)
	go func() { _ = s.serve(l) }()
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	roots.AppendCertsFromPEM(pem)
	dials := 0
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			dials++
			return (&net.Dialer{}).DialContext(ctx, network, l.Addr().String())
		},
	}}
	defer client.CloseIdleConnections()
	get := func(path, auth string) (int, []byte) {
		req, err := http.NewRequest(http.MethodGet, "https://"+Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", auth)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return resp.StatusCode, body
	}
	const bearer = "Bearer " + Credential
	if status, body := get("/small", bearer); status != http.StatusOK || !strings.Contains(string(body), bearer) {
		t.Errorf("small: %d %s", status, body)
	}
	if status, _ := get("/small", "Bearer NAME"); status != http.StatusForbidden {
		t.Errorf("without the credential: %d", status)
	}
	if _, body := get("/json?size=3000000", bearer); len(body) != 3_000_000 || !bytes.Equal(body[:1<<20], s.json[:1<<20]) {
		t.Errorf("json: %d bytes", len(body))
	}
	if _, body := get("/bytes?size=5", bearer); !bytes.Equal(body, s.noise[:5]) {
		t.Errorf("bytes: %d bytes", len(body))
	}
	if _, body := get("/events?n=3&every=1ms", bearer); strings.Count(string(body), "data: ") != 3 {
		t.Errorf("events: %s", body)
	}
	if dials != 1 {
		t.Errorf("%d connections for one after the other", dials)
	}
}
