package accesstoken

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/addresslimit"
)

const (
	// freshTime is the lifetime of a cached answer. Package guard checks the token of a stream each second, so the stream
	// ends within two seconds of a revocation, or later if the provider answers slowly.
	freshTime = 500 * time.Millisecond
	// askTime is the timeout of a request to the provider.
	askTime = 3 * time.Second
	// askRate and askBurst bound the requests about tokens outside the cache for each address, per second and at once, and
	// askAll those for all addresses. maxActive bounds the tokens in the cache.
	askRate, askBurst, askAll = 2, 60, 50
	maxActive                 = 4096
)

var errUnavailable = errors.New("the identity provider cannot be used now; the server's log has the reason")

// introspector asks the provider about tokens (RFC 7662).
type introspector struct {
	client  *http.Client
	limit   *addresslimit.Limit
	flights singleflight.Group

	mu     sync.Mutex
	active map[string]activeToken // by the SHA-256 of the token
}

// activeToken is a cached answer about a valid token.
type activeToken struct {
	login Login
	at    time.Time // before the request to the provider
}

// introspect returns the login of a token by the provider's answer. Concurrent calls for one token share a request.
func (v *Verifier) introspect(ctx context.Context, endpoint, token, address string) (Login, error) {
	in := v.introspector
	sum := sha256.Sum256([]byte(token))
	key := string(sum[:])
	in.mu.Lock()
	known, ok := in.active[key]
	in.mu.Unlock()
	if ok {
		//defence:introspect-fresh permits
		if time.Since(known.at) < freshTime {
			return known.login, nil
		}
	}
	login, err, _ := in.flights.Do(key, func() (any, error) {
		// The limit excludes the tokens in use, and counts each address. Otherwise a flood of forged tokens would lock out
		// the users, also those with a new token.
		//defence:introspect-flood
		if !ok && in.limit.IsExceeded(address) {
			return Login{}, errTooMany
		}
		began := time.Now() // before the request: a token may be revoked during a slow answer
		// Not cancelled with the request: others wait for the same answer.
		claims, err := v.askProvider(context.WithoutCancel(ctx), endpoint, token)
		if err != nil {
			return Login{}, v.reportUnavailable(err)
		}
		login, err := v.checkAnswer(claims)
		if err != nil {
			err = v.refuse(err)
		}
		in.mu.Lock()
		defer in.mu.Unlock()
		if len(in.active) >= maxActive {
			maps.DeleteFunc(in.active, func(_ string, a activeToken) bool { return time.Since(a.at) > time.Minute })
		}
		delete(in.active, key)
		if err == nil && len(in.active) < maxActive {
			in.active[key] = activeToken{login, began}
		}
		return login, err
	})
	return login.(Login), err
}

// askProvider returns the answer of the provider's endpoint about a token.
func (v *Verifier) askProvider(
	ctx context.Context, endpoint, token string,
) (claims map[string]json.RawMessage, err error) {
	secret, err := os.ReadFile(v.cfg.SecretFile)
	if err != nil {
		return nil, err
	}
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	// RFC 6749, section 2.3.1: clients encode the ID and the secret as in a form.
	r.SetBasicAuth(url.QueryEscape(v.cfg.ClientID), url.QueryEscape(strings.TrimSpace(string(secret))))
	resp, err := v.introspector.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the introspection endpoint answered %s", resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&claims); err != nil {
		return nil, fmt.Errorf("the introspection endpoint did not answer with a JSON object: %w", err)
	}
	return claims, nil
}

// checkAnswer returns the login of an answer, by the same rules as for a JWT.
func (v *Verifier) checkAnswer(claims map[string]json.RawMessage) (Login, error) {
	var issuer, kind, subject string
	var expires, notBefore float64
	for name, to := range map[string]any{
		"iss": &issuer, "token_type": &kind, "sub": &subject, "exp": &expires, "nbf": &notBefore,
	} {
		if text, ok := claims[name]; ok && json.Unmarshal(text, to) != nil {
			return Login{}, fmt.Errorf("the provider's answer has a wrong %s", name)
		}
	}
	end := time.Unix(int64(expires), 0)
	switch {
	//defence:introspect-active
	case string(claims["active"]) != "true":
		return Login{}, errors.New("the token is not active: forged, expired or revoked")
	//defence:introspect-issuer
	case issuer != v.cfg.Issuer:
		return Login{}, fmt.Errorf("the token's issuer is %q; want %q", issuer, v.cfg.Issuer)
	//defence:introspect-expiry
	case !time.Now().Before(end) || float64(time.Now().Unix()) < notBefore:
		return Login{}, errors.New("the token has expired, has no exp, or is not valid yet")
	// The client of such a token must prove its key (RFC 8705, RFC 9449). CodeForge checks no proof, so a stolen token
	// would count.
	//defence:introspect-bound
	case claims["cnf"] != nil || kind != "" && !strings.EqualFold(kind, "Bearer"):
		return Login{}, errors.New("the token is bound to a key of its client, or is not an access token")
	}
	if err := v.checkAudience(readTexts(claims["aud"])); err != nil {
		return Login{}, err
	}
	names, err := v.readNames(subject, claims)
	return Login{Subject: subject, Names: names, Expires: end}, err
}

// reportUnavailable logs why the provider cannot be used, at most once a second. It returns errUnavailable.
func (v *Verifier) reportUnavailable(reason error) error {
	v.refusal.Do(func() {
		v.cfg.Log.Warn("the identity provider cannot be used now", logline.Tag("mcp"),
			slog.String("reason", reason.Error()))
	})
	return errUnavailable
}
