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

// Equal reports whether both are the same certificate and key, or none.
func (c *ClientCert) Equal(o *ClientCert) bool {
	return c == o || c != nil && o != nil && string(c.Cert) == string(o.Cert) && c.Key.Equal(o.Key)
}

// keyLines are the lines of a PEM text that hold key material.
func keyLines(key secret.Value) []secret.Value {
	const shortest = 16
	var out []secret.Value
	for line := range strings.Lines(key.Reveal()) {
		line = strings.TrimSpace(line)
		if len(line) >= shortest && !strings.HasPrefix(line, "-----") && !strings.Contains(line, ":") {
			out = append(out, secret.New(line))
		}
	}
	return out
}

func (v *validator) clientCert(raw *rawClientCert) *ClientCert {
	if raw == nil {
		return nil
	}
	cert, err := v.readNamed(raw.cert, maxCAs)
	if err != nil {
		v.Bad("client_cert.cert", reason(err), "a PEM file in the API's folder, or an absolute path")
	}
	key, ok := v.resolve("client_cert.key", raw.key)
	if err != nil || !ok {
		return nil
	}
	if _, err := tls.X509KeyPair(cert, []byte(key)); err != nil { // its text is not shown: it may quote
		v.Bad("client_cert", "no certificate and key in PEM that belong together",
			"the certificate in cert, with intermediates behind it, and its private key without a passphrase in key")
		return nil
	}
	return &ClientCert{Cert: cert, Key: secret.New(key)}
}
