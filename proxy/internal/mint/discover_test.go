package mint

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

const resourceConfig = `{"description": "d", "domains": ["mcp.mail.test"], "allow_private": ["192.0.2.0/24"],
	"credentials": {"` + loginName + `": {"oauth2": {"resource": "https://mcp.mail.test/mcp"}}}}`

// TestResource: a resource's authorization server is found, a client registered with it, both are stored with the token,
// and a server that names another does not get the code.
// Promise: logins-belong-to-their-user
func TestResource(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(resource, server map[string]any)
		want   string
	}{
		"as it should be":             {func(map[string]any, map[string]any) {}, ""},
		"another resource":            {func(r, _ map[string]any) { r["resource"] = "https://evil.test/mcp" }, "server_does_not_name_itself"},
		"itself, with a slash":        {func(r, _ map[string]any) { r["resource"] = "https://mcp.mail.test/mcp/" }, ""},
		"its origin only":             {func(r, _ map[string]any) { r["resource"] = "https://mcp.mail.test" }, "server_does_not_name_itself"},
		"no document":                 {func(r, _ map[string]any) { clear(r) }, "server_does_not_name_itself"},
		"no server":                   {func(r, _ map[string]any) { r["authorization_servers"] = []string{} }, "server_does_not_name_itself"},
		"a server over http":          {func(r, _ map[string]any) { r["authorization_servers"] = []string{"http://login.test"} }, "server_does_not_name_itself"},
		"another issuer":              {func(_, s map[string]any) { s["issuer"] = "https://evil.test" }, "server_does_not_name_itself"},
		"a token endpoint over http":  {func(_, s map[string]any) { s["token_endpoint"] = "http://login.test/token" }, "server_does_not_name_itself"},
		"no PKCE":                     {func(_, s map[string]any) { delete(s, "code_challenge_methods_supported") }, "server_does_not_name_itself"},
		"plain PKCE only":             {func(_, s map[string]any) { s["code_challenge_methods_supported"] = []string{"plain"} }, "server_does_not_name_itself"},
		"no registration":             {func(_, s map[string]any) { delete(s, "registration_endpoint") }, "no_client_and_no_registration"},
		"a wrong type in the listing": {func(_, s map[string]any) { s["issuer"] = 7 }, "answer_is_not_json"},
	} {
		t.Run(name, func(t *testing.T) {
			resource := map[string]any{"resource": "https://mcp.mail.test/mcp", "authorization_servers": []string{"https://login.test/tenant"}, "scopes_supported": []string{"read"}}
			meta := map[string]any{"issuer": "https://login.test/tenant", "authorization_endpoint": "https://login.test/authorize", "token_endpoint": "https://login.test/token",
				"registration_endpoint": "https://login.test/register", "code_challenge_methods_supported": []string{"S256"}, "authorization_response_iss_parameter_supported": true}
			tc.change(resource, meta)
			server := newLoginServer(t)
			var registered map[string]any
			server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.Host + r.URL.Path {
				case "mcp.mail.test/.well-known/oauth-protected-resource/mcp":
					_ = json.NewEncoder(w).Encode(resource)
				case "login.test/.well-known/oauth-authorization-server/tenant":
					_ = json.NewEncoder(w).Encode(meta)
				case "login.test/register":
					_ = json.NewDecoder(r.Body).Decode(&registered)
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write([]byte(`{"client_id": "registered-1", "client_secret": "inner-canary-registered-9f8e7d6c5b4a3f2e"}`))
				case "login.test/token":
					server.ServeHTTP(w, r)
				default:
					http.NotFound(w, r)
				}
			})
			dir := t.TempDir()
			w := newWorld(t, server, dir)
			w.configure(t, resourceConfig)
			s, err := w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayBrowser, Port: 49152})
			if tc.want != "" {
				if r, ok := err.(*rpc.Error); !ok || r.Code != tc.want { //nolint:errorlint // not wrapped
					t.Errorf("got %v, want %s", err, tc.want)
				}
				return
			}
			testkit.Must(t, err)
			if !strings.Contains(s.URL, "client_id=registered-1") || !strings.Contains(s.URL, "resource=https%3A%2F%2Fmcp.mail.test%2Fmcp") || !strings.Contains(s.URL, "scope=read") {
				t.Errorf("address %s", s.URL)
			}
			if registered["token_endpoint_auth_method"] != "none" || registered["redirect_uris"].([]any)[0] != "http://127.0.0.1:49152/callback" {
				t.Errorf("registered %v", registered)
			}
			r := w.approve(t, s)
			if err := w.FinishLogin(t.Context(), r); err == nil {
				t.Error("a redirect without iss of a server that sends it")
			}
			s, err = w.BeginLogin(t.Context(), credentialapi.Login{Name: loginName, Way: credentialapi.WayBrowser, Port: 49152})
			testkit.Must(t, err)
			r = w.approve(t, s)
			r.Issuer = "https://login.test/tenant"
			testkit.Must(t, w.FinishLogin(t.Context(), r))
			if w.value(t) == "" || !w.values.WithValues(nil).Contains("inner-canary-registered-9f8e7d6c5b4a3f2e") {
				t.Error("not logged in, or the client's secret is not scrubbed")
			}
			w.Close()
			again := newWorld(t, server, dir)
			again.configure(t, resourceConfig)
			again.clock.move(2 * time.Hour)
			if again.value(t) == "" || server.last().Get("resource") != "https://mcp.mail.test/mcp" || server.last().Get("client_id") != "registered-1" {
				t.Errorf("renewed with %v", server.last())
			}
		})
	}
}
