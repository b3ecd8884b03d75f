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

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/accesstoken"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/endpoint"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/guard"
)

// openLogins adds clients of other machines and their logins to the configuration of the guard. It returns the handler
// of the metadata for a login, or nil without an identity provider.
func (d *daemon) openLogins(checks *guard.Config) (metadata http.Handler, err error) {
	s := d.settings
	checks.PublicHost = strings.TrimPrefix(s.PublicURL, "https://")
	checks.AllowedOrigins = s.MCPAllowedOrigins
	if s.OIDC.Issuer == "" {
		return nil, nil
	}
	verifier, err := accesstoken.New(accesstoken.Config{
		Issuer: s.OIDC.Issuer, Audience: s.OIDC.Audience, Claim: s.OIDC.Claim, CAFile: s.OIDC.CAFile, Log: d.log,
	})
	if err != nil {
		return nil, err
	}
	unknown := &rate.Sometimes{Interval: time.Second}
	checks.MetadataURL = s.PublicURL + endpoint.MetadataPath + "/mcp"
	checks.Login = func(ctx context.Context, token string) (guard.Login, error) {
		l, err := verifier.Verify(ctx, token)
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
	return auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: s.PublicURL + "/mcp", AuthorizationServers: []string{s.OIDC.Issuer}, ScopesSupported: s.OIDC.Scopes,
		BearerMethodsSupported: []string{"header"}, ResourceName: "CodeForge",
	}), nil
}

// hashSubject returns a name for a user that reveals nothing about the user, and has no spaces.
func hashSubject(subject string) string {
	sum := sha256.Sum256([]byte(subject))
	return "login-" + hex.EncodeToString(sum[:16])
}
