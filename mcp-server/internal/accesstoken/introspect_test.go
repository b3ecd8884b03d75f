package accesstoken_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/accesstoken"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
)

// introspectedIssuer is an issuer that answers questions about tokens.
type introspectedIssuer struct {
	*fakepeers.FakeIssuer

	mu        sync.Mutex
	answers   map[string]any // by token
	questions int
}

// introspectionSecret has characters that a form encodes.
const introspectionSecret = "a+b c%d"

func newIntrospected(t *testing.T) *introspectedIssuer {
	t.Helper()
	f := &introspectedIssuer{FakeIssuer: fakepeers.NewIssuer(t), answers: map[string]any{}}
	f.Introspect = func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.questions++
		id, secret, _ := r.BasicAuth()
		if id != url.QueryEscape("codeforge:1") || secret != url.QueryEscape(introspectionSecret) {
			http.Error(w, "unknown client", http.StatusUnauthorized)
			return
		}
		answer, ok := f.answers[r.PostFormValue("token")]
		if !ok {
			answer = map[string]any{"active": false}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}
	return f
}

// setAnswer sets the answer about a token, such as Claims with "active".
func (f *introspectedIssuer) setAnswer(token string, answer any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[token] = answer
}

func (f *introspectedIssuer) countQuestions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.questions
}

// openIntrospection returns a verifier that asks the issuer with a secret, and its log.
func openIntrospection(t *testing.T, f *introspectedIssuer, secret string) (*accesstoken.Verifier, *testkit.Buffer) {
	t.Helper()
	log, file := &testkit.Buffer{}, filepath.Join(t.TempDir(), "secret")
	testkit.Must(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	v, err := accesstoken.New(accesstoken.Config{
		Issuer: f.URL, Audience: audience, Claim: "sub", CAFile: f.CAFile, ClientID: "codeforge:1", SecretFile: file,
		Log: logline.New(log, "text", nil),
	})
	testkit.Must(t, err)
	return v, log
}

// wrongAnswers are answers about tokens that are no logins, by the defence that refuses them.
func wrongAnswers() map[string][]map[string]any {
	return map[string][]map[string]any{
		"introspect-active": {{"active": false}, {"active": nil}, {"active": "true"}, {"active": 1}},
		"introspect-issuer": {{"iss": "https://evil.example.com"}, {"iss": nil}},
		"introspect-expiry": {{"exp": time.Now().Add(-time.Second).Unix()}, {"exp": nil}, {"nbf": time.Now().Add(time.Hour).Unix()}, {"nbf": 1e300}, {"exp": 1e300}, {"exp": -1e300}},
		"introspect-bound":  {{"cnf": map[string]any{"jkt": "key"}}, {"token_type": "DPoP"}, {"token_type": "refresh_token"}},
		"login-audience":    {{"aud": "https://other.example.com/mcp"}, {"aud": []string{audience, "https://other.example.com"}}, {"aud": nil}, {"aud": []string{}}},
		"":                  {{"sub": nil}, {"sub": ""}, {"sub": 1}, {"exp": "tomorrow"}, {"iss": []string{"a"}}},
	}
}

// verifyAnswer returns the result of a new verifier for an answer that differs from that of a valid token.
func verifyAnswer(t *testing.T, f *introspectedIssuer, changes map[string]any) error {
	t.Helper()
	all := map[string]any{"active": true, "token_type": "Bearer"}
	for k, v := range changes {
		all[k] = v
	}
	f.setAnswer("opaque", f.Claims(audience, "ann", all))
	v, log := openIntrospection(t, f, introspectionSecret)
	l, err := v.Verify(t.Context(), "opaque", "192.0.2.1")
	if err == nil && (l.Subject != "ann" || fmt.Sprint(l.Names) != "[ann]") {
		t.Errorf("%+v", l)
	}
	if strings.Contains(log.String(), "opaque") || strings.Contains(log.String(), "a+b") || err != nil && !strings.Contains(log.String(), "refused an access token") {
		t.Errorf("the log: %s", log)
	}
	return err
}

// TestIntrospection: only a token that the issuer knows as active, for this server alone, is a login.
// Promise: access-tokens
func TestIntrospection(t *testing.T) {
	f := newIntrospected(t)
	for _, right := range []map[string]any{nil, {"aud": []string{audience}}, {"token_type": nil}, {"token_type": "bearer"}} {
		if err := verifyAnswer(t, f, right); err != nil {
			t.Errorf("%v: %v", right, err)
		}
	}
	for _, list := range wrongAnswers() {
		for _, wrong := range list {
			if err := verifyAnswer(t, f, wrong); !errors.Is(err, auth.ErrInvalidToken) {
				t.Errorf("%v: %v", wrong, err)
			}
		}
	}
	v, _ := openIntrospection(t, f, introspectionSecret)
	for _, token := range []string{"", "unknown", f.SignClaims(t, f.Claims(audience, "ann", nil))} {
		if _, err := v.Verify(t.Context(), token, "192.0.2.1"); !errors.Is(err, auth.ErrInvalidToken) {
			t.Errorf("%q: %v", token, err)
		}
	}
	if _, err := accesstoken.New(accesstoken.Config{ClientID: "a", SecretFile: "none"}); err == nil || !strings.HasPrefix(err.Error(), "OIDC_INTROSPECTION_SECRET_FILE: ") {
		t.Errorf("no secret: %v", err)
	}
}

// isValidAfterRevocation reports whether a token in use still counts a second after its revocation.
func isValidAfterRevocation(t *testing.T) bool {
	t.Helper()
	f := newIntrospected(t)
	v, log := openIntrospection(t, f, introspectionSecret)
	f.setAnswer("opaque", f.Claims(audience, "ann", map[string]any{"active": true}))
	if _, err := v.Verify(t.Context(), "opaque", "192.0.2.1"); err != nil {
		t.Fatal(err, log)
	}
	f.setAnswer("opaque", map[string]any{"active": false})
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := v.Verify(t.Context(), "opaque", "192.0.2.1"); errors.Is(err, auth.ErrInvalidToken) {
			return false
		}
	}
	return true
}

// TestRevocation: a revoked token in use no longer counts. Many calls with a valid token cause few questions.
// Promise: access-tokens
func TestRevocation(t *testing.T) {
	if isValidAfterRevocation(t) {
		t.Error("a revoked token counts after a second")
	}
	f := newIntrospected(t)
	f.setAnswer("opaque", f.Claims(audience, "ann", map[string]any{"active": true}))
	v, log := openIntrospection(t, f, introspectionSecret)
	var all sync.WaitGroup
	began := time.Now()
	for range 100 {
		all.Go(func() {
			if _, err := v.Verify(t.Context(), "opaque", "192.0.2.1"); err != nil {
				t.Error(err, log)
			}
		})
	}
	all.Wait()
	if n := f.countQuestions(); n > 1+int(time.Since(began)/(400*time.Millisecond)) {
		t.Errorf("100 requests cause %d questions", n)
	}
}

// TestIntrospectionDown: if the provider does not answer, no token counts, even one that has just counted. The error is
// not that of an invalid token, so clients keep the token. A wrong secret has the same effect.
// Promise: access-tokens
func TestIntrospectionDown(t *testing.T) {
	f := newIntrospected(t)
	f.setAnswer("opaque", f.Claims(audience, "ann", map[string]any{"active": true}))
	v, log := openIntrospection(t, f, introspectionSecret)
	check := func(name string, wantUp bool) {
		t.Helper()
		time.Sleep(600 * time.Millisecond)
		if _, err := v.Verify(t.Context(), "opaque", "192.0.2.1"); (err == nil) != wantUp || errors.Is(err, auth.ErrInvalidToken) {
			t.Errorf("%s: %v\n%s", name, err, log)
		}
	}
	check("up", true)
	f.SetDown(true)
	check("down", false)
	f.SetDown(false)
	check("up again", true)
	f.setAnswer("opaque", "no object")
	check("an answer that is no object", false)
	v, log = openIntrospection(t, f, "wrong")
	check("a wrong secret", false)
	if !strings.Contains(log.String(), "401") {
		t.Errorf("no reason: %s", log)
	}
}

// floodTokens returns how many questions 500 forged tokens from one address cause, and the error for a token in use
// meanwhile, or else for a new token from another address.
func floodTokens(t *testing.T) (questions int, err error) {
	t.Helper()
	f := newIntrospected(t)
	f.setAnswer("opaque", f.Claims(audience, "ann", map[string]any{"active": true}))
	v, log := openIntrospection(t, f, introspectionSecret)
	if _, err := v.Verify(t.Context(), "opaque", "192.0.2.1"); err != nil {
		t.Fatal(err, log)
	}
	forge := func(n int) {
		for range n {
			if _, err := v.Verify(t.Context(), rand.Text(), "192.0.2.1"); err == nil {
				t.Fatal("a forged token is valid")
			}
		}
	}
	forge(500)
	questions = f.countQuestions()
	time.Sleep(600 * time.Millisecond)
	if _, err = v.Verify(t.Context(), "opaque", "192.0.2.1"); err == nil {
		f.setAnswer("new", f.Claims(audience, "ann", map[string]any{"active": true}))
		forge(100)
		_, err = v.Verify(t.Context(), "new", "192.0.2.2")
	}
	return questions, err
}

// TestFlood: forged tokens cause few questions. A token in use still counts, and so does a new one from elsewhere.
// Promise: access-tokens
func TestFlood(t *testing.T) {
	if n, err := floodTokens(t); n > 300 || err != nil {
		t.Errorf("%d questions, %v", n, err)
	}
}
