package mint

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

// oauth2 gets access tokens from a token endpoint (RFC 6749).
type oauth2 struct{ *catalog.OAuth2 }

// client is a registration with an authorization server, and the addresses of the server. It is stored with the token.
type client struct {
	ID     string `json:"id"`
	Secret string `json:"secret,omitempty"`
	Basic  bool   `json:"basic,omitempty"`
	// Issuer and the endpoints were discovered. The refresh token goes only to them.
	Issuer    string `json:"issuer,omitempty"`
	TokenURL  string `json:"token_url,omitempty"`
	AuthURL   string `json:"auth_url,omitempty"`
	DeviceURL string `json:"device_url,omitempty"`
	// Resource is the canonical address of the resource that the token is for (RFC 8707).
	Resource string   `json:"resource,omitempty"`
	Redirect string   `json:"redirect,omitempty"`
	Scopes   []string `json:"scopes,omitempty"`
	// IssuerNamed means that the server announces iss in its answers (RFC 9207). An answer without iss is then forged.
	IssuerNamed bool `json:"issuer_named,omitempty"`
}

// chooseClient returns the client of the configuration. For a resource it returns the stored client, with the id and
// secret of the configuration if there are any. Nil means that no client exists yet.
func (o *oauth2) chooseClient(old *client) *client {
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

// basicLogin returns the id and secret for the Authorization header, or "" if they are in the body. RFC 6749, section
// 2.3: a client uses one way to authenticate in a request.
func (c *client) basicLogin() (user, password string) {
	if c.Basic && c.Secret != "" {
		return c.ID, c.Secret
	}
	return "", ""
}

// joinScopes joins scopes with the separator that the server expects.
func (o *oauth2) joinScopes(scopes []string) string {
	return strings.Join(scopes, cmp.Or(o.ScopeSeparator, " "))
}

// obtainGrant gets an access token, if there is a login or none is needed.
func (o *oauth2) obtainGrant(ctx context.Context, r *requester, old storedToken) (grant, error) {
	c := o.chooseClient(old.Client)
	if c == nil && o.Grant == catalog.GrantClientCredentials {
		var err error
		if c, err = o.discoverClient(ctx, r, ""); err != nil {
			return grant{}, err
		}
	}
	form := url.Values{}
	switch {
	case o.Grant == catalog.GrantClientCredentials:
		form.Set("grant_type", "client_credentials")
		if len(o.Scopes) > 0 {
			form.Set("scope", o.joinScopes(o.Scopes))
		}
		for name, value := range o.Params {
			// The configuration must not replace the grant type or the scope.
			if !form.Has(name) {
				form.Set(name, value)
			}
		}
	case old.Refresh == "" || c == nil:
		return grant{}, newLoginNeeded(detailNoLogin)
	default:
		form.Set("grant_type", "refresh_token")
		form.Set("refresh_token", old.Refresh)
	}
	g, err := o.requestToken(ctx, r, c, form)
	if err == nil && o.Resource != "" {
		g.Client = c
	}
	return g, err
}

// requestToken sends a request to the token endpoint.
func (o *oauth2) requestToken(ctx context.Context, r *requester, c *client, form url.Values) (grant, error) {
	if c.Resource != "" {
		form.Set("resource", c.Resource)
	}
	user, password := c.basicLogin()
	if user == "" {
		form.Set("client_id", c.ID)
		if c.Secret != "" {
			form.Set("client_secret", c.Secret)
		}
	}
	a, err := r.postForm(ctx, c.TokenURL, form, user, password)
	if err != nil {
		return grant{}, err
	}
	return parseToken(a)
}

type tokenAnswer struct {
	Access  *string         `json:"access_token"`
	Type    string          `json:"token_type"`
	Life    json.RawMessage `json:"expires_in"`
	Refresh string          `json:"refresh_token"`
	Error   string          `json:"error"`
}

// parseToken reads an answer of a token endpoint. Some servers report an error with status 200. An answer with an
// unusable token may still have a refresh token, which the grant then contains.
func parseToken(a *Answer) (grant, error) {
	var t tokenAnswer
	if err := decodeObject(a.Body, &t); err != nil {
		if a.Status != 200 {
			return grant{}, newUnavailable(detailStatus)
		}
		return grant{}, newUnavailable(detailNotJSON)
	}
	// Also with status 200, with which some servers report errors.
	if t.Error != "" {
		code := filterCode(t.Error)
		if slices.Contains(endedCodes, code) {
			return grant{}, newLoginNeeded(code)
		}
		return grant{}, newUnavailable(code)
	}
	g := grant{Refresh: t.Refresh}
	switch {
	case a.Status != 200 && a.Status != 201:
		return grant{}, newUnavailable(detailStatus)
	case t.Access == nil || *t.Access == "":
		return g, newUnavailable(detailNoToken)
	// Such a token needs a proof with every request, which swap cannot add.
	case strings.EqualFold(t.Type, "dpop"), strings.EqualFold(t.Type, "mac"):
		return g, newUnavailable(detailUnusable)
	}
	g.Access, g.Issued = *t.Access, true
	if len(t.Life) > 0 && string(t.Life) != "null" {
		seconds, ok := parseSeconds(t.Life)
		if !ok || seconds <= 0 {
			// The grant keeps its refresh token: the old one is used up.
			return g, newUnavailable(detailLifetime)
		}
		g.Life = time.Duration(min(seconds, maxLife.Seconds()) * float64(time.Second))
	}
	return g, nil
}

// isPlausible reports whether a text may be a token, and not one that is common in requests and responses. The proxy
// replaces a token in the responses of every API, and refuses requests that contain it. The same holds for the text
// that the token's percent escapes stand for.
func isPlausible(token string) bool {
	return !slices.ContainsFunc(multisearch.ListReadings(token), func(text string) bool {
		isPart := func(hash string) bool { return strings.Contains(hash, strings.ToLower(text)) }
		return strings.Contains(text, " ") || !isRandom(text) || slices.ContainsFunc(ofNothing, isPart)
	})
}

// ofNothing are the hashes of an empty body, which SDKs send.
var ofNothing = []string{
	"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "da39a3ee5e6b4b0d3255bfef95601890afd80709",
	"d41d8cd98f00b204e9800998ecf8427e",
}

// isRandom reports whether a text has a stretch that no person or standard writes:
//   - most UUIDs and other hexadecimal digits
//   - letters of both cases and digits that alternate often
//   - a word of 16 characters that alternates three times
//
// The catalog's hasLikelySecret is stricter, and takes many tokens for names. isRandom rejects one in 140 random texts
// of 22 characters of base64url.
func isRandom(text string) bool {
	const hex, mixed, word = 32, 18, 16
	has := func(s, class string) bool { return strings.ContainsAny(s, class) }
	other := func(r rune) bool { return !has(string(r), digits+lower+upper) }
	all := strings.Join(strings.FieldsFunc(text, other), "")
	n, turns, varied := len(all), countChanges(all), 5*countDistinct(all) >= 4*len(all)
	switch {
	case len(text) < word:
		return false
	case n >= hex && strings.Trim(strings.ToLower(all), digits+"abcdef") == "" && turns > 0:
		return true
	case n < mixed, !has(all, lower), !has(all, upper): // looked at below
	case 5*turns >= 2*n, 3*turns > n && (has(all, digits) || varied), 4*turns >= n && has(all, digits) && varied:
		return true
	}
	for _, set := range []string{digits + lower, digits + upper} {
		for _, w := range strings.FieldsFunc(text, func(r rune) bool { return !has(string(r), set) }) {
			if len(w) >= word && countChanges(w) >= 3 {
				return true
			}
		}
	}
	return false
}

const digits, lower, upper = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// countChanges counts the positions at which the kind of character changes: digit, upper case or lower case. The text
// may have no other characters.
func countChanges(text string) int {
	kind := func(c byte) byte { return c & 0x60 } // 0x20: a digit, 0x40: upper case, 0x60: lower case
	n := 0
	for i := 1; i < len(text); i++ {
		if kind(text[i]) != kind(text[i-1]) {
			n++
		}
	}
	return n
}

// countDistinct counts the different bytes of a text.
func countDistinct(text string) int {
	var seen [256]bool
	n := 0
	for _, c := range []byte(text) {
		if !seen[c] {
			seen[c] = true
			n++
		}
	}
	return n
}

// parseSeconds reads a number, which some servers write as a string.
func parseSeconds(raw json.RawMessage) (float64, bool) {
	text := strings.Trim(string(raw), `"`)
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// maskSecret returns a secret as a credential for package scrub.
func maskSecret(text string) catalog.Credential {
	return catalog.Credential{Name: secret.Mask, Value: secret.New(text)}
}
