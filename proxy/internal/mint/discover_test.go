package mint

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
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
			if w.value(t) == "" || !w.values.LayerOver(nil).Contains("inner-canary-registered-9f8e7d6c5b4a3f2e") {
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

// documents is a Transport with a document at each of these addresses.
type documents map[string]string

func (documents) CheckTarget(context.Context, upstream.Want, *url.URL) error { return nil }

func (d documents) RoundTrip(req *http.Request, _ upstream.Want) (*http.Response, error) {
	text, ok := d[strings.TrimPrefix(req.URL.String(), "https://")]
	status := map[bool]int{true: http.StatusOK, false: http.StatusNotFound}[ok]
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// TestProtector finds the document of a resource at its path or at its origin, and none means its origin.
func TestProtector(t *testing.T) {
	const at, root = "a.test/.well-known/oauth-protected-resource/mcp", "a.test/.well-known/oauth-protected-resource"
	doc := func(resource, servers, scopes string) string {
		return fmt.Sprintf(`{"resource": %q, "authorization_servers": [%s], "scopes_supported": [%s]}`, resource, servers, scopes)
	}
	for name, c := range map[string]struct {
		docs     documents
		resource string
		want     string // the issuer, or the detail of the error
	}{
		"at its path":              {documents{at: doc("https://a.test/mcp", `"https://i.test", "https://j.test"`, `"x"`)}, "/mcp", "https://i.test"},
		"with a slash":             {documents{at: doc("https://a.test/mcp", `"https://i.test"`, "")}, "/mcp/", "https://i.test"},
		"at its origin":            {documents{root: doc("https://a.test", `"https://i.test"`, "")}, "/mcp", "https://i.test"},
		"at its origin, of itself": {documents{root: doc("https://a.test/mcp", `"https://i.test"`, "")}, "/mcp", "https://i.test"},
		"of another path":          {documents{root: doc("https://a.test/other", `"https://i.test"`, "")}, "/mcp", detailIdentity},
		"the first counts":         {documents{at: doc("https://b.test/mcp", `"https://i.test"`, ""), root: doc("https://a.test", `"https://i.test"`, "")}, "/mcp", detailIdentity},
		"without a server":         {documents{at: doc("https://a.test/mcp", "", "")}, "/mcp", detailIdentity},
		"a scope with a space":     {documents{at: doc("https://a.test/mcp", `"https://i.test"`, `"a b"`)}, "/mcp", detailIdentity},
		"a long scope":             {documents{at: doc("https://a.test/mcp", `"https://i.test"`, `"`+strings.Repeat("x", 257)+`"`)}, "/mcp", detailIdentity},
		"no JSON":                  {documents{at: "hello"}, "/mcp", detailNotJSON},
		"no document":              {nil, "/mcp", "https://a.test"},
		"a resource without path":  {documents{root: doc("https://a.test", `"https://i.test"`, "")}, "", "https://i.test"},
	} {
		resource, err := url.Parse("https://a.test" + c.resource)
		testkit.Must(t, err)
		p, err := (&requester{transport: c.docs}).discoverProtection(t.Context(), resource)
		issuer := ""
		if err != nil {
			issuer = asError("", err).Detail
		} else {
			issuer = p.Servers[0]
		}
		if issuer != c.want {
			t.Errorf("%s: %s, want %s", name, issuer, c.want)
		}
	}
}

// TestMetadata finds the metadata of an authorization server at each of the three addresses, and refuses metadata that
// would send secrets elsewhere.
func TestMetadata(t *testing.T) {
	good := func(change ...string) string {
		text := `{"issuer": "https://i.test/t", "token_endpoint": "https://i.test/token", "code_challenge_methods_supported": ["plain", "S256"]}`
		return strings.NewReplacer(change...).Replace(text)
	}
	const at = "i.test/.well-known/oauth-authorization-server/t"
	for name, c := range map[string]struct {
		docs   documents
		issuer string
		want   string // the detail of the error
	}{
		"OAuth":                  {documents{at: good()}, "https://i.test/t", ""},
		"OpenID":                 {documents{"i.test/.well-known/openid-configuration/t": good()}, "https://i.test/t", ""},
		"OpenID, the older way":  {documents{"i.test/t/.well-known/openid-configuration": good()}, "https://i.test/t", ""},
		"with a slash":           {documents{at: good()}, "https://i.test/t/", ""},
		"none":                   {nil, "https://i.test/t", detailNoServer},
		"no JSON":                {documents{at: "hello"}, "https://i.test/t", detailNotJSON},
		"another issuer":         {documents{at: good("i.test/t", "i.test/u")}, "https://i.test/t", detailIdentity},
		"without S256":           {documents{at: good("S256", "S1")}, "https://i.test/t", detailIdentity},
		"a token over HTTP":      {documents{at: good("https://i.test/token", "http://i.test/token")}, "https://i.test/t", detailIdentity},
		"a token at no host":     {documents{at: good("https://i.test/token", "https:///token")}, "https://i.test/t", detailIdentity},
		"a user in the address":  {documents{at: good("https://i.test/token", "https://me@i.test/token")}, "https://i.test/t", detailIdentity},
		"no token endpoint":      {documents{at: good("token_endpoint", "x")}, "https://i.test/t", detailIdentity},
		"a device over HTTP":     {documents{at: good(`"issuer"`, `"device_authorization_endpoint": "http://i.test/d", "issuer"`)}, "https://i.test/t", detailIdentity},
		"an issuer over HTTP":    {documents{at: good()}, "http://i.test/t", detailIdentity},
		"an issuer with a query": {documents{at: good()}, "https://i.test/t?x", detailIdentity},
		"an issuer with a user":  {documents{at: good()}, "https://me@i.test/t", detailIdentity},
		"an issuer's fragment":   {documents{at: good()}, "https://i.test/t#x", detailIdentity},
		"an issuer at no host":   {documents{at: good()}, "https:///t", detailIdentity},
	} {
		s, err := (&requester{transport: c.docs}).fetchMetadata(t.Context(), c.issuer)
		got := ""
		if err != nil {
			got = asError("", err).Detail
		}
		if got != c.want || err == nil && s.Token != "https://i.test/token" {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}
