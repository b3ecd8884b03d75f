package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
)

const publicURL = "https://forge.example.com"

// publicClient sends requests with a bearer token, which may be empty, as the proxy of the public host passes them on.
type publicClient struct{ token string }

func (c publicClient) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host = strings.TrimPrefix(publicURL, "https://")
	r.Header.Set("X-Forwarded-For", "203.0.113.7")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// get returns the answer to a GET of a path.
func (c publicClient) get(t *testing.T, p *program, path string) (*http.Response, string) {
	t.Helper()
	resp, err := (&http.Client{Transport: c, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Get("http://" + p.addr + path)
	testkit.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	testkit.Must(t, err)
	return resp, string(body)
}

// connect connects the SDK's client.
func (c publicClient) connect(t *testing.T, p *program) (*mcp.ClientSession, error) {
	t.Helper()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: p.url(), HTTPClient: &http.Client{Transport: c}}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
	}
	return s, err
}

// startPublic starts a program with a public URL for the logins of an issuer, and returns its tokens file.
func startPublic(t *testing.T, f *fakepeers.FakeIssuer, env map[string]string) (*program, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tenants.json")
	testkit.Must(t, os.WriteFile(file, []byte(`{"tenants": {
		"ann": {"logins": ["ann"], "apis": ["stripe"]},
		"team": {"logins": ["carol", "dave", "both"], "tokens": ["token-of-tenant-team"], "apis": ["other"]},
		"more": {"logins": ["more"], "apis": ["*"]}}}`), 0o600))
	all := map[string]string{
		"MCP_AUTH_TOKEN": "token-of-the-operator", "MCP_TOKENS_FILE": file, "PUBLIC_URL": publicURL, "OIDC_ISSUER": f.URL, "OIDC_CA_FILE": f.CAFile,
		"OIDC_SCOPES": "openid", "OIDC_CLAIM": "groups", "DEBUG_MODE": "true",
	}
	for k, v := range env {
		all[k] = v
	}
	return start(t, 2, all, "--tenants", t.TempDir()), file
}

// TestLogins: a user with a token of the identity provider uses the tenant of a claim, and the tenant's APIs only. The
// answer to a client without a token leads to the provider. Unknown and ambiguous logins are refused; tokens of before
// still count. No token is in the log.
// Promise: access-tokens, tenant-tokens
func TestLogins(t *testing.T) {
	t.Parallel()
	f := fakepeers.NewIssuer(t)
	p, file := startPublic(t, f, nil)
	login := func(subject string, groups ...string) publicClient {
		return publicClient{f.SignClaims(t, f.Claims(publicURL+"/mcp", subject, map[string]any{"groups": groups}))}
	}
	apis := func(c publicClient) string {
		t.Helper()
		s, err := c.connect(t, p)
		if err != nil {
			return "refused"
		}
		_, got := call(t, s, "list_apis", map[string]any{})
		return strings.Join(got, "")
	}
	ann := login("1", "ann", "everyone")
	for _, c := range []struct {
		name string
		publicClient
		want string
	}{
		{"the tenant of a group", ann, `"name":"stripe"`},
		{"another tenant", login("2", "carol"), `"apis":[]`},
		{"a token of the tokens file", publicClient{"token-of-tenant-team"}, `"apis":[]`},
		{"the operator's token", publicClient{"token-of-the-operator"}, `"name":"stripe"`},
		{"no token", publicClient{}, "refused"},
		{"an unknown group", login("3", "everyone"), "refused"},
		{"a group of another case", login("3", "Ann"), "refused"},
		{"groups of two tenants", login("4", "ann", "more"), "refused"},
		{"two groups of one tenant", login("4", "carol", "dave"), `"apis":[]`},
		{"another server's token", publicClient{f.SignClaims(t, f.Claims("https://other.example.com/mcp", "1", map[string]any{"groups": "ann"}))}, "refused"},
		{"a token signed with the public key", publicClient{fakepeers.SignToken(t, jose.HS256, []byte("a public key, which is no secret"), f.Claims(publicURL+"/mcp", "1", map[string]any{"groups": "ann"}))}, "refused"},
	} {
		if got := apis(c.publicClient); !strings.Contains(got, c.want) && (c.want != `"apis":[]` || strings.Contains(got, "stripe") || got == "refused") {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	resp, _ := publicClient{}.get(t, p, "/mcp")
	if got, want := resp.Header.Get("Www-Authenticate"), `Bearer resource_metadata="`+publicURL+`/.well-known/oauth-protected-resource/mcp"`; resp.StatusCode != http.StatusUnauthorized || got != want {
		t.Errorf("without a token: %d %s", resp.StatusCode, got)
	}
	for _, path := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"} {
		resp, body := publicClient{}.get(t, p, path)
		var got struct {
			Resource string
			Servers  []string `json:"authorization_servers"`
			Scopes   []string `json:"scopes_supported"`
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || resp.StatusCode != http.StatusOK || got.Resource != publicURL+"/mcp" || fmt.Sprint(got.Servers, got.Scopes) != "["+f.URL+"] [openid]" {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	s, err := ann.connect(t, p)
	testkit.Must(t, err)
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(file, []byte(strings.Replace(string(text), `"ann": {"logins": ["ann"]`, `"ann": {"logins": ["other"]`, 1)), 0o600))
	testkit.WaitFor(t, func() bool { _, err := s.ListTools(t.Context(), nil); return err != nil })
	if got := apis(ann); got != "refused" {
		t.Errorf("a login that was removed: %s", got)
	}
	for _, secret := range []string{ann.token[len(ann.token)-40:], "token-of-tenant-team", "token-of-the-operator"} {
		if strings.Contains(p.log.String(), secret) {
			t.Errorf("the log has a token: %s", secret)
		}
	}
	for _, reason := range []string{"refused an access token", "refused a login of no tenant, or of several logins=[everyone]"} {
		if !strings.Contains(p.log.String(), reason) {
			t.Errorf("the log has no reason: %s", reason)
		}
	}
}

// TestPublicPaths: other machines reach the MCP endpoint and its metadata, and neither the console nor the operator's
// paths, with every token and every spelling of a path.
// Promise: public-paths
func TestPublicPaths(t *testing.T) {
	t.Parallel()
	p, _ := startPublic(t, fakepeers.NewIssuer(t), nil)
	for _, path := range []string{
		"/console", "/console/", "/console/app.js", "/metrics", "/servers", "/readyz", "/healthz", "/operator/v1/runs", "/", "//console", "/mcp/../console",
		"/.well-known/../console", "/%63onsole", "/.well-known/oauth-protected-resource/../../console", "/mcp/console",
	} {
		resp, body := publicClient{"token-of-the-operator"}.get(t, p, path)
		if resp.StatusCode == http.StatusOK || strings.Contains(strings.ToLower(body), "<html") {
			t.Errorf("%s: %d %.200s", path, resp.StatusCode, body)
		}
	}
	resp, err := http.Get("http://" + p.addr + "/console")
	testkit.Must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the console on this machine: %s", resp.Status)
	}
}

// TestSubjects: users of one tenant do not reach each other's sessions, and a stream ends with its token.
// Promise: session-users
func TestSubjects(t *testing.T) {
	t.Parallel()
	f := fakepeers.NewIssuer(t)
	p, _ := startPublic(t, f, nil)
	send := func(subject, method, session, body string, life time.Duration) *http.Response {
		t.Helper()
		token := f.SignClaims(t, f.Claims(publicURL+"/mcp", subject, map[string]any{"groups": "carol", "exp": time.Now().Add(life).Unix()}))
		req, err := http.NewRequestWithContext(t.Context(), method, p.url(), strings.NewReader(body))
		testkit.Must(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		if strings.Contains(body, "2025-03-26") {
			req.Header.Set("Mcp-Protocol-Version", "2025-03-26")
		}
		if strings.Contains(body, "2026-07-28") {
			req.Header.Set("Mcp-Protocol-Version", "2026-07-28")
			req.Header.Set("Mcp-Method", "subscriptions/listen")
		}
		resp, err := publicClient{token}.RoundTrip(req)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	const begin = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	id := send("carol", http.MethodPost, "", begin, time.Hour).Header.Get("Mcp-Session-Id")
	for subject, want := range map[string]int{"carol": http.StatusAccepted, "dave": http.StatusNotFound} {
		if resp := send(subject, http.MethodPost, id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, time.Hour); resp.StatusCode != want || id == "" {
			t.Errorf("%s: %s, want %d", subject, resp.Status, want)
		}
	}
	const listen = `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	// Older versions do not have this method: there no header shows that the request opens a stream.
	const older = `{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}`
	inBatch := `[` + strings.Replace(older, `"id":2`, `"id":"2025-03-26"`, 1) + `]`
	for _, body := range []string{older, inBatch} {
		stream := send("carol", http.MethodPost, id, body, 3*time.Second)
		if got, err := io.ReadAll(stream.Body); err != nil || !strings.Contains(string(got), "method not found") {
			t.Errorf("%s: %s, %q, %v", body, stream.Status, got, err)
		}
	}
	for _, stream := range []*http.Response{send("carol", http.MethodGet, id, "", 3*time.Second), send("carol", http.MethodPost, "", listen, 3*time.Second)} {
		began := time.Now()
		if stream.StatusCode != http.StatusOK || stream.Header.Get("X-Accel-Buffering") != "no" {
			t.Errorf("a stream: %s %v", stream.Status, stream.Header)
		}
		if _, err := io.Copy(io.Discard, stream.Body); err != nil || time.Since(began) > testkit.Patience/2 { // it ends
			t.Errorf("%v after %v", err, time.Since(began))
		}
	}
}
