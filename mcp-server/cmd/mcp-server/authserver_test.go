package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog/tokenfile"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

const twoTenants = `{"tenants": {"ann": {"apis": ["stripe"]}, "bob": {"tokens": ["the-token-of-the-tenant-bob"], "apis": ["other"]}}}`

// newCode returns a one-time code for the tenant ann, and for programs on the user's device.
func newCode(t *testing.T, p *program) string {
	t.Helper()
	made, err := operatorapi.Client{HTTP: p.onSocket()}.NewOneTimeCode(t.Context(), "ann", "localhost")
	testkit.Must(t, err)
	return made.Code
}

// TestOwnOAuthClient: without an identity provider, the official SDK's own client finds mcp-server, registers, logs in
// with a one-time code, and refreshes its token. A user with a wrong code gets no further.
// Promise: hosted-logins
func TestOwnOAuthClient(t *testing.T) {
	t.Parallel()
	proxies, modules := newProxies(t), testkit.InstallClients(t)
	p, public := startBehind(t, proxies, twoTenants, map[string]string{})
	lines := proxies.startNode(t, modules, "login.mjs", public+"/mcp")
	if page := proxies.newUser(t, "ann", map[string]string{"secret": newCode(t, p)}).follow(t, readLine(t, lines, "open")); !strings.Contains(page, "logged in") {
		t.Errorf("the last page: %s", page)
	}
	for _, step := range []string{"login", "refresh"} {
		if got := readLine(t, lines, step); !strings.Contains(got, `"name":"stripe"`) {
			t.Errorf("%s: %s", step, got)
		}
	}
	if got := readLine(t, lines, "renewed"); got != "true" {
		t.Errorf("renewed: %s", got)
	}
	list, err := operatorapi.Client{HTTP: p.onSocket()}.HostedClients(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != "Official SDK" || list[0].Tenant != "ann" || len(list[0].Hosts()) != 1 {
		t.Errorf("%+v %v", list, err)
	}
	lines = proxies.startNode(t, modules, "login.mjs", public+"/mcp")
	u := proxies.newUser(t, "mallory", map[string]string{"secret": "AAAA-AAAA-AAAA"})
	resp, err := u.Get(readLine(t, lines, "open"))
	testkit.Must(t, err)
	page, err := io.ReadAll(resp.Body)
	testkit.Must(t, errors.Join(err, resp.Body.Close()))
	_, form := u.fillForm(t, string(page))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, public+"/oauth/login", strings.NewReader(form.Encode()))
	testkit.Must(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", public)
	if resp, err = u.Do(req); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("a wrong code: %v %v", resp, err)
	}
	_ = resp.Body.Close()
}

// TestAuthConformance: the authorization server passes the suite's scenarios for authorization servers: metadata, and a
// login of a registered client. The suite prints the address for the browser.
func TestAuthConformance(t *testing.T) {
	t.Parallel()
	proxies, modules := newProxies(t), testkit.InstallClients(t)
	p, public := startBehind(t, proxies, twoTenants, map[string]string{})
	u := proxies.newUser(t, "ann", map[string]string{"secret": newCode(t, p)})
	resp, err := u.Post(public+"/oauth/register", "application/json", strings.NewReader(`{"redirect_uris": ["http://127.0.0.1/callback"]}`))
	testkit.Must(t, err)
	defer resp.Body.Close()
	var client struct {
		ID string `json:"client_id"`
	}
	testkit.Must(t, json.NewDecoder(resp.Body).Decode(&client))
	port, err := net.Listen("tcp", "127.0.0.1:0") // the suite wants a number
	testkit.Must(t, err)
	testkit.Must(t, port.Close())
	out := ""
	for line := range proxies.startScript(t, modules, filepath.Join(modules, "conformance-next/dist/index.js"), "authorization",
		"--url", public, "--client-id", client.ID, "--resource", public+"/mcp", "--port", strconv.Itoa(port.Addr().(*net.TCPAddr).Port)) {
		if out += line + "\n"; strings.HasPrefix(line, public) {
			u.follow(t, line)
		}
	}
	// Metadata, support of clients' documents, and the grant. The suite only warns if the second is missing.
	if !strings.Contains(out, "Total: 3 passed, 0 failed") {
		t.Error(out)
	}
}

// TestOwnRemoteClient: mcp-remote does the same for a client that speaks stdio.
// Promise: hosted-logins
func TestOwnRemoteClient(t *testing.T) {
	t.Parallel()
	proxies, modules := newProxies(t), testkit.InstallClients(t)
	p, public := startBehind(t, proxies, twoTenants, map[string]string{})
	driveRemote(t, proxies, modules, public, proxies.newUser(t, "ann", map[string]string{"secret": newCode(t, p)}))
}

// logIn logs a client in by HTTP, and returns its access token.
func logIn(t *testing.T, proxies tlsProxies, public, secret string) string {
	t.Helper()
	codes := make(chan string, 1)
	client := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { codes <- r.FormValue("code") }))
	t.Cleanup(client.Close)
	u := proxies.newUser(t, "ann", map[string]string{"secret": secret})
	fetch := func(path, kind, body string) (out struct {
		ID    string `json:"client_id"`
		Token string `json:"access_token"`
	}) {
		t.Helper()
		resp, err := u.Post(public+path, kind, strings.NewReader(body))
		testkit.Must(t, err)
		defer resp.Body.Close()
		testkit.Must(t, json.NewDecoder(resp.Body).Decode(&out))
		return out
	}
	id := fetch("/oauth/register", "application/json", `{"redirect_uris": ["`+client.URL+`"]}`).ID
	verifier := strings.Repeat("v", 43)
	sum := sha256.Sum256([]byte(verifier))
	v := url.Values{"client_id": {id}, "redirect_uri": {client.URL}, "response_type": {"code"}, "code_challenge_method": {"S256"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}}
	u.follow(t, public+"/oauth/authorize?"+v.Encode())
	token := url.Values{"grant_type": {"authorization_code"}, "client_id": {id}, "code": {<-codes}, "code_verifier": {verifier}}
	return fetch("/oauth/token", "application/x-www-form-urlencoded", token.Encode()).Token
}

// TestRevokedClient: once the operator has ended a login, its session answers no request, and its stream ends within two
// seconds. A removed token of a tenant ends the logins that were made with it, even if it comes back. Another login of
// the tenant knows no session of the first one.
// Promise: hosted-logins, session-users
func TestRevokedClient(t *testing.T) {
	t.Parallel()
	proxies := newProxies(t)
	env, dir := map[string]string{}, t.TempDir()
	p, public := startBehind(t, proxies, twoTenants, env, "--history", dir)
	op := operatorapi.Client{HTTP: p.onSocket()}
	send := func(method, token, session, body string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, public+"/mcp", strings.NewReader(body))
		testkit.Must(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Authorization", "Bearer "+token)
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		resp, err := proxies.newUser(t, "ann", nil).Do(req)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	const begin = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	const ready = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	first, second := logIn(t, proxies, public, newCode(t, p)), logIn(t, proxies, public, newCode(t, p))
	session := send(http.MethodPost, first, "", begin).Header.Get("Mcp-Session-Id")
	if a, b := send(http.MethodPost, first, session, ready).StatusCode, send(http.MethodPost, second, session, ready).StatusCode; a != http.StatusAccepted || b != http.StatusNotFound {
		t.Errorf("the session for its login: %d, for another one: %d", a, b)
	}
	stream := send(http.MethodGet, first, session, "")
	list, err := op.HostedClients(t.Context())
	testkit.Must(t, err)
	if len(list) != 2 || stream.StatusCode != http.StatusOK {
		t.Fatalf("%+v %s", list, stream.Status)
	}
	testkit.Must(t, op.RevokeClient(t.Context(), list[1].ID)) // the latest is first
	at := time.Now()
	if resp := send(http.MethodPost, first, session, ready); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("after the revocation: %s", resp.Status)
	}
	_, _ = io.Copy(io.Discard, stream.Body)
	t.Logf("the stream ended after %v", time.Since(at))
	if time.Since(at) > 4*time.Second { // two, on a machine with other work
		t.Errorf("the stream ended after %v", time.Since(at))
	}
	if resp := send(http.MethodPost, second, "", begin); resp.StatusCode != http.StatusOK {
		t.Errorf("another login: %s", resp.Status)
	}
	byToken := logIn(t, proxies, public, "the-token-of-the-tenant-bob")
	if resp := send(http.MethodPost, byToken, "", begin); resp.StatusCode != http.StatusOK {
		t.Errorf("a login by a token: %s", resp.Status)
	}
	testkit.Must(t, os.WriteFile(env["MCP_TOKENS_FILE"], []byte(strings.Replace(twoTenants, "the-token", "a-new-token", 1)), 0o600))
	testkit.WaitFor(t, func() bool {
		return send(http.MethodPost, byToken, "", begin).StatusCode == http.StatusUnauthorized
	})
	testkit.Must(t, os.WriteFile(env["MCP_TOKENS_FILE"], []byte(twoTenants), 0o600))
	testkit.WaitFor(t, func() bool {
		return send(http.MethodPost, "the-token-of-the-tenant-bob", "", begin).StatusCode == http.StatusOK
	})
	if resp := send(http.MethodPost, byToken, "", begin); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a login by a token that was removed and added again: %s", resp.Status)
	}
	if err := op.RevokeClient(t.Context(), "unknown"); err == nil || !strings.Contains(err.Error(), "there is no such client") {
		t.Error(err)
	}
	// The console lists the clients that are left, and ends the access of the latest.
	third := logIn(t, proxies, public, newCode(t, p))
	login, err := op.Console(t.Context())
	testkit.Must(t, err)
	bearer := ""
	ask := func(method, path, body string, out any) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.addr+"/console/api/"+path, strings.NewReader(body))
		testkit.Must(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+bearer)
		resp, err := http.DefaultClient.Do(req)
		testkit.Must(t, err)
		defer resp.Body.Close()
		_ = json.NewDecoder(resp.Body).Decode(out)
		return resp.StatusCode
	}
	var opened struct{ Bearer string }
	var shown []struct {
		ID, Name, Tenant string
		Hosts            []string
	}
	if status := ask(http.MethodGet, "clients", "", &shown); status != http.StatusUnauthorized {
		t.Errorf("without a session: %d", status)
	}
	ask(http.MethodPost, "session", `{"secret": "`+login.Code+`"}`, &opened)
	bearer = opened.Bearer
	if status := ask(http.MethodGet, "clients", "", &shown); status != http.StatusOK || len(shown) != 2 || shown[0].Tenant != "ann" || len(shown[0].Hosts) != 1 {
		t.Fatalf("%d %+v", status, shown)
	}
	if a, b := ask(http.MethodDelete, "clients/"+shown[0].ID, "", &struct{}{}), ask(http.MethodDelete, "clients/"+shown[0].ID, "", &struct{}{}); a != http.StatusOK || b != http.StatusNotFound {
		t.Errorf("ended: %d, again: %d", a, b)
	}
	if resp := send(http.MethodPost, third, "", begin); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("after its end in the console: %s", resp.Status)
	}
	for _, secret := range []string{first, third, byToken, "the-token-of-the-tenant-bob"} {
		if strings.Contains(p.log.String(), secret) {
			t.Errorf("the log has a token: %s", secret)
		}
	}
}

// TestLoginsWhileStopping: a tenant exists until the process ends. A renewal meanwhile would otherwise end its login.
// Promise: hosted-logins
func TestLoginsWhileStopping(t *testing.T) {
	set := &tenantSet{list: []*tenantState{{Tenant: tokenfile.Tenant{Name: "ann"}}}, closed: true}
	if !set.hasProof("ann", "") || set.hasProof("bob", "") || set.hasProof("ann", "unknown") {
		t.Error("a tenant is missing while the server stops")
	}
}

// TestOwnLoginPaths: the paths of logins exist on the public host only. A token counts in its header only. The
// metadata of a login leads to this server, whatever hosts a request names.
// Promise: hosted-logins, public-paths
func TestOwnLoginPaths(t *testing.T) {
	t.Parallel()
	proxies, dir := newProxies(t), t.TempDir()
	env := map[string]string{"MCP_AUTH_TOKEN": "token-of-the-operator"}
	p, public := startBehind(t, proxies, twoTenants, env)
	token := logIn(t, proxies, public, newCode(t, p))
	for _, c := range []struct {
		name, path string
		host       string
		headers    map[string]string
		want       int
	}{
		{"the metadata of the server", "/.well-known/oauth-authorization-server", "", map[string]string{"X-Forwarded-Host": "evil.com"}, http.StatusOK},
		{"the metadata on this machine", "/.well-known/oauth-authorization-server", p.addr, nil, http.StatusNotFound},
		{"the login on this machine", "/oauth/authorize", p.addr, nil, http.StatusNotFound},
		{"a name that resolves to this machine", "/oauth/authorize", "evil.com", nil, http.StatusForbidden},
		{"a forwarded host", "/oauth/authorize", "evil.com", map[string]string{"X-Forwarded-Host": strings.TrimPrefix(public, "https://")}, http.StatusForbidden},
		{"a path beside the others", "/oauth/../console", "", nil, http.StatusTemporaryRedirect},
		{"no token", "/mcp", "", nil, http.StatusUnauthorized},
		{"a token in the query", "/mcp?access_token=" + token, "", nil, http.StatusUnauthorized},
		{"a token in a cookie", "/mcp", "", map[string]string{"Cookie": "__Host-codeforge-login=" + token + "; access_token=" + token}, http.StatusUnauthorized},
		{"a token with another scheme", "/mcp", "", map[string]string{"Authorization": "Basic " + token}, http.StatusUnauthorized},
		{"the token", "/mcp", "", map[string]string{"Authorization": "Bearer " + token}, http.StatusMethodNotAllowed},
		{"the console with the token", "/console", "", map[string]string{"Authorization": "Bearer " + token}, http.StatusNotFound},
		{"metrics with the token", "/metrics", p.addr, map[string]string{"Authorization": "Bearer " + token}, http.StatusUnauthorized},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.addr+c.path, nil)
		testkit.Must(t, err)
		if req.Host = c.host; c.host == "" {
			req.Host = strings.TrimPrefix(public, "https://")
		}
		for k, v := range c.headers {
			req.Header.Set(k, v)
		}
		resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
		testkit.Must(t, err)
		body, err := io.ReadAll(resp.Body)
		testkit.Must(t, errors.Join(err, resp.Body.Close()))
		if resp.StatusCode != c.want && (c.want != http.StatusMethodNotAllowed || resp.StatusCode != http.StatusBadRequest) || strings.Contains(string(body), "evil.com") {
			t.Errorf("%s: %s, want %d\n%s", c.name, resp.Status, c.want, body)
		}
		if c.want == http.StatusUnauthorized && c.path != "/metrics" && !strings.Contains(resp.Header.Get("Www-Authenticate"), public+"/.well-known/oauth-protected-resource/mcp") {
			t.Errorf("%s: %v", c.name, resp.Header)
		}
	}
	// Without tenants there is no login, and no file.
	q := start(t, 2, map[string]string{"MCP_AUTH_TOKEN": "token-of-the-operator", "PUBLIC_URL": publicURL}, "--tenants", dir)
	if resp, body := (publicClient{}).get(t, q, "/oauth/authorize"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("without tenants: %s %s", resp.Status, body)
	}
	if _, err := os.Stat(filepath.Join(dir, database.LoginName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of logins: %v", err)
	}
	if _, err := (operatorapi.Client{HTTP: q.onSocket()}).HostedClients(context.Background()); err == nil || !strings.Contains(err.Error(), "PUBLIC_URL") {
		t.Error(err)
	}
}

// TestOwnLoginInBrowser: a user with a keyboard logs in with Chromium, from a page of another site, which learns no
// address of the login.
// Promise: hosted-logins
func TestOwnLoginInBrowser(t *testing.T) {
	t.Parallel()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		testkit.SkipBecause(t, "there is no chromium")
	}
	proxies := newProxies(t)
	p, public := startBehind(t, proxies, twoTenants, map[string]string{})
	lines := proxies.startNode(t, t.TempDir(), "browser.mjs", chromium, public, newCode(t, p))
	for _, c := range [][2]string{
		{"page", "Sign in to CodeForge"}, {"style", "8px"}, {"page", "Allow access to CodeForge"}, {"text", "as the tenant ann"}, {"focus", "approve"}, {"landed", "/callback?code="},
	} {
		got := readLine(t, lines, c[0])
		if !strings.Contains(got, c[1]) {
			t.Errorf("%s: %q, want %q", c[0], got, c[1])
		}
		if c[0] == "text" && (!strings.Contains(got, "Claude") || !strings.Contains(got, "127.0.0.1:") || !strings.Contains(got, "stripe")) || c[0] == "landed" && !strings.HasSuffix(got, "referrer none") {
			t.Errorf("%s: %q", c[0], got)
		}
	}
}
