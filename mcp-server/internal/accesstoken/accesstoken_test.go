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

// forged is a token that is no login.
type forged struct {
	name string
	// defence is the only defence that refuses it, or all that do, or why there is no control, in parentheses.
	defence string
	token   string
}

// forgeTokens returns tokens for a verifier of the issuer f, and a valid token.
func forgeTokens(t *testing.T, f *fakepeers.FakeIssuer) (list []forged, good string) {
	t.Helper()
	other := fakepeers.NewIssuer(t)
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
	good = f.SignClaims(t, valid(nil))
	parts := strings.Split(good, ".")
	return []forged{
		{"no token", "(it has no claims)", ""},
		{"no JWT", "(it has no claims)", "abc"},
		{"three points", "(it has no claims)", "..."},
		{"alg none", "token-signature", plain(`{"alg":"none"}`, valid(nil), "")},
		{"alg None", "token-signature", plain(`{"alg":"None","kid":"first"}`, valid(nil), "")},
		{"alg none with a signature", "token-signature", plain(`{"alg":"none","kid":"first"}`, valid(nil), "signed")},
		{"no alg", "token-signature", plain(`{"kid":"first"}`, valid(nil), "")},
		{"HS256 with the public key", "token-signature", fakepeers.SignToken(t, jose.HS256, jose.JSONWebKey{Key: publicPEM, KeyID: "first"}, valid(nil))},
		{"HS256 with the public key in DER", "token-signature", fakepeers.SignToken(t, jose.HS256, jose.JSONWebKey{Key: public, KeyID: "first"}, valid(nil))},
		{"another key under the same ID", "token-signature", fakepeers.SignToken(t, jose.ES256, jose.JSONWebKey{Key: newECKey(t), KeyID: "first"}, valid(nil))},
		{"another issuer's key", "token-signature", other.SignClaims(t, valid(nil))},
		{"another issuer", "token-issuer,token-signature", other.SignClaims(t, other.Claims(audience, "ann", nil))},
		{"another issuer in the claim", "token-issuer", f.SignClaims(t, valid(map[string]any{"iss": "https://evil.example.com"}))},
		{"the issuer with a slash", "token-issuer", f.SignClaims(t, valid(map[string]any{"iss": f.URL + "/"}))},
		{"no issuer", "token-issuer", f.SignClaims(t, valid(map[string]any{"iss": nil}))},
		{"another server", "login-audience", f.SignClaims(t, valid(map[string]any{"aud": "https://other.example.com/mcp"}))},
		{"this server's origin", "login-audience", f.SignClaims(t, valid(map[string]any{"aud": "https://codeforge.example.com"}))},
		{"two servers", "login-audience", f.SignClaims(t, valid(map[string]any{"aud": []string{audience, "https://other.example.com"}}))},
		{"two servers, this one last", "login-audience", f.SignClaims(t, valid(map[string]any{"aud": []string{"https://other.example.com", audience}}))},
		{"no audience", "login-audience", f.SignClaims(t, valid(map[string]any{"aud": nil}))},
		{"an empty audience", "login-audience", f.SignClaims(t, valid(map[string]any{"aud": []string{}}))},
		{"expired", "token-time", f.SignClaims(t, valid(map[string]any{"exp": time.Now().Add(-time.Second).Unix()}))},
		{"no expiry", "token-time", f.SignClaims(t, valid(map[string]any{"exp": nil}))},
		{"not yet valid", "token-time", f.SignClaims(t, valid(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}))},
		{"no subject", "(it has no names either)", f.SignClaims(t, valid(map[string]any{"sub": nil}))},
		{"a subject that is no text", "(go-oidc cannot read it)", f.SignClaims(t, valid(map[string]any{"sub": 1}))},
		{"claims of another token", "token-signature", parts[0] + "." + strings.Split(f.SignClaims(t, valid(map[string]any{"sub": "bob"})), ".")[1] + "." + parts[2]},
		{"a signature cut short", "token-signature", good[:len(good)-4]},
		{"two signatures", "(go-oidc reads only one)", `{"payload":"` + parts[1] + `","signatures":[{"protected":"` + parts[0] + `","signature":"` + parts[2] + `"},{"protected":"` + parts[0] + `","signature":"` + parts[2] + `"}]}`},
	}, good
}

// TestForgedTokens: only a token that the issuer made for this server alone, and that has not expired, is a login. No
// log line has a token.
// Promise: access-tokens
func TestForgedTokens(t *testing.T) {
	f := fakepeers.NewIssuer(t)
	list, good := forgeTokens(t, f)
	for _, c := range list {
		v, log := open(t, f, "sub") // with a new bound of requests
		if l, err := v.Verify(t.Context(), good, "192.0.2.1"); err != nil || l.Subject != "ann" || !slices.Equal(l.Names, []string{"ann"}) || time.Until(l.Expires) < 50*time.Minute {
			t.Fatalf("a valid token: %+v %v\n%s", l, err, log)
		}
		if l, err := v.Verify(t.Context(), c.token, "192.0.2.1"); !errors.Is(err, auth.ErrInvalidToken) || err.Error() != auth.ErrInvalidToken.Error() || l.Subject != "" {
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
		l, err := v.Verify(t.Context(), f.SignClaims(t, f.Claims(audience, "ann", c.changes)), "192.0.2.1")
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
	if _, err := v.Verify(t.Context(), old, "192.0.2.1"); err != nil {
		t.Fatal(err, log)
	}
	f.RotateKey(t, "second")
	current := f.SignClaims(t, f.Claims(audience, "ann", nil))
	if _, err := v.Verify(t.Context(), current, "192.0.2.1"); err != nil {
		t.Errorf("with the new key: %v\n%s", err, log)
	}
	// go-oidc wakes the token that waits for the new keys before it stores them.
	testkit.WaitFor(t, func() bool {
		_, err := v.Verify(t.Context(), old, "192.0.2.1")
		return errors.Is(err, auth.ErrInvalidToken)
	})
	if n := countFetches(t, f, v); n > 10 {
		t.Errorf("200 forged tokens cause %d requests", n)
	}
	if _, err := v.Verify(t.Context(), current, "192.0.2.1"); err != nil {
		t.Errorf("after a storm: %v\n%s", err, log)
	}
	f.RotateKey(t, "third")
	latest := f.SignClaims(t, f.Claims(audience, "ann", nil))
	testkit.WaitFor(t, func() bool { _, err := v.Verify(t.Context(), latest, "192.0.2.1"); return err == nil })
}

// countFetches returns how many requests 200 forged tokens cause.
func countFetches(t *testing.T, f *fakepeers.FakeIssuer, v *accesstoken.Verifier) int {
	t.Helper()
	before := f.CountFetches()
	forged := fakepeers.SignToken(t, jose.ES256, jose.JSONWebKey{Key: newECKey(t), KeyID: "unknown"}, f.Claims(audience, "ann", nil))
	for range 200 {
		if _, err := v.Verify(t.Context(), forged, "192.0.2.1"); err == nil {
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
	if _, err := v.Verify(t.Context(), token, "192.0.2.1"); err == nil || errors.Is(err, auth.ErrInvalidToken) {
		t.Errorf("while it is down: %v", err)
	}
	f.SetDown(false)
	if _, err := v.Verify(t.Context(), token, "192.0.2.1"); err != nil {
		t.Errorf("when it is up again: %v\n%s", err, log)
	}
	f.SetDown(true)
	if _, err := v.Verify(t.Context(), token, "192.0.2.1"); err != nil {
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
