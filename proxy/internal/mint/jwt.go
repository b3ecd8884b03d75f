package mint

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// parseKey reads a private RSA key in PEM: PKCS #1 or PKCS #8. Package catalog accepts no other key.
func parseKey(key secret.Value) (*rsa.PrivateKey, bool) {
	block, _ := pem.Decode([]byte(key.Reveal()))
	if block == nil {
		return nil, false
	}
	if k, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return k, true
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	k, ok := parsed.(*rsa.PrivateKey)
	return k, ok && err == nil
}

// signJWT returns a JSON Web Token (RFC 7519) in compact form, signed with RS256. kid may be empty. The error does not
// quote the key.
func signJWT(key secret.Value, kid string, claims map[string]any) (string, error) {
	k, ok := parseKey(key)
	header := map[string]string{"typ": "JWT", "alg": "RS256"}
	if kid != "" {
		header["kid"] = kid
	}
	head, err := json.Marshal(header)
	body, bad := json.Marshal(claims)
	if !ok || err != nil || bad != nil {
		return "", newUnavailable(detailKey)
	}
	text := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:])
	if err != nil {
		return "", newUnavailable(detailKey)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}
