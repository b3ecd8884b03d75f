// Package testca is a certificate authority for tests.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// CA is an authority. It makes one leaf certificate per name, on first use.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	leaf *ecdsa.PrivateKey

	mu    sync.Mutex
	certs map[string]*tls.Certificate
}

// The files of a CA in its directory.
const (
	caFile  = "ca.pem"
	keyFile = "ca.key"
)

// New makes an authority with a fresh key.
func New(name string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return buildCA(cert, key)
}

func buildCA(cert *x509.Certificate, key *ecdsa.PrivateKey) (*CA, error) {
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return &CA{cert: cert, key: key, leaf: leaf, certs: map[string]*tls.Certificate{}}, nil
}

// Load reads an authority that Save has written.
func Load(dir string) (*CA, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, caFile), filepath.Join(dir, keyFile))
	if err != nil {
		return nil, fmt.Errorf("loading the test authority: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("loading the test authority: key is %T, want ECDSA", pair.PrivateKey)
	}
	return buildCA(pair.Leaf, key)
}

// Save writes the authority's certificate and key to dir.
func (c *CA) Save(dir string) error {
	der, err := x509.MarshalECPrivateKey(c.key)
	if err != nil {
		return err
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(filepath.Join(dir, keyFile), key, 0o644); err != nil { //nolint:gosec // a throw-away test key
		return err
	}
	return os.WriteFile(filepath.Join(dir, caFile), c.PEM(), 0o644) //nolint:gosec // public
}

// PEM returns the authority's certificate.
func (c *CA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw})
}

// CertPool returns a pool with only this authority.
func (c *CA) CertPool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(c.cert)
	return p
}

// IssueLeaf returns the certificate that is presented for name. It is issued to claim and valid until end. The first
// call for a name makes it.
func (c *CA) IssueLeaf(name, claim string, end time.Time) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if got, ok := c.certs[name]; ok {
		return got, nil
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: claim},
		DNSNames:     []string{claim},
		NotBefore:    time.Now().Add(-48 * time.Hour), NotAfter: end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, c.cert, &c.leaf.PublicKey, c.key)
	if err != nil {
		return nil, err
	}
	cert := &tls.Certificate{Certificate: [][]byte{der, c.cert.Raw}, PrivateKey: c.leaf}
	c.certs[name] = cert
	return cert, nil
}
