// Package peer starts the peers of the comparison: CodeForge's proxy, mitmproxy, iron-proxy, and a direct connection.
package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/codeforge-mcp/codeforge/e2e/bench/arena"
	"github.com/codeforge-mcp/codeforge/e2e/bench/origin"
)

// Peer is one way from the client to the origin.
type Peer struct {
	Name string
	// Address is where the client connects for whole bodies, StreamAddress for bodies that the peer should not buffer.
	Address, StreamAddress string
	// Roots are the certificate authorities that the client trusts on this way.
	Roots *x509.CertPool
	// Process and StreamProcess are the measured processes; nil for Direct.
	Process, StreamProcess *arena.Process
	// Auth is the Authorization header that the client sends.
	Auth string

	// Echoes is set if the peer leaves credentials in responses.
	Echoes bool
	// Control is the socket of the control API, or empty.
	Control string

	stop  func()
	known atomic.Pointer[x509.Certificate] // the last certificate that Verify accepted
}

// Verify has the signature of tls.Config.VerifyConnection. It verifies the chain of a certificate only when it is new:
// repeating that for every connection would take more processor time from a proxy with elliptic curves than from one
// with RSA. crypto/tls verifies each time that the server has the key.
func (p *Peer) Verify(s tls.ConnectionState) error {
	leaf := s.PeerCertificates[0]
	if known := p.known.Load(); known != nil && known.Equal(leaf) {
		return nil
	}
	o := x509.VerifyOptions{Roots: p.Roots, DNSName: s.ServerName, Intermediates: x509.NewCertPool()}
	for _, c := range s.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	if _, err := leaf.Verify(o); err != nil {
		return err
	}
	p.known.Store(leaf)
	return nil
}

// Close ends the peer.
func (p *Peer) Close() {
	if p != nil && p.stop != nil {
		p.stop()
	}
}

// The token name of the credential, and the number of credentials.
const (
	tokenName = "BENCH_TOKEN_0"
	// Standard is the number of credentials, except where a curve varies it.
	Standard = 8
)

// bearer is what code in the sandbox writes.
const bearer = "Bearer " + tokenName

// credential is the n-th token name and its value.
func credential(n int) (name, value string) {
	if n == 0 {
		return tokenName, origin.Credential
	}
	return fmt.Sprintf("BENCH_TOKEN_%d", n), fmt.Sprintf("sk_live_bench_%08x%016x", n*2654435761&0xffffffff, uint64(n)*0x9e3779b97f4a7c15)
}

// Direct is the way without a proxy.
func Direct(caFile string) (*Peer, error) {
	roots, err := pool(caFile)
	return &Peer{
		Name: "direct", Address: arena.Direct + ":443", StreamAddress: arena.Direct + ":443", Roots: roots, Auth: "Bearer " + origin.Credential,
	}, err
}

// pool reads a PEM file.
func pool(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(pem) {
		return nil, errors.New(path + ": no certificate in it")
	}
	return p, nil
}

// exists reports whether a file is there and not empty.
func exists(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Size() > 0
}
