package mint

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// googleLife is the life of an assertion and its token: the longest that Google accepts.
const googleLife = time.Hour

// obtainGoogleToken gets an access token of a service account (RFC 7523).
func (r *requester) obtainGoogleToken(ctx context.Context, g *catalog.Google, now time.Time) (grant, error) {
	claims := map[string]any{
		"iss": g.Email, "scope": strings.Join(g.Scopes, " "), "aud": g.TokenURL,
		"iat": now.Unix(), "exp": now.Add(googleLife).Unix(),
	}
	if g.Subject != "" {
		claims["sub"] = g.Subject
	}
	assertion, err := signJWT(g.PrivateKey, g.KeyID, claims)
	if err != nil {
		return grant{}, err
	}
	a, err := r.postForm(ctx, g.TokenURL, url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion},
	}, "", "")
	if err != nil {
		return grant{}, err
	}
	t, err := parseToken(a)
	// A new assertion gets the next token, so a refresh token would only be one more secret.
	t.Refresh = ""
	return t, err
}
