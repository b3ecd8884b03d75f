// Package origin is the server that the measured proxies lead to: HTTP/1.1 over TLS with answers of any size, events
// with the time at which they were sent, and a check that the credential arrived.
package origin

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/miekg/dns"
)

// Host is the name of the origin. Every name below it is the origin too.
const Host = "bench.test"

// Credential is what Authorization carries when the proxy did its work.
const Credential = "sk_live_bench_0123456789abcdefghijklmn0"

// Certificate makes an authority of its own and a certificate of Host, and writes them to files.
func Certificate(caFile, certFile, keyFile string) error {
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), BasicConstraintsValid: true,
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := template(1, "CodeForge benchmark")
	ca.IsCA, ca.KeyUsage = true, x509.KeyUsageCertSign
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	leaf := template(2, Host)
	leaf.DNSNames, leaf.KeyUsage = []string{Host, "*." + Host}, x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path, kind string
		der        []byte
	}{{caFile, "CERTIFICATE", caDER}, {certFile, "CERTIFICATE", leafDER}, {keyFile, "PRIVATE KEY", keyDER}} {
		if err := os.WriteFile(f.path, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der}), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Serve serves on the ports 443 and 8443 of this network namespace, and names on port 53, until it fails. Every name
// leads to address.
func Serve(certFile, keyFile, address string) error {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: handler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}, DynamicRecordSizingDisabled: true},
	}
	errs := make(chan error)
	for _, port := range []string{":443", ":8443"} {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp4", port)
		if err != nil {
			return err
		}
		go func() { errs <- server.ServeTLS(l, "", "") }()
	}
	names := &dns.Server{Addr: ":53", Net: "udp4", Handler: resolver(address)}
	go func() { errs <- names.ListenAndServe() }()
	return <-errs
}

func resolver(address string) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if len(q.Question) == 1 && q.Question[0].Qtype == dns.TypeA {
			m.Answer = append(m.Answer, &dns.A{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 3600}, A: net.ParseIP(address),
			})
		}
		_ = w.WriteMsg(m)
	}
}

// handler answers every path of the benchmark.
func handler() http.Handler {
	mux := http.NewServeMux()
	json := records(1 << 20)
	noise := make([]byte, 1<<20)
	src := mathrand.NewChaCha8([32]byte{1})
	_, _ = src.Read(noise)
	mux.HandleFunc("/small", small)
	mux.HandleFunc("/json", func(w http.ResponseWriter, r *http.Request) { body(w, r, "application/json", json) })
	mux.HandleFunc("/bytes", func(w http.ResponseWriter, r *http.Request) { body(w, r, "application/octet-stream", noise) })
	mux.HandleFunc("/events", events)
	return mux
}

// small answers some 200 bytes that quote the credential, as an echo would. Status 403 says that it did not arrive.
func small(w http.ResponseWriter, r *http.Request) {
	auth := r.Header.Get("Authorization")
	text := `{"id":"cus_9s6XKzkNRiz8i3","object":"customer","balance":0,"currency":"eur","email":"jenny@example.com",` +
		`"authorization":"` + auth + `","name":"Jenny Rosen"}` + "\n"
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	if auth != "Bearer "+Credential {
		w.WriteHeader(http.StatusForbidden)
	}
	_, _ = io.WriteString(w, text)
}

// records is JSON in one line, as most APIs send it.
func records(size int) []byte {
	var b bytes.Buffer
	b.WriteByte('[')
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `{"id":%d,"name":"Customer %d","email":"c%d@example.com","amount":%d,"live":true},`, i, i*7919%10007, i, i*31)
	}
	return b.Bytes()
}

// body sends ?size= bytes of a repeated text.
func body(w http.ResponseWriter, r *http.Request, kind string, text []byte) {
	size, err := strconv.ParseInt(r.URL.Query().Get("size"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	for size > 0 {
		n, err := w.Write(text[:min(size, int64(len(text)))])
		if err != nil {
			return
		}
		size -= int64(n)
	}
}

// events sends ?n= events, one each ?every=, each with the time of its sending in nanoseconds.
func events(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Query().Get("n"))
	every, err2 := time.ParseDuration(r.URL.Query().Get("every"))
	if err != nil || err2 != nil {
		http.Error(w, "want n and every", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	for range n {
		time.Sleep(every)
		if _, err := fmt.Fprintf(w, "data: %d\n\n", time.Now().UnixNano()); err != nil {
			return
		}
		if flush.Flush() != nil {
			return
		}
	}
}
