package authority

import (
	"container/list"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/codeforge-mcp/codeforge/catalog"
)

const (
	leafLife    = 7 * 24 * time.Hour
	leafRenewal = 24 * time.Hour // a leaf that expires sooner is replaced
	maxLeaves   = 1024           // cached leaves; the least recently used goes first
)

// ErrNoHost is the error for a handshake without a valid host name.
var ErrNoHost = errors.New("the client named no host")

// leafCache caches leaf certificates by host.
type leafCache struct {
	mu     sync.Mutex
	byHost map[string]*list.Element
	order  list.List // of *entry, most recently used first
	flight singleflight.Group
}

type leafEntry struct {
	host string
	cert *tls.Certificate
}

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
	if c := a.findCachedLeaf(name); c != nil {
		return c, nil
	}
	// Parallel handshakes for one host share one signature.
	c, err, _ := a.flight.Do(name, func() (any, error) {
		// An earlier flight may have stored the leaf since the first look.
		if c := a.findCachedLeaf(name); c != nil {
			return c, nil
		}
		c, err := a.signLeaf(name)
		if err == nil {
			a.cacheLeaf(name, c)
		}
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("minting a certificate: %w", err)
	}
	return c.(*tls.Certificate), nil
}

// findCachedLeaf returns a leaf that is valid now and does not expire soon, or nil. The clock may have been set back
// before its begin.
func (a *Authority) findCachedLeaf(name string) *tls.Certificate {
	a.mu.Lock()
	defer a.mu.Unlock()
	el := a.byHost[name]
	if el == nil {
		return nil
	}
	c := el.Value.(*leafEntry).cert
	if now := a.now(); now.Add(leafRenewal).After(c.Leaf.NotAfter) || now.Before(c.Leaf.NotBefore) {
		return nil
	}
	a.order.MoveToFront(el)
	return c
}

func (a *Authority) cacheLeaf(name string, c *tls.Certificate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byHost == nil {
		a.byHost = map[string]*list.Element{}
	}
	if el := a.byHost[name]; el != nil {
		el.Value.(*leafEntry).cert = c
		a.order.MoveToFront(el)
		return
	}
	a.byHost[name] = a.order.PushFront(&leafEntry{name, c})
	// Code can ask for any number of names with YOLO_MODE.
	for len(a.byHost) > maxLeaves {
		last := a.order.Remove(a.order.Back()).(*leafEntry)
		delete(a.byHost, last.host)
	}
}

// signLeaf signs a leaf for one host, with the key that all leaves share.
func (a *Authority) signLeaf(name string) (*tls.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
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
		SerialNumber: serial,
		Subject:      subject,
		DNSNames:     []string{name},
		NotBefore:    now.Add(-backdate),
		NotAfter:     until,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
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
