package mint

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
)

const (
	// githubBack and githubAhead are the distance of the JWT's times from now. GitHub accepts at most ten minutes, and its
	// clock may be behind.
	githubBack, githubAhead = time.Minute, 9 * time.Minute
	githubVersion           = "2022-11-28"
)

// obtainInstallationToken gets an installation access token.
func (r *requester) obtainInstallationToken(ctx context.Context, g *catalog.GitHubApp, now time.Time) (grant, error) {
	jwt, err := signJWT(g.Key, "", map[string]any{
		// GitHub rejects a JWT from the future.
		"iss": g.AppID, "iat": now.Add(-githubBack).Unix(), "exp": now.Add(githubAhead).Unix(),
	})
	if err != nil {
		return grant{}, err
	}
	wanted := map[string]any{}
	if len(g.Repositories) > 0 {
		wanted["repositories"] = g.Repositories
	}
	if len(g.Permissions) > 0 {
		wanted["permissions"] = g.Permissions
	}
	body, err := json.Marshal(wanted)
	if err != nil {
		return grant{}, newUnavailable(detailNotJSON)
	}
	to := g.BaseURL + "/app/installations/" + url.PathEscape(g.InstallationID) + "/access_tokens"
	req, err := newRequest(ctx, http.MethodPost, to, "application/json", string(body))
	if err != nil {
		return grant{}, err
	}
	req.Header.Set("Authorization", "Bearer "+jwt)
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-Github-Api-Version", githubVersion)
	a, err := r.sendForAnswer(req)
	if err != nil {
		return grant{}, err
	}
	var answer struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expires_at"`
	}
	switch a.Status {
	case http.StatusCreated, http.StatusOK:
	case http.StatusUnauthorized:
		// The key is not the app's, or the clock is wrong.
		return grant{}, newUnavailable("invalid_client")
	case http.StatusNotFound:
		return grant{}, newUnavailable(detailInstallation)
	case http.StatusUnprocessableEntity:
		// The installation lacks a repository or a permission.
		return grant{}, newUnavailable("invalid_scope")
	default:
		return grant{}, newUnavailable(detailStatus)
	}
	switch err := decodeObject(a.Body, &answer); {
	case err != nil:
		return grant{}, err
	case answer.Token == "":
		return grant{}, newUnavailable(detailNoToken)
	case !answer.Expires.After(now):
		return grant{}, newUnavailable(detailLifetime)
	}
	return grant{Access: answer.Token, Issued: true, Life: answer.Expires.Sub(now)}, nil
}

// Further details.
const (
	detailKey          = "key_cannot_sign"
	detailInstallation = "unknown_installation"
)
