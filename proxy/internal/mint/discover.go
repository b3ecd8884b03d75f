package mint

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
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
	resource := parseHTTPS(o.Resource)
	// RFC 8707, section 2: a resource is an absolute URI without a fragment.
	if resource == nil || resource.Fragment != "" {
		return nil, errWay
	}
	p, err := r.discoverProtection(ctx, resource)
	if err != nil {
		return nil, err
	}
	s, err := r.fetchMetadata(ctx, p.Servers[0])
	if err != nil {
		return nil, err
	}
	c := &client{ID: o.ClientID, Secret: o.ClientSecret.Reveal(), Issuer: s.Issuer, TokenURL: s.Token,
		AuthURL: s.Auth, DeviceURL: s.Device, Resource: p.Resource, Redirect: redirect, Scopes: o.Scopes,
		IssuerNamed: s.IssuerNamed}
	c.Basic = c.Secret != "" && (o.Basic || s.chooseSecretMethod() == methodBasic)
	if len(c.Scopes) == 0 {
		c.Scopes = p.Scopes
	}
	if c.ID != "" {
		return c, nil
	}
	return c, r.registerClient(ctx, s, c)
}

// discoverProtection returns the metadata of a resource. Its first server is the issuer that protects the resource. A
// resource without a document is its own issuer, as in older versions of MCP.
func (r *requester) discoverProtection(ctx context.Context, resource *url.URL) (p resourceMeta, err error) {
	origin, whole := resource.Scheme+"://"+resource.Host, strings.TrimSuffix(resource.String(), "/")
	path := strings.TrimSuffix(resource.EscapedPath(), "/")
	const wellKnown = "/.well-known/oauth-protected-resource"
	challenge := r.fetchChallenge(ctx, resource)
	scopes := strings.Fields(challenge["scope"])
	// RFC 9728, section 3.1, puts the well-known part before the path. A resource without a path has one address only.
	for _, at := range slices.Compact([]struct{ url, names string }{
		{challenge["resource_metadata"], whole}, {origin + wellKnown + path, origin + path}, {origin + wellKnown, origin},
	}) {
		// Servers behind a TLS proxy often name their address with http.
		if !strings.HasPrefix(at.url, "https://") {
			continue
		}
		a, err := r.getJSON(ctx, at.url)
		if err != nil {
			return p, err
		}
		if a.Status != http.StatusOK {
			continue
		}
		if err := decodeObject(a.Body, &p); err != nil {
			return p, err
		}
		said := strings.TrimSuffix(p.Resource, "/")
		// RFC 9728, section 3.3: a document of another resource must not be used.
		if said != at.names && said != whole || len(p.Servers) == 0 {
			return p, newUnavailable(detailIdentity)
		}
		if said == whole {
			p.Resource = resource.String()
		}
		if len(scopes) > 0 {
			p.Scopes = scopes // the server needs these, and may know others
		}
		for _, s := range p.Scopes {
			// The scopes become part of the address that the operator sees.
			if !isPlainText(s, 256) {
				return p, newUnavailable(detailIdentity)
			}
		}
		return p, nil
	}
	return resourceMeta{Resource: resource.String(), Servers: []string{origin}}, nil
}

// challengeTime bounds the request for a challenge.
const challengeTime = 5 * time.Second

// fetchChallenge asks a resource without a token, and returns the parameters of its challenge: where its metadata is
// (RFC 9728, section 5.1), and which scopes it needs. Without a challenge it returns nil.
func (r *requester) fetchChallenge(ctx context.Context, resource *url.URL) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, challengeTime)
	defer cancel()
	a, err := r.postJSON(ctx, resource.String(), struct{}{})
	if err != nil || a.Status != http.StatusUnauthorized {
		return nil // the well-known addresses remain
	}
	out := map[string]string{}
	for _, found := range challengeParameter.FindAllStringSubmatch(strings.Join(a.Challenges, ", "), -1) {
		out[strings.ToLower(found[1])] = found[2]
	}
	return out
}

// challengeParameter matches a parameter of a challenge. The server chooses the whole text, so a match inside another
// parameter gives it no right.
var challengeParameter = regexp.MustCompile(`(?i)[\s,](resource_metadata|scope)\s*=\s*"([^"\\]*)"`)

// fetchMetadata returns the metadata of an authorization server.
func (r *requester) fetchMetadata(ctx context.Context, issuer string) (*issuerMeta, error) {
	u := parseHTTPS(issuer)
	if u == nil || u.RawQuery != "" || u.Fragment != "" {
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
			if endpoint != "" && parseHTTPS(endpoint) == nil {
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

// parseHTTPS returns an absolute https URL without a user, or nil for another text.
func parseHTTPS(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil
	}
	return u
}

const methodPost, methodBasic = "client_secret_post", "client_secret_basic"

// chooseSecretMethod returns how a client sends its secret: in the body, unless the server accepts the header only.
func (s *issuerMeta) chooseSecretMethod() string {
	if len(s.Methods) > 0 && !slices.Contains(s.Methods, methodPost) {
		return methodBasic
	}
	return methodPost
}

// registerClient registers a client (RFC 7591), and sets its id and secret.
func (r *requester) registerClient(ctx context.Context, s *issuerMeta, c *client) error {
	if s.Register == "" {
		return newUnavailable(detailNoClient)
	}
	method := "none"
	if len(s.Methods) > 0 && !slices.Contains(s.Methods, method) {
		method = s.chooseSecretMethod()
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
	c.ID, c.Secret, c.Basic = answer.ID, answer.Secret, method == methodBasic
	return nil
}
