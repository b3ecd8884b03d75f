package accesstoken_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/accesstoken"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
)

const audience = "https://codeforge.example.com/mcp"

// open returns a verifier of an issuer's tokens, and its log.
func open(t *testing.T, f *fakepeers.FakeIssuer, claim string) (*accesstoken.Verifier, *testkit.Buffer) {
	t.Helper()
	log := &testkit.Buffer{}
	v, err := accesstoken.New(accesstoken.Config{
		Issuer: f.URL, Audience: audience, Claim: claim, CAFile: f.CAFile, Log: logline.New(log, "text", nil),
	})
	testkit.Must(t, err)
	return v, log
}

// TestForgedTokens: only a token that the issuer made for this server alone, and that has not expired, is a login. No
// log line has a token.
// Promise: access-tokens
func TestForgedTokens(t *testing.T) {
	f, other := fakepeers.NewIssuer(t), fakepeers.NewIssuer(t)
	valid := func(changes map[string]any) map[string]any { return f.Claims(audience, "ann", changes) }
	plain := func(header string, claims map[string]any, signature string) string {
		text, err := json.Marshal(claims)
		testkit.Must(t, err)
		encode := base64.RawURLEncoding.EncodeToString
		return encode([]byte(header)) + "." + encode(text) + "." + encode([]byte(signature))
	}
	public, err := x509.MarshalPKIXPublicKey(f.Key().Key.(*rsa.PrivateKey).Public())
	testkit.Must(t, err)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	good := f.SignClaims(t, valid(nil))
	parts := strings.Split(good, ".")
	for _, c := range []struct{ name, token string }{
		{"no token", ""},
		{"no JWT", "abc"},
		{"three points", "..."},
		{"alg none", plain(`{"alg":"none"}`, valid(nil), "")},
		{"alg None", plain(`{"alg":"None","kid":"first"}`, valid(nil), "")},
		{"alg none with a signature", plain(`{"alg":"none","kid":"first"}`, valid(nil), "signed")},
		{"no alg", plain(`{"kid":"first"}`, valid(nil), "")},
		{"HS256 with the public key", fakepeers.SignToken(t, jose.HS256, jose.JSONWebKey{Key: publicPEM, KeyID: "first"}, valid(nil))},
		{"HS256 with the public key in DER", fakepeers.SignToken(t, jose.HS256, jose.JSONWebKey{Key: public, KeyID: "first"}, valid(nil))},
		{"another key under the same ID", fakepeers.SignToken(t, jose.ES256, jose.JSONWebKey{Key: newECKey(t), KeyID: "first"}, valid(nil))},
		{"another issuer's key", other.SignClaims(t, valid(nil))},
		{"another issuer", other.SignClaims(t, other.Claims(audience, "ann", nil))},
		{"another issuer in the claim", f.SignClaims(t, valid(map[string]any{"iss": "https://evil.example.com"}))},
		{"the issuer with a slash", f.SignClaims(t, valid(map[string]any{"iss": f.URL + "/"}))},
		{"no issuer", f.SignClaims(t, valid(map[string]any{"iss": nil}))},
		{"another server", f.SignClaims(t, valid(map[string]any{"aud": "https://other.example.com/mcp"}))},
		{"this server's origin", f.SignClaims(t, valid(map[string]any{"aud": "https://codeforge.example.com"}))},
		{"two servers", f.SignClaims(t, valid(map[string]any{"aud": []string{audience, "https://other.example.com"}}))},
		{"two servers, this one last", f.SignClaims(t, valid(map[string]any{"aud": []string{"https://other.example.com", audience}}))},
		{"no audience", f.SignClaims(t, valid(map[string]any{"aud": nil}))},
		{"an empty audience", f.SignClaims(t, valid(map[string]any{"aud": []string{}}))},
		{"expired", f.SignClaims(t, valid(map[string]any{"exp": time.Now().Add(-time.Second).Unix()}))},
		{"no expiry", f.SignClaims(t, valid(map[string]any{"exp": nil}))},
		{"not yet valid", f.SignClaims(t, valid(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}))},
		{"no subject", f.SignClaims(t, valid(map[string]any{"sub": nil}))},
		{"a subject that is no text", f.SignClaims(t, valid(map[string]any{"sub": 1}))},
		{"claims of another token", parts[0] + "." + strings.Split(f.SignClaims(t, valid(map[string]any{"sub": "bob"})), ".")[1] + "." + parts[2]},
		{"a signature cut short", good[:len(good)-4]},
		{"two signatures", `{"payload":"` + parts[1] + `","signatures":[{"protected":"` + parts[0] + `","signature":"` + parts[2] + `"},{"protected":"` + parts[0] + `","signature":"` + parts[2] + `"}]}`},
	} {
		v, log := open(t, f, "sub") // with a new bound of requests
		if l, err := v.Verify(t.Context(), good); err != nil || l.Subject != "ann" || !slices.Equal(l.Names, []string{"ann"}) || time.Until(l.Expires) < 50*time.Minute {
			t.Fatalf("a valid token: %+v %v\n%s", l, err, log)
		}
		if l, err := v.Verify(t.Context(), c.token); !errors.Is(err, auth.ErrInvalidToken) || err.Error() != auth.ErrInvalidToken.Error() || l.Subject != "" {
			t.Errorf("%s: %+v %v", c.name, l, err)
		}
		if !strings.Contains(log.String(), "refused an access token") {
			t.Errorf("%s: the log has no reason: %s", c.name, log)
		}
		if last := strings.LastIndex(c.token, ".") + 1; len(c.token) > last+8 && strings.Contains(log.String(), c.token[last:]) {
			t.Errorf("%s: the log has the token: %s", c.name, log)
		}
	}
}

// TestClaims: the claim of the setting names the login, as a text or a list. An address that the provider has not
// verified names nobody.
// Promise: access-tokens
func TestClaims(t *testing.T) {
	f := fakepeers.NewIssuer(t)
	for _, c := range []struct {
		claim   string
		changes map[string]any
		want    string // the names, or "" for a refusal
	}{
		{"groups", map[string]any{"groups": []string{"team", "all"}}, "[team all]"},
		{"groups", map[string]any{"groups": "team"}, "[team]"},
		{"groups", map[string]any{"groups": []any{"team", 1}}, ""},
		{"groups", map[string]any{"groups": []string{}}, ""},
		{"groups", map[string]any{"groups": ""}, ""},
		{"groups", map[string]any{"groups": map[string]any{"team": true}}, ""},
		{"groups", nil, ""},
		{"https://example.com/tenant", map[string]any{"https://example.com/tenant": "t"}, "[t]"},
		{"email", map[string]any{"email": "ann@example.com", "email_verified": true}, "[ann@example.com]"},
		{"email", map[string]any{"email": "ann@example.com"}, ""},
		{"email", map[string]any{"email": "ann@example.com", "email_verified": false}, ""},
		{"email", map[string]any{"email": "ann@example.com", "email_verified": "true"}, ""},
	} {
		v, log := open(t, f, c.claim)
		l, err := v.Verify(t.Context(), f.SignClaims(t, f.Claims(audience, "ann", c.changes)))
		if c.want == "" && !errors.Is(err, auth.ErrInvalidToken) || c.want != "" && (err != nil || fmt.Sprint(l.Names) != c.want) {
			t.Errorf("%s of %v: %v %v\n%s", c.claim, c.changes, l.Names, err, log)
		}
	}
}

// TestKeyRotation: a new key of the issuer is found with the first token that has it, and the old one counts no more
// after that. Forged tokens cause few requests to the issuer, and do not hold up that.
// Promise: access-tokens
func TestKeyRotation(t *testing.T) {
	f := fakepeers.NewIssuer(t)
	v, log := open(t, f, "sub")
	old := f.SignClaims(t, f.Claims(audience, "ann", nil))
	if _, err := v.Verify(t.Context(), old); err != nil {
		t.Fatal(err, log)
	}
	f.RotateKey(t, "second")
	current := f.SignClaims(t, f.Claims(audience, "ann", nil))
	if _, err := v.Verify(t.Context(), current); err != nil {
		t.Errorf("with the new key: %v\n%s", err, log)
	}
	if _, err := v.Verify(t.Context(), old); !errors.Is(err, auth.ErrInvalidToken) {
		t.Errorf("with the old key: %v", err)
	}
	if n := countFetches(t, f, v); n > 10 {
		t.Errorf("200 forged tokens cause %d requests", n)
	}
	if _, err := v.Verify(t.Context(), current); err != nil {
		t.Errorf("after a storm: %v\n%s", err, log)
	}
	f.RotateKey(t, "third")
	latest := f.SignClaims(t, f.Claims(audience, "ann", nil))
	testkit.WaitFor(t, func() bool { _, err := v.Verify(t.Context(), latest); return err == nil })
}

// countFetches returns how many requests 200 forged tokens cause.
func countFetches(t *testing.T, f *fakepeers.FakeIssuer, v *accesstoken.Verifier) int {
	t.Helper()
	before := f.CountFetches()
	forged := fakepeers.SignToken(t, jose.ES256, jose.JSONWebKey{Key: newECKey(t), KeyID: "unknown"}, f.Claims(audience, "ann", nil))
	for range 200 {
		if _, err := v.Verify(t.Context(), forged); err == nil {
			t.Fatal("a forged token is valid")
		}
	}
	return f.CountFetches() - before
}

// TestIssuerDown: while the issuer cannot be reached, a token is neither valid nor invalid, so that clients keep it.
// Known keys still count.
func TestIssuerDown(t *testing.T) {
	f := fakepeers.NewIssuer(t)
	f.SetDown(true)
	v, log := open(t, f, "sub")
	token := f.SignClaims(t, f.Claims(audience, "ann", nil))
	if _, err := v.Verify(t.Context(), token); err == nil || errors.Is(err, auth.ErrInvalidToken) {
		t.Errorf("while it is down: %v", err)
	}
	f.SetDown(false)
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Errorf("when it is up again: %v\n%s", err, log)
	}
	f.SetDown(true)
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Errorf("with known keys: %v\n%s", err, log)
	}
	if _, err := accesstoken.New(accesstoken.Config{CAFile: "none"}); err == nil || !strings.HasPrefix(err.Error(), "OIDC_CA_FILE: ") {
		t.Errorf("no authorities: %v", err)
	}
}

// newECKey returns a key that no issuer publishes.
func newECKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(tb, err)
	return key
}
