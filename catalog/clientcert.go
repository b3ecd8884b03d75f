package catalog

import (
	"crypto/tls"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// ClientCert is the certificate by which the proxy authenticates at the hosts of an API ("client_cert").
type ClientCert struct {
	Cert []byte       // PEM, with intermediates
	Key  secret.Value // PEM
}

// Equal reports whether both are the same certificate and key, or both are nil.
func (c *ClientCert) Equal(o *ClientCert) bool {
	return c == o || c != nil && o != nil && string(c.Cert) == string(o.Cert) && c.Key.Equal(o.Key)
}

// keyLines returns the lines of a PEM text that contain key material.
func keyLines(key secret.Value) []secret.Value {
	const shortest = 16
	var out []secret.Value
	for line := range strings.Lines(key.Reveal()) {
		line = strings.TrimSpace(line)
		// Responses contain short texts by chance, and PEM headers are not secret.
		if len(line) >= shortest && !strings.HasPrefix(line, "-----") && !strings.Contains(line, ":") {
			out = append(out, secret.New(line))
		}
	}
	return out
}

func (v *configValidator) buildClientCert(raw *rawClientCert) *ClientCert {
	if raw == nil {
		return nil
	}
	cert, err := v.readNamed(raw.cert, maxCAs)
	if err != nil {
		v.addReadError("client_cert.cert", raw.cert, "a PEM file", err)
	}
	key, ok := v.resolveSecret("client_cert.key", raw.key)
	if err != nil || !ok {
		return nil
	}
	// The error is not shown, because it may quote the key.
	if _, err := tls.X509KeyPair(cert, []byte(key)); err != nil {
		v.AddError("client_cert", "no certificate and key in PEM that belong together",
			"the certificate in cert, with intermediates behind it, and its private key without a passphrase in key")
		return nil
	}
	return &ClientCert{Cert: cert, Key: secret.New(key)}
}
