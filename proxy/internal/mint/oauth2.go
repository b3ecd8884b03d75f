package mint

import (
	"context"
	"encoding/json"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/secret"
)

// oauth2 gets access tokens from a token endpoint (RFC 6749).
type oauth2 struct{ *catalog.OAuth2 }

// client is a registration with an authorization server, and where that server is. It is stored with the token.
type client struct {
	ID     string `json:"id"`
	Secret string `json:"secret,omitempty"`
	Basic  bool   `json:"basic,omitempty"`
	// Issuer and the endpoints are those that were discovered. The refresh token goes to no other.
	Issuer    string `json:"issuer,omitempty"`
	TokenURL  string `json:"token_url,omitempty"`
	AuthURL   string `json:"auth_url,omitempty"`
	DeviceURL string `json:"device_url,omitempty"`
	// Resource is the canonical address of what the token is for (RFC 8707).
	Resource string   `json:"resource,omitempty"`
	Redirect string   `json:"redirect,omitempty"`
	Scopes   []string `json:"scopes,omitempty"`
	// IssuerNamed means that the server says iss in its answers (RFC 9207), so that one without it is forged.
	IssuerNamed bool `json:"issuer_named,omitempty"`
}

// client returns the one of the configuration, or for a resource the one that is kept, with what the configuration has
// of it. Nil means that there is none yet.
func (o *oauth2) client(old *client) *client {
	switch {
	case o.Resource != "" && old != nil && o.ClientID != "":
		c := *old
		c.ID, c.Secret = o.ClientID, o.ClientSecret.Reveal()
		return &c
	case o.Resource != "":
		return old
	}
	return &client{ID: o.ClientID, Secret: o.ClientSecret.Reveal(), Basic: o.Basic,
		TokenURL: o.TokenURL, AuthURL: o.AuthURL, DeviceURL: o.DeviceURL, Scopes: o.Scopes}
}

// scope joins scopes as the server wants them.
func (o *oauth2) scope(scopes []string) string {
	separator := o.ScopeSeparator
	if separator == "" {
		separator = " "
	}
	return strings.Join(scopes, separator)
}

// obtain implements kind.
func (o *oauth2) obtain(ctx context.Context, r *requester, old kept) (grant, error) {
	c := o.client(old.Client)
	if c == nil && o.Grant == catalog.GrantClientCredentials {
		var err error
		if c, err = o.discover(ctx, r, ""); err != nil {
			return grant{}, err
		}
	}
	form := url.Values{}
	switch {
	case o.Grant == catalog.GrantClientCredentials:
		form.Set("grant_type", "client_credentials")
		if len(o.Scopes) > 0 {
			form.Set("scope", o.scope(o.Scopes))
		}
		for name, value := range o.Params {
			if !form.Has(name) {
				form.Set(name, value)
			}
		}
	case old.Refresh == "" || c == nil:
		return grant{}, loginNeeded(detailNoLogin)
	default:
		form.Set("grant_type", "refresh_token")
		form.Set("refresh_token", old.Refresh)
	}
	g, err := o.token(ctx, r, c, form)
	if err == nil && o.Resource != "" {
		g.Client = c
	}
	return g, err
}

// stored implements kind.
func (o *oauth2) stored() bool { return true }

// token asks the token endpoint.
func (o *oauth2) token(ctx context.Context, r *requester, c *client, form url.Values) (grant, error) {
	if c.Resource != "" {
		form.Set("resource", c.Resource)
	}
	user, password := "", ""
	switch {
	case c.Basic && c.Secret != "":
		user, password = c.ID, c.Secret
	default:
		form.Set("client_id", c.ID)
		if c.Secret != "" {
			form.Set("client_secret", c.Secret)
		}
	}
	a, err := r.post(ctx, c.TokenURL, form, user, password)
	if err != nil {
		return grant{}, err
	}
	return parseToken(a)
}

// tokenAnswer is what a token endpoint says.
type tokenAnswer struct {
	Access  *string         `json:"access_token"`
	Type    string          `json:"token_type"`
	Life    json.RawMessage `json:"expires_in"`
	Refresh string          `json:"refresh_token"`
	Error   string          `json:"error"`
}

// parseToken reads an answer of a token endpoint. Some servers report an error with status 200. With an error there may
// be a refresh token nevertheless.
func parseToken(a *Answer) (grant, error) {
	var t tokenAnswer
	if err := decode(a.Body, &t); err != nil {
		if a.Status != 200 {
			return grant{}, unavailable(detailStatus)
		}
		return grant{}, unavailable(detailNotJSON)
	}
	if t.Error != "" {
		code := shownCode(t.Error)
		if isEnded(code) {
			return grant{}, loginNeeded(code)
		}
		return grant{}, unavailable(code)
	}
	g := grant{Refresh: t.Refresh}
	switch {
	case a.Status != 200 && a.Status != 201:
		return grant{}, unavailable(detailStatus)
	case t.Access == nil || *t.Access == "":
		return g, unavailable(detailNoToken)
	case !plausible(*t.Access):
		return g, unavailable(detailUnusable)
	case strings.EqualFold(t.Type, "dpop"), strings.EqualFold(t.Type, "mac"):
		return g, unavailable(detailUnusable)
	}
	g.Access = *t.Access
	if len(t.Life) > 0 && string(t.Life) != "null" {
		seconds, ok := seconds(t.Life)
		if !ok || seconds <= 0 {
			return g, unavailable(detailLifetime)
		}
		g.Life = time.Duration(min(seconds, maxLife.Seconds()) * float64(time.Second))
	}
	return g, nil
}

// plausible reports whether a text may be a token, rather than one that responses are full of: it is replaced wherever
// a response has it, of whatever API.
func plausible(token string) bool {
	const shortest = 16 // RFC 6749, 10.10, wants at least 128 bits
	has := func(chars string) bool { return strings.ContainsAny(token, chars) }
	return len(token) >= shortest && strings.Trim(token, token[:1]) != "" && !has(" ") &&
		(has("0123456789") || strings.ToLower(token) != token && strings.ToUpper(token) != token)
}

// seconds reads a number, which some servers write as a string.
func seconds(raw json.RawMessage) (float64, bool) {
	text := strings.Trim(string(raw), `"`)
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

func isEnded(code string) bool { return slices.Contains(ended, code) }

// mask is a secret as scrub takes it.
func mask(text string) catalog.Credential {
	return catalog.Credential{Name: secret.Mask, Value: secret.New(text)}
}
