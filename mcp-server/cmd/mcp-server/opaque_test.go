package main

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestOpaqueTokens: a real provider's opaque token counts until it expires or is revoked, also on an open stream, within
// two seconds. Tokens for another server or of another provider, refresh tokens, and all tokens while the provider is
// away, do not count. The log has no token and no secret.
// Promise: access-tokens
func TestOpaqueTokens(t *testing.T) {
	t.Parallel()
	proxies, away := newProxies(t), new(atomic.Bool)
	issuer, other := startProvider(t, proxies, "opaque", away), startProvider(t, proxies, "opaque", new(atomic.Bool))
	p, public := startWithIssuer(t, proxies, issuer, "opaque")
	client := proxies.newUser(t, "ann", nil).Client
	var all []string
	mint := func(issuer, kind, user, resource, seconds string) string {
		t.Helper()
		q := url.Values{"kind": {kind}, "user": {user}, "resource": {resource}, "seconds": {seconds}}
		resp, err := client.Get(issuer + "/mint?" + q.Encode())
		testkit.Must(t, err)
		defer resp.Body.Close()
		token, err := io.ReadAll(resp.Body)
		testkit.Must(t, err)
		if resp.StatusCode != http.StatusOK || len(token) < 20 || bytes.ContainsAny(token, ". ") {
			t.Fatalf("%s %s", resp.Status, token)
		}
		all = append(all, string(token))
		return string(token)
	}
	send := func(method, token, session, body string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, public+"/mcp", strings.NewReader(body))
		testkit.Must(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Authorization", "Bearer "+token)
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		resp, err := client.Do(r)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	const begin = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	open := func(token string) *http.Response { t.Helper(); return send(http.MethodPost, token, "", begin) }
	resource := public + "/mcp"
	short, valid := mint(issuer, "AccessToken", "ann", resource, "4"), mint(issuer, "AccessToken", "ann", resource, "600")
	for _, c := range []struct {
		name, token string
		want        int
	}{
		{"valid", valid, http.StatusOK},
		{"valid for four seconds", short, http.StatusOK},
		{"a user of no tenant", mint(issuer, "AccessToken", "mallory", resource, "600"), http.StatusUnauthorized},
		{"for another server", mint(issuer, "AccessToken", "ann", "https://other.example.com/mcp", "600"), http.StatusUnauthorized},
		{"of another provider", mint(other, "AccessToken", "ann", resource, "600"), http.StatusUnauthorized},
		{"a refresh token", mint(issuer, "RefreshToken", "ann", resource, "600"), http.StatusUnauthorized},
		{"forged", "abcdefghijklmnopqrstuvwxyz", http.StatusUnauthorized},
	} {
		if resp := open(c.token); resp.StatusCode != c.want {
			t.Errorf("%s: %s, want %d\n%s", c.name, resp.Status, c.want, p.log)
		}
	}
	// stream returns when a stream with a token ends.
	stream := func(token string) <-chan time.Time {
		t.Helper()
		resp := send(http.MethodGet, token, open(token).Header.Get("Mcp-Session-Id"), "")
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("a stream: %s", resp.Status)
		}
		ended := make(chan time.Time, 1)
		go func() { _, _ = io.Copy(io.Discard, resp.Body); ended <- time.Now() }()
		return ended
	}
	testkit.WaitFor(t, func() bool { return open(short).StatusCode == http.StatusUnauthorized })
	ended, kept := stream(valid), mint(issuer, "AccessToken", "ann", resource, "600")
	whileAway := stream(kept)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, issuer+"/token/revocation", strings.NewReader("token="+valid))
	testkit.Must(t, err)
	r.SetBasicAuth("forge", url.QueryEscape("secret of the forge"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	revoked := time.Now()
	resp, err := client.Do(r)
	testkit.Must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the revocation: %s", resp.Status)
	}
	waitForEnd(t, "a revoked token", ended, revoked)
	if resp := open(valid); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("after the revocation: %s", resp.Status)
	}
	if resp := open(kept); resp.StatusCode != http.StatusOK {
		t.Errorf("another token: %s", resp.Status)
	}
	away.Store(true)
	client.CloseIdleConnections()
	waitForEnd(t, "a provider that is away", whileAway, time.Now())
	if resp := open(kept); resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("while the provider is away: %s", resp.Status)
	}
	away.Store(false)
	testkit.WaitFor(t, func() bool { return open(kept).StatusCode == http.StatusOK })
	for _, secret := range append(all, "secret of the forge") {
		if strings.Contains(p.log.String(), secret) {
			t.Errorf("the log has %s", secret)
		}
	}
}

// waitForEnd requires that a stream ends within two seconds of a time.
func waitForEnd(t *testing.T, name string, ended <-chan time.Time, since time.Time) {
	t.Helper()
	select {
	case at := <-ended:
		t.Logf("%s: the stream ended after %v", name, at.Sub(since))
		if at.Sub(since) > 2*time.Second {
			t.Errorf("%s: too late", name)
		}
	case <-time.After(testkit.Patience):
		t.Errorf("%s: the stream goes on", name)
	}
}
