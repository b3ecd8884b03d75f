// Package authority is the certificate authority that sandboxed code trusts.
//
// Contract: the key never leaves its file (0600) and this process. The certificate is published as a whole, by rename,
// before New returns. Every leaf uses one ECDSA P-256 key that is generated at the start, and expires before the
// authority.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
)

const (
	keyFile  = "ca.key"
	certFile = "ca.crt"
	// PublicFile is the file name of the certificate in the public directory.
	PublicFile = "ca.pem"

	caLife    = 10 * 365 * 24 * time.Hour
	caRenewal = 60 * 24 * time.Hour // an authority that expires sooner is replaced at start
	backdate  = time.Hour           // for clocks that are slow
)

// Config configures an Authority.
type Config struct {
	// Private is the directory of the key, and Public the directory of the published certificate. New creates both.
	Private, Public string
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// Authority issues leaf certificates. It is safe for concurrent use.
type Authority struct {
	now  func() time.Time
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	leaf *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[string]*tls.Certificate // by host
}

// New opens the authority in a directory, or creates it on the first start, and publishes its certificate.
func New(c Config) (*Authority, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if err := os.MkdirAll(c.Private, 0o700); err != nil {
		return nil, fmt.Errorf("creating the authority's directory: %w", err)
	}
	if err := os.MkdirAll(c.Public, 0o755); err != nil { //nolint:gosec // every user of the sandbox reads it
		return nil, fmt.Errorf("creating the directory of the public certificate: %w", err)
	}
	cert, key, err := openAuthority(c.Private, c.Now())
	if errors.Is(err, fs.ErrNotExist) {
		cert, key, err = createAuthority(c.Private, c.Now())
	}
	if err != nil {
		return nil, err
	}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	if err := atomicfile.Write(filepath.Join(c.Public, PublicFile), public, 0o644); err != nil {
		return nil, fmt.Errorf("publishing the authority's certificate: %w", err)
	}
	return &Authority{now: c.Now, cert: cert, key: key, leaf: leaf, leaves: map[string]*tls.Certificate{}}, nil
}

// Certificate returns the certificate of the authority.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// openAuthority reads the key and the certificate. An authority that expires soon counts as missing.
func openAuthority(dir string, now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	keyPath := filepath.Join(dir, keyFile)
	info, err := os.Stat(keyPath)
	if err != nil {
		return nil, nil, err
	}
	// Another user who can read the key could impersonate every host to the sandbox.
	if info.Mode().Perm()&0o077 != 0 {
		return nil, nil, fmt.Errorf("%s: mode %04o: want 0600", keyPath, info.Mode().Perm())
	}
	// A pair that does not match is an error. A crash between the two writes, or a copied file, leaves such a pair.
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, certFile), keyPath)
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if err == nil && !ok {
		err = errors.New("want an ECDSA key")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s and %s in %s: %w; remove both to create a new authority", keyFile, certFile,
			dir, err)
	}
	if now.Add(caRenewal).After(pair.Leaf.NotAfter) {
		// New then creates another authority.
		return nil, nil, fs.ErrNotExist
	}
	return pair.Leaf, key, nil
}

// createAuthority makes a new authority. It removes an old key first and writes the new one last: the authority exists
// while the key file exists. So a crash between leaves no key beside the certificate of another.
func createAuthority(dir string, now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{ // CreateCertificate chooses the serial number
		Subject:               pkix.Name{CommonName: "CodeForge sandbox CA", Organization: []string{"CodeForge"}},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("creating the authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	if err := os.Remove(filepath.Join(dir, keyFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("removing the old authority: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(dir, certFile), certPEM, 0o600); err != nil {
		return nil, nil, fmt.Errorf("writing the authority: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(dir, keyFile), keyPEM, 0o600); err != nil {
		return nil, nil, fmt.Errorf("writing the authority: %w", err)
	}
	return cert, key, nil
}
