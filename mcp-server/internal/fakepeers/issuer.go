package fakepeers

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// FakeIssuer is an identity provider that only publishes its keys. Tests sign tokens with them.
type FakeIssuer struct {
	// URL is the issuer. CAFile is a PEM file for its certificate.
	URL, CAFile string
	// Introspect serves the introspection endpoint. It may be nil.
	Introspect http.HandlerFunc

	mu      sync.Mutex
	key     jose.JSONWebKey // private
	fetches int
	down    bool
}

// NewIssuer starts an issuer with an RSA key.
func NewIssuer(tb testing.TB) *FakeIssuer {
	tb.Helper()
	f := &FakeIssuer{}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": f.URL, "jwks_uri": f.URL + "/keys", "introspection_endpoint": f.URL + "/introspect",
		})
	})
	mux.HandleFunc("POST /introspect", func(w http.ResponseWriter, r *http.Request) { f.Introspect(w, r) })
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.fetches++
		answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{f.key.Public()}})
	})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		down := f.down
		f.mu.Unlock()
		if down {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	tb.Cleanup(server.Close)
	f.URL, f.CAFile = server.URL, filepath.Join(tb.TempDir(), "issuer.pem")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	testkit.Must(tb, os.WriteFile(f.CAFile, ca, 0o600))
	f.RotateKey(tb, "first")
	return f
}

// RotateKey replaces the key by an RSA key with this ID.
func (f *FakeIssuer) RotateKey(tb testing.TB, id string) {
	tb.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	testkit.Must(tb, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key = jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.RS256), Use: "sig"}
}

// SetDown makes the issuer answer every request with an error.
func (f *FakeIssuer) SetDown(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

// CountFetches returns how often the keys were read.
func (f *FakeIssuer) CountFetches() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fetches
}

// Key returns the private key.
func (f *FakeIssuer) Key() jose.JSONWebKey {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.key
}

// Claims returns the claims of a valid token for an audience, with changes. A change to nil removes a claim.
func (f *FakeIssuer) Claims(audience, subject string, changes map[string]any) map[string]any {
	claims := map[string]any{
		"iss": f.URL, "aud": audience, "sub": subject, "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
	}
	for name, value := range changes {
		claims[name] = value
		if value == nil {
			delete(claims, name)
		}
	}
	return claims
}

// SignClaims returns a token with the issuer's key.
func (f *FakeIssuer) SignClaims(tb testing.TB, claims map[string]any) string {
	tb.Helper()
	return SignToken(tb, jose.RS256, f.Key(), claims)
}

// SignToken returns a token with any algorithm and key.
func SignToken(tb testing.TB, algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	tb.Helper()
	options := (&jose.SignerOptions{}).WithType("at+jwt")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	testkit.Must(tb, err)
	text, err := json.Marshal(claims)
	testkit.Must(tb, err)
	signed, err := signer.Sign(text)
	testkit.Must(tb, err)
	token, err := signed.CompactSerialize()
	testkit.Must(tb, err)
	return token
}
