// Package origin is the server behind the measured proxies: HTTP/1.1 over TLS with responses of any size, events with
// the time at which they were sent, and a check that the credential arrived.
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
	"math/big"
	"net"
	"os"
	"time"

	"github.com/miekg/dns"
)

// Host is the name of the origin. Every name below it is the origin too.
const Host = "bench.test"

// Credential is the value of Authorization if the proxy has done its work.
const Credential = "sk_live_bench_0123456789abcdefghijklmn0"

// Certificate makes a certificate authority and a certificate for Host, and writes them to files.
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

// Serve serves HTTPS on the ports 443 and 8443 of this network namespace, and DNS on port 53, until it fails. Every
// name resolves to address.
func Serve(certFile, keyFile, address string) error {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return err
	}
	server := newServer(cert)
	errs := make(chan error)
	for _, port := range []string{":443", ":8443"} {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp4", port)
		if err != nil {
			return err
		}
		go func() { errs <- server.serve(l) }()
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

// records is JSON in one line, as most APIs send it.
func records(size int) []byte {
	var b bytes.Buffer
	b.WriteByte('[')
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `{"id":%d,"name":"Customer %d","email":"c%d@example.com","amount":%d,"live":true},`, i, i*7919%10007, i, i*31)
	}
	return b.Bytes()
}
