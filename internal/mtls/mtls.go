// Package mtls secures the connections between pods. Both ends present a certificate of the installation's own
// authority, and each checks that the other has the expected role.
//
// Threat: another pod that connects to a sandbox, or that pretends to be one. A sandbox's certificate does not make it
// a client of other sandboxes. Contract: sessions are never resumed, so every connection is checked with the current
// files.
package mtls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// The roles are the DNS names in the certificates.
const (
	Sandbox   = "sandbox.codeforge.internal"    // sandboxd, and a proxy beside it
	Proxy     = "proxy.codeforge.internal"      // a proxy shared by sandboxes
	MCPServer = "mcp-server.codeforge.internal" // mcp-server
)

// File names of an identity in a Secret of type kubernetes.io/tls, and of cert-manager.
const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
	caFile   = "ca.crt"
)

// Identity is a folder with a certificate, its key, and the authority's certificate. It reads them for every
// connection, so new files take effect at once, without a restart.
type Identity struct{ dir string }

// Load checks that a folder has an identity.
func Load(dir string) (*Identity, error) {
	i := &Identity{dir: dir}
	_, _, err := i.readFiles()
	return i, err
}

func (i *Identity) readFiles() (tls.Certificate, *x509.CertPool, error) {
	cert, err := tls.LoadX509KeyPair(filepath.Join(i.dir, certFile), filepath.Join(i.dir, keyFile))
	if err != nil {
		return cert, nil, fmt.Errorf("reading the certificate in %s: %w", i.dir, err)
	}
	ca, err := os.ReadFile(filepath.Join(i.dir, caFile))
	if err != nil {
		return cert, nil, fmt.Errorf("reading the authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return cert, nil, fmt.Errorf("%s has no certificate", filepath.Join(i.dir, caFile))
	}
	return cert, pool, nil
}

// sharedConfig returns the settings that both ends share.
func (i *Identity) sharedConfig() (*tls.Config, error) {
	cert, pool, err := i.readFiles()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		// A resumed session would skip the check of the certificate.
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, SessionTicketsDisabled: true,
		RootCAs: pool, ClientCAs: pool,
	}, nil
}

// Listen listens on an address, host:port, with the identity of a folder, for connections of one role.
func Listen(ctx context.Context, address, dir, role string) (net.Listener, error) {
	id, err := Load(dir)
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", address)
	if err != nil {
		return nil, err
	}
	return id.WrapListener(l, role), nil
}

// WrapListener accepts connections of one role. The handshake happens in the first Read.
func (i *Identity) WrapListener(l net.Listener, role string) net.Listener {
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			conf, err := i.sharedConfig()
			if err != nil {
				return nil, err
			}
			conf.ClientAuth = tls.RequireAndVerifyClientCert
			conf.VerifyConnection = func(s tls.ConnectionState) error {
				if len(s.PeerCertificates) == 0 {
					return errors.New("no certificate")
				}
				// The authority's signature alone is not enough: every pod has one.
				return s.PeerCertificates[0].VerifyHostname(role)
			}
			return conf, nil
		},
	})
}

// Dial connects to an address, host:port, and checks the role of the server.
func (i *Identity) Dial(ctx context.Context, address, role string) (net.Conn, error) {
	conf, err := i.sharedConfig()
	if err != nil {
		return nil, err
	}
	conf.ServerName = role
	return (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp4", address)
}
