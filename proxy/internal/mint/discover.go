package mint

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// clientName is the name of a registered client on the server's consent page.
const clientName = "CodeForge"

// resourceMeta is the metadata of a protected resource (RFC 9728).
type resourceMeta struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`
}

// issuerMeta is the metadata of an authorization server (RFC 8414).
type issuerMeta struct {
	Issuer      string   `json:"issuer"`
	Auth        string   `json:"authorization_endpoint"`
	Token       string   `json:"token_endpoint"`
	Device      string   `json:"device_authorization_endpoint"`
	Register    string   `json:"registration_endpoint"`
	Challenges  []string `json:"code_challenge_methods_supported"`
	Methods     []string `json:"token_endpoint_auth_methods_supported"`
	IssuerNamed bool     `json:"authorization_response_iss_parameter_supported"`
}

// discoverClient finds the authorization server of a resource and the client for it: the client of the configuration,
// or one that it registers. The addresses come from the documents of the resource and the server. Each document must
// name the address it was read from.
func (o *oauth2) discoverClient(ctx context.Context, r *requester, redirect string) (*client, error) {
	resource, err := url.Parse(o.Resource)
	// RFC 8707, section 2: a resource is an absolute URI without a fragment.
	if err != nil || resource.Scheme != "https" || resource.Host == "" || resource.User != nil || resource.Fragment != "" {
		return nil, errWay
	}
	issuer, scopes, err := r.discoverIssuer(ctx, resource)
	if err != nil {
		return nil, err
	}
	s, err := r.fetchMetadata(ctx, issuer)
	if err != nil {
		return nil, err
	}
	c := &client{ID: o.ClientID, Secret: o.ClientSecret.Reveal(), Basic: o.Basic, Issuer: s.Issuer, TokenURL: s.Token,
		AuthURL: s.Auth, DeviceURL: s.Device, Resource: o.Resource, Redirect: redirect, Scopes: o.Scopes,
		IssuerNamed: s.IssuerNamed}
	if len(c.Scopes) == 0 {
		c.Scopes = scopes
	}
	if c.ID != "" {
		return c, nil
	}
	return c, r.registerClient(ctx, s, c)
}

// discoverIssuer returns the issuer that protects a resource. A resource without a document is its own issuer, as in
// older versions of MCP.
func (r *requester) discoverIssuer(ctx context.Context, resource *url.URL) (issuer string, scopes []string, err error) {
	origin := resource.Scheme + "://" + resource.Host
	paths := []string{strings.TrimSuffix(resource.EscapedPath(), "/"), ""}
	// RFC 9728, section 3.1, puts the well-known part before the path. A resource without a path has one address only.
	for _, path := range slices.Compact(paths) {
		a, err := r.getJSON(ctx, origin+"/.well-known/oauth-protected-resource"+path)
		if err != nil {
			return "", nil, err
		}
		if a.Status != http.StatusOK {
			continue
		}
		var p resourceMeta
		if err := decodeObject(a.Body, &p); err != nil {
			return "", nil, err
		}
		said := strings.TrimSuffix(p.Resource, "/")
		// RFC 9728, section 3.3: a document of another resource must not be used.
		if said != origin+path && said != strings.TrimSuffix(resource.String(), "/") || len(p.Servers) == 0 {
			return "", nil, newUnavailable(detailIdentity)
		}
		for _, s := range p.Scopes {
			// The scopes become part of the address that the operator sees.
			if !isPlainText(s, 256) {
				return "", nil, newUnavailable(detailIdentity)
			}
		}
		return p.Servers[0], p.Scopes, nil
	}
	return origin, nil, nil
}

// fetchMetadata returns the metadata of an authorization server.
func (r *requester) fetchMetadata(ctx context.Context, issuer string) (*issuerMeta, error) {
	u, err := url.Parse(issuer)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, newUnavailable(detailIdentity)
	}
	origin, path := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.EscapedPath(), "/")
	// RFC 8414, section 3.1, puts the well-known part before the issuer's path, and OpenID Connect Discovery after it.
	for _, at := range []string{
		origin + "/.well-known/oauth-authorization-server" + path,
		origin + "/.well-known/openid-configuration" + path,
		origin + path + "/.well-known/openid-configuration",
	} {
		a, err := r.getJSON(ctx, at)
		if err != nil {
			return nil, err
		}
		if a.Status != http.StatusOK {
			continue
		}
		var s issuerMeta
		if err := decodeObject(a.Body, &s); err != nil {
			return nil, err
		}
		// With the document of another issuer, the codes of this issuer would go to that one (RFC 8414, section 3.3). Without
		// S256 the code would have no PKCE protection.
		if strings.TrimSuffix(s.Issuer, "/") != strings.TrimSuffix(issuer, "/") || !slices.Contains(s.Challenges, "S256") {
			return nil, newUnavailable(detailIdentity)
		}
		// The document chooses where secrets are sent: only over TLS, and to no user in the URL.
		for _, endpoint := range []string{s.Auth, s.Token, s.Device, s.Register} {
			e, err := url.Parse(endpoint)
			if endpoint != "" && (err != nil || e.Scheme != "https" || e.Host == "" || e.User != nil) {
				return nil, newUnavailable(detailIdentity)
			}
		}
		if s.Token == "" {
			return nil, newUnavailable(detailIdentity)
		}
		return &s, nil
	}
	return nil, newUnavailable(detailNoServer)
}

// registerClient registers a client (RFC 7591), and sets its id and secret.
func (r *requester) registerClient(ctx context.Context, s *issuerMeta, c *client) error {
	if s.Register == "" {
		return newUnavailable(detailNoClient)
	}
	method := "none"
	if len(s.Methods) > 0 && !slices.Contains(s.Methods, method) {
		method = "client_secret_post"
		if !slices.Contains(s.Methods, method) {
			method = "client_secret_basic"
		}
	}
	grants := []string{"authorization_code", "refresh_token"}
	if s.Device != "" {
		grants = append(grants, grantDevice)
	}
	a, err := r.postJSON(ctx, s.Register, map[string]any{
		"client_name": clientName, "redirect_uris": []string{c.Redirect}, "grant_types": grants,
		"response_types": []string{"code"}, "token_endpoint_auth_method": method, "application_type": "native",
	})
	if err != nil {
		return err
	}
	var answer struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Method string `json:"token_endpoint_auth_method"`
		Error  string `json:"error"`
	}
	switch err := decodeObject(a.Body, &answer); {
	case err == nil && answer.Error != "":
		return newUnavailable(filterCode(answer.Error))
	case a.Status != http.StatusCreated && a.Status != http.StatusOK:
		return newUnavailable(detailStatus)
	case err != nil:
		return err
	// The id becomes part of the address that the operator sees.
	case !isPlainText(answer.ID, 1024) || answer.Secret != "" && !isPlainText(answer.Secret, 1024):
		return newUnavailable(detailUnusable)
	}
	// RFC 7591, section 3.2.1: the server may replace the requested method.
	if answer.Method != "" {
		method = answer.Method
	}
	c.ID, c.Secret, c.Basic = answer.ID, answer.Secret, method == "client_secret_basic"
	return nil
}
