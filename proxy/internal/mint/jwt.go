package mint

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// errKey is the error for a private key that cannot sign. It does not quote the key.
var errKey = errors.New("the private key cannot sign")

// parseKey reads a private key in PEM: PKCS #1, PKCS #8 or SEC 1.
func parseKey(key secret.Value) (crypto.Signer, error) {
	block, _ := pem.Decode([]byte(key.Reveal()))
	if block == nil {
		return nil, errKey
	}
	if k, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return k, nil
	}
	if k, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return k, nil
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		// The error of package x509 may quote the key.
		return nil, errKey
	}
	if s, ok := k.(crypto.Signer); ok {
		return s, nil
	}
	return nil, errKey
}

// signJWT returns a signed JSON Web Token (RFC 7519) in compact form. The type of the key decides between RS256, ES256
// and EdDSA. kid may be empty.
func signJWT(key crypto.Signer, kid string, claims map[string]any) (string, error) {
	header := map[string]string{"typ": "JWT"}
	if kid != "" {
		header["kid"] = kid
	}
	switch k := key.(type) {
	case *rsa.PrivateKey:
		header["alg"] = "RS256"
	case *ecdsa.PrivateKey:
		// ES256 is defined only for P-256 (RFC 7518, section 3.4).
		if k.Curve != elliptic.P256() {
			return "", errKey
		}
		header["alg"] = "ES256"
	case ed25519.PrivateKey:
		header["alg"] = "EdDSA"
	default:
		return "", errKey
	}
	head, err := json.Marshal(header)
	if err != nil {
		return "", errKey
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", errKey
	}
	text := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(body)
	signature, err := signText(key, []byte(text))
	if err != nil {
		return "", errKey
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

// signText signs a text by RFC 7518. An ECDSA signature is r and s of 32 bytes each, not ASN.1.
func signText(key crypto.Signer, text []byte) ([]byte, error) {
	// Ed25519 hashes the text itself, so it gets no hash (RFC 8032, section 5.1.6).
	if k, ok := key.(ed25519.PrivateKey); ok {
		return ed25519.Sign(k, text), nil
	}
	sum := sha256.Sum256(text)
	k, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		// With a plain hash as options, RSA uses PKCS #1 v1.5, as RS256 requires (RFC 7518, section 3.3).
		return key.Sign(rand.Reader, sum[:], crypto.SHA256)
	}
	r, s, err := ecdsa.Sign(rand.Reader, k, sum[:])
	if err != nil {
		return nil, err
	}
	const size = 32
	out := make([]byte, 2*size)
	// FillBytes keeps leading zeros. With Bytes, about one signature in 128 would be too short.
	r.FillBytes(out[:size])
	s.FillBytes(out[size:])
	return out, nil
}
