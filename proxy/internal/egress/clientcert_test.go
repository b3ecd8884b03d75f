package egress_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clientPair is a certificate for clients and its key, in PEM.
func clientPair(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	check(t, err)
	text, err := x509.MarshalPKCS8PrivateKey(private)
	check(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// TestClientCert: the certificate of an API is shown to its hosts, and none where two APIs of a host differ.
func TestClientCert(t *testing.T) {
	cert, key := clientPair(t)
	const field = `, "client_cert": {"cert": "client.pem", "key": {"file": "client.key"}}`
	second := strings.NewReplacer(tokenName, "OTHER_API_TOKEN", secretValue, "another-value-of-ours")
	for name, c := range map[string]struct {
		apis  map[string]string
		shown bool
	}{
		"with":            {map[string]string{"demo": demoAPI(field)}, true},
		"without":         {map[string]string{"demo": demoAPI("")}, false},
		"two that agree":  {map[string]string{"demo": demoAPI(field), "more": second.Replace(demoAPI(field))}, true},
		"two that differ": {map[string]string{"demo": demoAPI(field), "more": second.Replace(demoAPI(""))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: c.apis})
			for api := range c.apis {
				check(t, os.WriteFile(filepath.Join(r.apis, api, "client.pem"), cert, 0o600))
				check(t, os.WriteFile(filepath.Join(r.apis, api, "client.key"), key, 0o600))
			}
			r.reloader.Load()
			var got []byte
			s := r.upstreams.https(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if len(req.TLS.PeerCertificates) > 0 {
					got = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: req.TLS.PeerCertificates[0].Raw})
				}
			}))
			s.TLS.ClientAuth = tls.RequestClientCert
			r.begin()
			resp, err := r.client(false).Get("https://" + demoHost + "/")
			check(t, err)
			if resp.StatusCode != 200 || (string(got) == string(cert)) != c.shown || !c.shown && got != nil {
				t.Errorf("%d %s, the server saw %q", resp.StatusCode, body(t, resp), got)
			}
		})
	}
}
