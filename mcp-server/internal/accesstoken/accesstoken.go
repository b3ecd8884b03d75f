// Package accesstoken verifies the access tokens of an identity provider.
//
// Threat: the client is anyone on the internet. It may send tokens that are forged, that have expired, or that the
// provider issued for another server. It may send many, to make this server send requests to the provider.
//
// Contract: a token counts only if the issuer signed it with one of its current keys and an asymmetric algorithm, if it
// has not expired, and if its only audience is this server. With introspection, the issuer's answer replaces the
// signature, and counts for half a second. If the issuer does not answer, no token counts. No error and no log line
// contains a token or the secret.
package accesstoken

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"golang.org/x/time/rate"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/addresslimit"
)

// Config configures a Verifier.
type Config struct {
	// Issuer is the URL of the provider, as its tokens name it. Audience is the only audience of a valid token.
	Issuer, Audience string
	// Claim is the claim with the names of a login: a text or a list of texts.
	Claim string
	// CAFile is a PEM file of authorities for the provider's certificate. If empty, the system's authorities count.
	CAFile string
	// ClientID is this server's client ID at the provider, and SecretFile a file with the client's secret. With both, the
	// Verifier asks the provider about each token. If both are empty, tokens are JWTs.
	ClientID, SecretFile string
	Log                  *slog.Logger
}

// Login is what a valid token says.
type Login struct {
	Subject string
	// Names are the values of Config.Claim.
	Names   []string
	Expires time.Time
}

// Verifier verifies tokens. It asks the provider for its keys with the first token, and again for unknown keys. It is
// safe for concurrent use. Create it with New.
type Verifier struct {
	cfg    Config
	client *http.Client

	introspector *introspector // nil without introspection

	mu       sync.Mutex // held while the provider's metadata is read
	tokens   *oidc.IDTokenVerifier
	endpoint string         // of introspection
	refusal  rate.Sometimes // logs a refusal
}

const (
	// fetchTime bounds a request to the provider, and maxAnswer its answer in bytes.
	fetchTime = 10 * time.Second
	maxAnswer = 1 << 20
	// fetchPause is the average pause between requests to the provider, after fetchBurst requests.
	fetchPause = 5 * time.Second
	fetchBurst = 4
)

// algorithms are asymmetric. With HS256, the provider's public key would be a signing key (key confusion).
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// New returns a verifier. It does not connect to the provider.
func New(cfg Config) (*Verifier, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("OIDC_CA_FILE: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, errors.New("OIDC_CA_FILE: no certificate in it")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	newClient := func(limit time.Duration, rates *rate.Limiter) *http.Client {
		return &http.Client{
			Timeout:   limit,
			Transport: &boundedTransport{next: transport, limit: rates},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse // the keys and the answers come from the issuer itself
			},
		}
	}
	v := &Verifier{
		cfg: cfg, client: newClient(fetchTime, rate.NewLimiter(rate.Every(fetchPause), fetchBurst)),
		refusal: rate.Sometimes{Interval: time.Second},
	}
	if cfg.ClientID != "" {
		if _, err := os.ReadFile(cfg.SecretFile); err != nil {
			return nil, fmt.Errorf("OIDC_INTROSPECTION_SECRET_FILE: %w", err)
		}
		v.introspector = &introspector{
			client: newClient(askTime, rate.NewLimiter(rate.Inf, 0)), limit: addresslimit.New(askRate, askBurst, askAll),
			active: map[string]activeToken{},
		}
	}
	return v, nil
}

// Verify returns the login of a token from an address (see addresslimit.AddressOf). The error wraps
// auth.ErrInvalidToken, unless the provider cannot be reached.
func (v *Verifier) Verify(ctx context.Context, token, address string) (Login, error) {
	tokens, endpoint, err := v.discover(ctx)
	if err != nil {
		return Login{}, err
	}
	if v.introspector != nil {
		return v.introspect(ctx, endpoint, token, address)
	}
	verified, err := tokens.Verify(ctx, token)
	if err != nil {
		return Login{}, v.refuse(err)
	}
	var claims map[string]json.RawMessage
	if err = verified.Claims(&claims); err == nil {
		err = v.checkAudience(verified.Audience)
	}
	if err != nil {
		return Login{}, v.refuse(err)
	}
	names, err := v.readNames(verified.Subject, claims)
	if err != nil {
		return Login{}, v.refuse(err)
	}
	return Login{Subject: verified.Subject, Names: names, Expires: verified.Expiry}, nil
}

// checkAudience refuses a token that is not for this server alone.
func (v *Verifier) checkAudience(audience []string) error {
	// If a token is for several servers, each server could replay it.
	//defence:login-audience
	if len(audience) != 1 || audience[0] != v.cfg.Audience {
		return fmt.Errorf("the token has %d audiences, %q; want only %q", len(audience), audience, v.cfg.Audience)
	}
	return nil
}

// refuse logs the reason for a refusal, at most once a second, and returns an error without it.
func (v *Verifier) refuse(reason error) error {
	v.refusal.Do(func() {
		v.cfg.Log.Warn("refused an access token", logline.Tag("mcp"), slog.String("reason", reason.Error()))
	})
	return auth.ErrInvalidToken
}

// readNames returns the values of the claim.
func (v *Verifier) readNames(subject string, claims map[string]json.RawMessage) ([]string, error) {
	if subject == "" {
		return nil, errors.New("the token has no sub")
	}
	// Many providers let users enter any address.
	if v.cfg.Claim == "email" && string(claims["email_verified"]) != "true" {
		return nil, errors.New("the provider has not verified the token's email")
	}
	names := readTexts(claims[v.cfg.Claim])
	if len(names) == 0 {
		return nil, fmt.Errorf("the token has no claim %q with a text or a list of texts", v.cfg.Claim)
	}
	return names, nil
}

// readTexts returns a text or a list of texts, or nil if a value is neither or an empty text.
func readTexts(value json.RawMessage) (texts []string) {
	var text string
	if json.Unmarshal(value, &text) == nil && text != "" {
		return []string{text}
	}
	if json.Unmarshal(value, &texts) != nil {
		return nil
	}
	return texts
}

// discover returns the verifier of the provider's tokens, and the endpoint of introspection. The first call reads the
// provider's metadata.
func (v *Verifier) discover(ctx context.Context) (*oidc.IDTokenVerifier, string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.tokens != nil {
		return v.tokens, v.endpoint, nil
	}
	// Not cancelled with the request: others wait for the same answer.
	ctx = oidc.ClientContext(context.WithoutCancel(ctx), v.client)
	provider, err := oidc.NewProvider(ctx, v.cfg.Issuer)
	var metadata struct {
		Introspection string `json:"introspection_endpoint"`
	}
	if err == nil {
		err = provider.Claims(&metadata)
	}
	// This URL gets the client's secret.
	if err == nil && v.introspector != nil && !strings.HasPrefix(metadata.Introspection, "https://") {
		err = errors.New("the provider's metadata has no introspection_endpoint with https")
	}
	if err != nil {
		return nil, "", v.reportUnavailable(err)
	}
	v.endpoint = metadata.Introspection
	v.tokens = provider.VerifierContext(ctx, v.newChecks())
	return v.tokens, v.endpoint, nil
}

// newChecks returns the configuration of go-oidc, which checks the signature, the issuer, the audience and the time.
func (v *Verifier) newChecks() *oidc.Config {
	c := &oidc.Config{ClientID: v.cfg.Audience}
	//defence:token-signature instead []string{"", "none", "None", "HS256", oidc.RS256, oidc.ES256}
	c.SupportedSigningAlgs = algorithms
	//defence:token-signature instead true
	c.InsecureSkipSignatureCheck = false
	//defence:token-issuer instead true
	c.SkipIssuerCheck = false
	//defence:login-audience instead true
	c.SkipClientIDCheck = false
	//defence:token-time instead true
	c.SkipExpiryCheck = false
	return c
}

// boundedTransport bounds the rate of requests, and the size of answers.
type boundedTransport struct {
	next  http.RoundTripper
	limit *rate.Limiter
}

var errTooMany = errors.New("too many requests to the identity provider: try again in some seconds")

// RoundTrip implements http.RoundTripper.
func (b *boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	// Each token with an unknown key causes a request, and forged ones cost their sender little.
	//defence:login-fetches
	if !b.limit.Allow() {
		return nil, errTooMany
	}
	resp, err := b.next.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}
