package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/time/rate"

	"github.com/codeforge-mcp/codeforge/internal/consolestyle"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/accesstoken"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/authserver"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/endpoint"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/guard"
)

// openLogins adds clients of other machines and their logins to the configuration of the guard. It returns the handler
// of the metadata for a login, or nil without logins. With an identity provider, its tokens are the logins. Without
// one, mcp-server is the authorization server itself.
func (d *daemon) openLogins(checks *guard.Config) (metadata http.Handler, err error) {
	s := d.settings
	checks.PublicHost = strings.TrimPrefix(s.PublicURL, "https://")
	checks.AllowedOrigins = s.MCPAllowedOrigins
	issuer := s.OIDC.Issuer
	switch {
	case issuer != "":
		err = d.useProvider(checks)
	// Without tenants, a login would be the operator's.
	case s.PublicURL != "" && d.tenants != nil:
		issuer = s.PublicURL
		err = d.openAuthServer(checks)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	checks.MetadataURL = s.PublicURL + endpoint.MetadataPath + "/mcp"
	return auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: s.PublicURL + "/mcp", AuthorizationServers: []string{issuer}, ScopesSupported: s.OIDC.Scopes,
		BearerMethodsSupported: []string{"header"}, ResourceName: "CodeForge",
	}), nil
}

// useProvider accepts access tokens of the identity provider.
func (d *daemon) useProvider(checks *guard.Config) error {
	s := d.settings
	verifier, err := accesstoken.New(accesstoken.Config{
		Issuer: s.OIDC.Issuer, Audience: s.OIDC.Audience, Claim: s.OIDC.Claim, CAFile: s.OIDC.CAFile,
		ClientID: s.OIDC.IntrospectionID, SecretFile: s.OIDC.IntrospectionSecretFile, Log: d.log,
	})
	if err != nil {
		return err
	}
	checks.CanRevoke = s.OIDC.IntrospectionID != ""
	unknown := &rate.Sometimes{Interval: time.Second}
	checks.Login = func(ctx context.Context, token, address string) (guard.Login, error) {
		l, err := verifier.Verify(ctx, token, address)
		if err != nil {
			return guard.Login{}, err
		}
		found := d.tenants.findLogin(l.Names)
		if found == nil {
			// The operator needs the values for the tokens file.
			unknown.Do(func() {
				d.log.Warn("refused a login of no tenant, or of several", logline.Tag("mcp"), slog.Any("logins", l.Names))
			})
			return guard.Login{}, fmt.Errorf("%w: this login belongs to no tenant, or to several", auth.ErrInvalidToken)
		}
		return guard.Login{
			Subject: hashSubject(l.Subject), Expires: l.Expires, Tenant: found.Name, Handler: d.tenants.serveTenant(found),
		}, nil
	}
	return nil
}

// openAuthServer opens the authorization server, whose state is in Postgres or in a file beside the tenants' skills.
func (d *daemon) openAuthServer(checks *guard.Config) (err error) {
	db := d.database
	if db == nil {
		if db, err = database.OpenLogins(d.flags.tenants); err != nil {
			return err
		}
	}
	d.logins = authserver.New(authserver.Config{
		Issuer: d.settings.PublicURL, DB: db, Style: consolestyle.Sheet(), Log: d.log,
		FindTenant: d.tenants.findProof, HasTenant: d.tenants.hasProof, ListAPIs: d.tenants.listAPIs,
	})
	checks.CanRevoke, checks.LoginPage = true, authserver.AuthorizePath
	checks.Login = func(ctx context.Context, token, _ string) (guard.Login, error) {
		a, err := d.logins.Verify(ctx, token)
		if err != nil {
			return guard.Login{}, err
		}
		found := d.tenants.findName(a.Tenant)
		if found == nil { // removed since Verify
			return guard.Login{}, auth.ErrInvalidToken
		}
		return guard.Login{
			Subject: "login-" + a.Login, Expires: a.Expires, Tenant: a.Tenant, Handler: d.tenants.serveTenant(found),
		}, nil
	}
	return nil
}

// hashSubject returns a name for a user that reveals nothing about the user, and has no spaces.
func hashSubject(subject string) string {
	sum := sha256.Sum256([]byte(subject))
	return "login-" + hex.EncodeToString(sum[:16])
}

// findProof returns the tenant of a token, and a proof of the token for hasProof. It returns "" for an unknown token.
func (t *tenantSet) findProof(token string) (name, proof string) {
	sum := sha256.Sum256([]byte(token))
	found := t.findTenant(sum)
	if found == nil {
		return "", ""
	}
	return found.Name, proofOf(sum)
}

// proofOf returns a text that reveals nothing about a token with this hash, which may be in the tokens file.
func proofOf(hash [sha256.Size]byte) string {
	sum := sha256.Sum256(hash[:])
	return hex.EncodeToString(sum[:])
}

// hasProof reports whether a tenant exists and still has the token of a proof. An empty proof needs no token.
func (t *tenantSet) hasProof(name, proof string) bool {
	found := t.findName(name)
	if found == nil || proof == "" {
		return found != nil
	}
	for _, h := range found.Hashes {
		if proofOf(h) == proof {
			return true
		}
	}
	return false
}

// listAPIs returns the APIs that a tenant may use. Nil means all.
func (t *tenantSet) listAPIs(name string) []string {
	if found := t.findName(name); found != nil {
		return found.APIs
	}
	return []string{}
}

// findName returns the tenant with a name, or nil. It also finds the tenant while the server stops: a renewal would
// otherwise end its login.
func (t *tenantSet) findName(name string) *tenantState {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.list {
		if c.Name == name {
			return c
		}
	}
	return nil
}
