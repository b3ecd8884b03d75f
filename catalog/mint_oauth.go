package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

func oauth2Kind() mintKind {
	return mintKind{kindOAuth2, (*configValidator).buildOAuth2, []mintField{
		{name: "provider", example: `"google"`}, {name: "tenant"}, {name: "resource"}, {name: "grant"},
		{name: "token_url"}, {name: "auth_url"}, {name: "device_url"}, {name: "client_id", form: formID},
		{name: "client_secret", form: formSecret, example: `{"file": "client_secret"}`},
		{name: "scopes", form: formList, example: `["read"]`}, {name: "auth"},
		{name: "params", form: formTexts, example: `{"access_type": "offline"}`},
		{name: "redirect_host"}, {name: "redirect_port", form: formNumber},
	}}
}

// Grant is the way in which an OAuth 2.0 client gets tokens (RFC 6749).
type Grant string

// The grants. A login by authorization code or device code also ends with a refresh token.
const (
	GrantRefreshToken      Grant = "refresh_token"
	GrantClientCredentials Grant = "client_credentials"
)

// OAuth2 is "oauth2": an access token from a token endpoint.
type OAuth2 struct {
	// Provider is the preset for missing fields, or "".
	Provider string
	Grant    Grant
	// The endpoints, only https. AuthURL and DeviceURL serve logins; an empty one disables its kind of login.
	TokenURL, AuthURL, DeviceURL string
	ClientID                     string
	ClientSecret                 secret.Value // empty for public clients
	Scopes                       []string
	// ScopeSeparator joins Scopes. It is a space unless the provider wants another separator. It is never empty.
	ScopeSeparator string
	// Basic means that the client authenticates by the Authorization header, and not in the body ("auth": "basic" or
	// "body").
	Basic bool
	// Params are added to the authorization request, or to the token request for GrantClientCredentials.
	Params map[string]string
	// Resource is the URL of an MCP server whose authorization server is discovered (RFC 9728, 8414, 8707). It replaces
	// the endpoints. ClientID may then be empty; the proxy registers a client.
	Resource string
	// RedirectHost is the host of the login's redirect address: "127.0.0.1", or "localhost" for providers that require the
	// name.
	RedirectHost string
	// RedirectPort is the port of the redirect address. 0 means an ephemeral port.
	RedirectPort int
}

// RedirectPath is the path of the redirect address of every login.
const RedirectPath = "/callback"

// RedirectURI returns the redirect address of a login, for a listener at port.
func (o *OAuth2) RedirectURI(port int) string {
	return "http://" + o.RedirectHost + ":" + strconv.Itoa(port) + RedirectPath
}

// Kind implements Mint.
func (*OAuth2) Kind() string { return kindOAuth2 }

// Secrets implements Mint.
func (o *OAuth2) Secrets() []secret.Value { return []secret.Value{o.ClientSecret} }

func (o *OAuth2) mintAddress() string { return cmp.Or(o.Resource, o.TokenURL) }

func (o *OAuth2) addIdentity(id *mintIdentity) {
	id.addField("grant", string(o.Grant))
	id.addField("token_url", o.TokenURL)
	id.addField("client_id", o.ClientID)
	id.addSorted("scopes", o.Scopes)
	id.addField("resource", o.Resource)
	id.addTable("params", o.Params)
}

func (v *configValidator) buildOAuth2(path string, m *rawMint) Mint {
	o := &OAuth2{
		Grant:    Grant(v.readOption(path, "grant", m, []string{string(GrantRefreshToken), string(GrantClientCredentials)})),
		TokenURL: m.text["token_url"], AuthURL: m.text["auth_url"], DeviceURL: m.text["device_url"],
		ClientID: m.text["client_id"], ClientSecret: v.readInnerSecret(path, "client_secret", m), Scopes: m.list["scopes"],
		ScopeSeparator: " ", Resource: m.text["resource"], Params: m.texts["params"],
		Basic:        v.readOption(path, "auth", m, []string{"body", "basic"}) == "basic",
		RedirectHost: v.readOption(path, "redirect_host", m, []string{"127.0.0.1", "localhost"}),
		RedirectPort: m.number["redirect_port"],
	}
	o.Provider = v.readOption(path, "provider", m, providerNames())
	// Before the checks: they judge the addresses of the preset, too.
	v.applyPreset(path, m, o)
	for _, f := range []struct{ name, text string }{
		{"token_url", o.TokenURL}, {"auth_url", o.AuthURL}, {"device_url", o.DeviceURL}, {"resource", o.Resource},
	} {
		if m.has[f.name] {
			v.parseURL(path+"."+f.name, f.text, `"https://auth.example.com/`+strings.TrimSuffix(f.name, "_url")+`"`)
		}
	}
	v.checkOAuth2Fields(path, m, o)
	for i, s := range o.Scopes {
		if s == "" || strings.ContainsAny(s, " \"\\") {
			v.AddError(fmt.Sprintf("%s.scopes[%d]", path, i), "not a scope", "one scope per entry, without spaces and quotes")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Params)) {
		// Another state or challenge would disable the protection of the login.
		if slices.Contains(ownParams, name) {
			v.AddError(path+".params."+name, "a parameter that CodeForge sets", "it left out")
		}
	}
	const ports = 1 << 16
	if m.has["redirect_port"] && (o.RedirectPort < 1024 || o.RedirectPort >= ports) {
		v.AddError(path+".redirect_port", strconv.Itoa(o.RedirectPort), "1024 to 65535")
	}
	o.Grant = cmp.Or(o.Grant, GrantRefreshToken)
	o.RedirectHost = cmp.Or(o.RedirectHost, "127.0.0.1")
	return o
}

// checkResources checks that the token of a resource is only sent to the site of the resource. The login page names
// only the resource. A copied configuration with further hosts would make people log in for those hosts.
func (v *configValidator) checkResources(a *API) {
	for _, c := range a.Credentials {
		o, ok := c.Mint.(*OAuth2)
		if !ok || o.Resource == "" {
			continue
		}
		resource, err := serverHost(o.Resource)
		if err != nil {
			continue // reported as a mistake already
		}
		for _, h := range a.Hosts {
			if h.Site() != resource.Site() {
				v.AddError("credentials."+c.Name+".oauth2.resource",
					"a server on another site than "+h.String()+", which would get the token",
					"the URL of a server on the site of all hosts of this API")
				break
			}
		}
	}
}

// ownParams are the parameters of authorization and token requests that the user cannot set.
var ownParams = []string{
	"response_type", "response_mode", "client_id", "client_secret", "redirect_uri", "scope", "state", "code",
	"code_verifier",
	"code_challenge", "code_challenge_method", "grant_type", "refresh_token", "device_code", "nonce", "request",
	"request_uri", "client_assertion", "client_assertion_type", "username", "password", "resource",
}

// applyPreset fills in the provider's values for fields that config.json leaves out.
func (v *configValidator) applyPreset(path string, m *rawMint, o *OAuth2) {
	tenant := m.text["tenant"]
	if m.has["tenant"] && o.Provider != "microsoft" {
		v.AddError(path+".tenant", "a field that is only for provider microsoft", "it left out")
	}
	if m.has["tenant"] && !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,127}$`).MatchString(tenant) {
		v.AddError(path+".tenant", "not a tenant", `a domain or an id, e.g. "example.onmicrosoft.com", or "organizations"`)
		tenant = ""
	}
	tenant = cmp.Or(tenant, "common")
	for _, p := range listProviders() {
		if p.name != o.Provider {
			continue
		}
		for _, f := range []struct {
			to   *string
			from string
		}{
			{&o.TokenURL, p.tokenURL}, {&o.AuthURL, p.authURL}, {&o.DeviceURL, p.deviceURL}, {&o.RedirectHost, p.redirectHost},
		} {
			if *f.to == "" {
				*f.to = strings.ReplaceAll(f.from, tenantMark, tenant)
			}
		}
		o.Basic = o.Basic || p.basic && !m.has["auth"]
		if p.separator != "" {
			o.ScopeSeparator = p.separator
		}
		if !m.has["redirect_port"] {
			o.RedirectPort = p.redirectPort
		}
		if o.Grant == GrantClientCredentials {
			continue // the rest is for logins
		}
		params := maps.Clone(p.params)
		if params == nil {
			params = map[string]string{}
		}
		// The configuration's parameters win over the preset's.
		maps.Copy(params, o.Params)
		o.Params = params
		for _, s := range p.scopes {
			if !slices.Contains(o.Scopes, s) {
				// Clip: the list of the configuration must not be overwritten.
				o.Scopes = append(slices.Clip(o.Scopes), s)
			}
		}
	}
}

// checkOAuth2Fields checks that the fields are complete and do not contradict each other.
func (v *configValidator) checkOAuth2Fields(path string, m *rawMint, o *OAuth2) {
	missing := func(field, want string) {
		if !m.has[field] {
			v.AddError(path+"."+field, "missing", want)
		}
	}
	switch {
	case m.has["resource"]:
		for _, f := range []string{"provider", "token_url", "auth_url", "device_url", "auth"} {
			if m.has[f] {
				v.AddError(path+"."+f, "a field that resource's authorization server supplies", "resource without it")
			}
		}
		if o.Grant == GrantClientCredentials {
			missing("client_id", "the id under which the client is known to the server")
		}
	case m.has["provider"]:
		missing("client_id", "the id that the provider shows for the app")
	default:
		if !m.has["token_url"] {
			v.AddError(path+".token_url", "missing", `an address, or a "provider": one of `+strings.Join(providerNames(), ", "))
		}
		missing("client_id", "the client's id")
		if o.Grant != GrantClientCredentials && !m.has["auth_url"] && !m.has["device_url"] {
			v.AddError(path+".auth_url", "missing", `auth_url or device_url, for the login, or "grant": "client_credentials"`)
		}
	}
	if o.Grant == GrantClientCredentials && !m.has["resource"] {
		missing("client_secret", "the client's secret, by which alone it authenticates")
	}
	if o.Basic && o.ClientSecret.IsEmpty() && !m.has["client_secret"] {
		v.AddError(path+".auth", "basic without a client_secret", "a client_secret, or no auth")
	}
}
