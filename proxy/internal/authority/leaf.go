package authority

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
)

const (
	leafLife    = 7 * 24 * time.Hour
	leafRenewal = 24 * time.Hour // a leaf that expires sooner is replaced
	maxLeaves   = 1024           // cached leaves
)

// ErrNoHost is the error for a handshake without a valid host name.
var ErrNoHost = errors.New("the client named no host")

// GetCertificate has the signature of tls.Config.GetCertificate. It rejects a handshake without a valid host name.
func (a *Authority) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if hello.ServerName == "" {
		return nil, ErrNoHost
	}
	host, err := catalog.ParseHost(hello.ServerName)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoHost, err)
	}
	return a.GetLeaf(host)
}

// GetLeaf returns a certificate for a host. It takes one from the cache if that is valid long enough.
func (a *Authority) GetLeaf(host catalog.Host) (*tls.Certificate, error) {
	name := host.String()
	// The lock is held during a signature, which is short: parallel handshakes for one host share the signature.
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[name]; c != nil {
		// The clock may have been set back before the leaf's begin.
		if now := a.now(); !now.Add(leafRenewal).After(c.Leaf.NotAfter) && !now.Before(c.Leaf.NotBefore) {
			return c, nil
		}
	}
	c, err := a.signLeaf(name)
	if err != nil {
		return nil, fmt.Errorf("minting a certificate: %w", err)
	}
	// Code can ask for any number of names with YOLO_MODE. The cache only saves signatures, so it may start over.
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	a.leaves[name] = c
	return c, nil
}

// signLeaf signs a leaf for one host, with the key that all leaves share.
func (a *Authority) signLeaf(name string) (*tls.Certificate, error) {
	now := a.now()
	until := now.Add(leafLife)
	// A leaf that outlives its authority would fail the verification.
	if until.After(a.cert.NotAfter) {
		until = a.cert.NotAfter
	}
	subject := pkix.Name{}
	if len(name) <= 64 { // the longest common name (RFC 5280, appendix A)
		subject.CommonName = name
	}
	template := &x509.Certificate{
		Subject:     subject,
		DNSNames:    []string{name},
		NotBefore:   now.Add(-backdate),
		NotAfter:    until,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.leaf.Public(), a.key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: a.leaf, Leaf: parsed}, nil
}
