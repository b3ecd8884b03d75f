package mtls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// authority signs certificates of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{}
	a.cert, a.key = sign(t, nil, "authority")
	return a
}

func sign(t *testing.T, by *authority, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, key
	if by == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	testkit.Must(t, err)
	cert, err := x509.ParseCertificate(der)
	testkit.Must(t, err)
	return cert, key
}

// write replaces the identity in a folder.
func (a *authority) write(t *testing.T, dir, role string) {
	t.Helper()
	cert, key := sign(t, a, role)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	testkit.Must(t, err)
	for name, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: cert.Raw}, keyFile: {Type: "PRIVATE KEY", Bytes: der},
		caFile: {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
}

// echo answers one line to whoever the listener lets in.
func echo(t *testing.T, dir, role string) string {
	t.Helper()
	i, err := Load(dir)
	testkit.Must(t, err)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	over := i.WrapListener(l, role)
	go func() {
		for {
			c, err := over.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.CopyN(c, c, 1)
			}()
		}
	}()
	return l.Addr().String()
}

// asks reports whether the identity in dir gets an answer.
func asks(t *testing.T, dir, address, role string) bool {
	t.Helper()
	i, err := Load(dir)
	testkit.Must(t, err)
	c, err := i.Dial(t.Context(), address, role)
	if err != nil {
		return false
	}
	defer c.Close()
	_, _ = c.Write([]byte("x"))
	_, err = io.ReadFull(c, make([]byte, 1)) // with TLS 1.3 the server's verdict on the client comes here
	return err == nil
}

// Promise: pod-certificates
func TestRoles(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	server, sandbox, other, stranger := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	ours.write(t, server, MCPServer)
	ours.write(t, sandbox, Sandbox)
	ours.write(t, other, "else.codeforge.internal")
	theirs.write(t, stranger, MCPServer)
	at := echo(t, sandbox, MCPServer)
	if !asks(t, server, at, Sandbox) {
		t.Error("mcp-server is refused")
	}
	for name, dir := range map[string]string{"a sandbox": sandbox, "another role": other, "another authority": stranger} {
		if asks(t, dir, at, Sandbox) {
			t.Errorf("%s gets in", name)
		}
	}
	c, err := tls.Dial("tcp4", at, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is the client that must be refused
	if err == nil {
		_, _ = c.Write([]byte("x"))
		if _, err = io.ReadFull(c, make([]byte, 1)); err == nil {
			t.Error("a client without a certificate gets in")
		}
		_ = c.Close()
	}
	forged := t.TempDir() // behind the service, with a certificate of another authority or role
	theirs.write(t, forged, Sandbox)
	if asks(t, server, echo(t, forged, MCPServer), Sandbox) {
		t.Error("mcp-server trusts another authority")
	}
	if asks(t, server, echo(t, other, MCPServer), Sandbox) {
		t.Error("mcp-server trusts another role")
	}
}

// TestRotation: new files count from the next connection on, at both ends.
// Promise: pod-certificates
func TestRotation(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	server, sandbox := t.TempDir(), t.TempDir()
	before.write(t, server, MCPServer)
	before.write(t, sandbox, Sandbox)
	at := echo(t, sandbox, MCPServer)
	if !asks(t, server, at, Sandbox) {
		t.Fatal("refused before the change")
	}
	after.write(t, sandbox, Sandbox)
	if asks(t, server, at, Sandbox) {
		t.Error("the old authority still counts")
	}
	after.write(t, server, MCPServer)
	if !asks(t, server, at, Sandbox) {
		t.Error("the new authority does not count")
	}
}

// TestUnreadable: a folder with a missing or damaged file is no identity, and serves and makes no connection.
func TestUnreadable(t *testing.T) {
	ours, server := newAuthority(t), t.TempDir()
	ours.write(t, server, MCPServer)
	for _, name := range []string{certFile, keyFile, caFile} {
		for _, text := range []string{"", "garbage"} {
			dir := t.TempDir()
			ours.write(t, dir, Sandbox)
			at := echo(t, dir, MCPServer)
			i, err := Load(dir)
			testkit.Must(t, err)
			path := filepath.Join(dir, name)
			if testkit.Must(t, os.Remove(path)); text != "" {
				testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
			}
			if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), dir) {
				t.Errorf("%s is %q: %v", name, text, err)
			}
			if asks(t, server, at, Sandbox) {
				t.Errorf("%s is %q: the listener serves", name, text)
			}
			if _, err := i.Dial(t.Context(), at, Sandbox); err == nil || !strings.Contains(err.Error(), dir) {
				t.Errorf("%s is %q: Dial: %v", name, text, err)
			}
			if l, err := Listen(t.Context(), "127.0.0.1:0", dir, MCPServer); err == nil || !strings.Contains(err.Error(), dir) {
				t.Errorf("%s is %q: Listen: %v, %v", name, text, l, err)
			}
		}
	}
	if l, err := Listen(t.Context(), "192.0.2.1:0", server, Sandbox); err == nil {
		t.Errorf("an address of another machine: %v", l.Addr())
	}
	l, err := Listen(t.Context(), "127.0.0.1:0", server, Sandbox)
	testkit.Must(t, err)
	testkit.Must(t, l.Close())
}
