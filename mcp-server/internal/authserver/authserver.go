// Package authserver is the authorization server for hosted clients. It serves the public origin if no identity
// provider is set: OAuth 2.1 with codes, PKCE, dynamic registration, documents of clients and renewed tokens.
//
// Threat: everyone on the internet reaches these paths, and registers clients. A web page in the user's browser sends
// forms, opens links and embeds pages. A client lies about its name, or names a document inside the user's network. A
// code or a token is stolen.
//
// Contract: only a person with a token of a tenant, or with a one-time code from the operator's socket, makes a login.
// The login belongs to this tenant, to one client and to one redirect URI. A one-time code works only for clients that
// lead back to hosts that the operator named for it. Codes for clients work once and for a minute, and only with the
// verifier of their request. All codes and tokens are random, and the database has only their SHA-256, so there is no
// signing key. A second use of such a code or of a refresh token ends its login. The pages need no script.
package authserver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"golang.org/x/time/rate"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/addresslimit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
)

const (
	// Path is the prefix of the paths. MetadataPath is the path of the metadata (RFC 8414).
	Path         = "/oauth/"
	MetadataPath = "/.well-known/oauth-authorization-server"
	// AuthorizePath is the page that clients open in the user's browser.
	AuthorizePath = Path + "authorize"

	// oneTimeTime, approveTime and codeTime bound a one-time code, the pause before a decision, and a code for a client.
	oneTimeTime = 10 * time.Minute
	approveTime = 10 * time.Minute
	codeTime    = time.Minute
	// accessTime bounds an access token. A login ends loginTime after its last renewal.
	accessTime = time.Hour
	loginTime  = 30 * 24 * time.Hour

	// maxBody bounds a request's body, in bytes. bodyTime bounds its arrival.
	maxBody  = 16 << 10
	bodyTime = 10 * time.Second
)

// Config configures a Server.
type Config struct {
	// Issuer is the public origin, without a slash at its end. The endpoint is Issuer/mcp.
	Issuer string
	DB     *database.DB
	// FindTenant returns the tenant of a token, and a proof of this token for HasTenant. The tenant is empty if the token
	// is unknown. FindTenant takes the same time for every token.
	FindTenant func(token string) (tenant, proof string)
	// HasTenant reports whether a tenant exists and still has the token of a proof. An empty proof needs no token.
	HasTenant func(tenant, proof string) bool
	// ListAPIs returns the APIs that a tenant may use. Nil means all.
	ListAPIs func(tenant string) []string
	// Style is the style sheet of the pages.
	Style []byte
	Log   *slog.Logger
}

// Server is the handler of MetadataPath and of the paths below Path. Create it with New.
type Server struct {
	cfg   Config
	store store
	paths *http.ServeMux
	// Of one address, requests are bounded more tightly than attempts to sign in and registrations.
	requests, attempts, registrations *addresslimit.Limit
	// documents reads the documents of clients.
	documents *http.Client
}

// New returns a server.
func New(cfg Config) *Server {
	s := &Server{
		cfg: cfg, store: store{cfg.DB, time.Now}, paths: http.NewServeMux(),
		requests:      addresslimit.New(5, 100, 1000),
		attempts:      addresslimit.New(rate.Every(6*time.Second), 10, 20),
		registrations: addresslimit.New(rate.Every(time.Minute), 10, 1),
		documents:     newDocumentClient(),
	}
	s.paths.HandleFunc("GET "+MetadataPath, s.serveMetadata)
	s.paths.HandleFunc("GET "+AuthorizePath, s.startLogin)
	s.paths.HandleFunc("POST "+Path+"login", s.signIn)
	s.paths.HandleFunc("POST "+Path+"decide", s.decideRequest)
	s.paths.HandleFunc("POST "+Path+"register", s.registerClient)
	s.paths.HandleFunc("POST "+Path+"token", s.issueToken)
	s.paths.HandleFunc("POST "+Path+"revoke", s.revokeToken)
	s.paths.HandleFunc("GET "+Path+"style.css", s.serveStyle)
	return s
}

// ServeHTTP serves the paths.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	//defence:client-cache
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if s.requests.IsExceeded(addresslimit.AddressOf(r)) {
		refuseRequest(w, http.StatusTooManyRequests, "slow_down", "too many requests")
		return
	}
	// A slow body would keep its connection for as long as the sender likes.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // not of a test's recorder
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	s.paths.ServeHTTP(w, r)
}

// serveMetadata answers with the metadata (RFC 8414).
func (s *Server) serveMetadata(w http.ResponseWriter, _ *http.Request) {
	at := func(name string) string { return s.cfg.Issuer + Path + name }
	rpc.WriteAnswer(w, http.StatusOK, map[string]any{
		"issuer":                                         s.cfg.Issuer,
		"authorization_endpoint":                         at("authorize"),
		"token_endpoint":                                 at("token"),
		"registration_endpoint":                          at("register"),
		"revocation_endpoint":                            at("revoke"),
		"response_types_supported":                       []string{"code"},
		"response_modes_supported":                       []string{"query"},
		"grant_types_supported":                          grantTypes,
		"code_challenge_methods_supported":               []string{"S256"},
		"token_endpoint_auth_methods_supported":          []string{"none"},
		"revocation_endpoint_auth_methods_supported":     []string{"none"},
		"authorization_response_iss_parameter_supported": true,
		"client_id_metadata_document_supported":          true,
	})
}

func (s *Server) serveStyle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "max-age=3600")
	_, _ = w.Write(s.cfg.Style) // an error means that the browser has gone
}

// resourceURL is the URL of the endpoint, the only resource for which there are tokens (RFC 8707).
func (s *Server) resourceURL() string { return s.cfg.Issuer + "/mcp" }

// isOtherResource reports whether a request asks for a token of another server.
func (s *Server) isOtherResource(v url.Values) bool {
	return v.Get("resource") != "" && v.Get("resource") != s.resourceURL()
}

// Access is a verified access token.
type Access struct {
	// Login is the ID of the login.
	Login   string
	Tenant  string
	Expires time.Time
}

// Verify verifies an access token. The error wraps auth.ErrInvalidToken if the token is unknown, has expired or was
// revoked, or if its tenant has ended.
func (s *Server) Verify(ctx context.Context, token string) (Access, error) {
	a, proof, err := s.store.findAccess(ctx, token)
	if errors.Is(err, errUnknown) {
		return Access{}, auth.ErrInvalidToken
	}
	if err != nil {
		s.logFailure(err)
		return Access{}, errors.New("the database of logins cannot be used now")
	}
	// A tenant's token that was removed from the file must not live on in a login.
	//defence:client-tenant
	if !s.cfg.HasTenant(a.Tenant, proof) {
		return Access{}, auth.ErrInvalidToken
	}
	return a, nil
}

// NewOneTimeCode returns a code with which a person signs in once as a tenant, within ten minutes. The code works for
// clients that lead back to one of these hosts. The host localhost stands for each program on the person's device.
func (s *Server) NewOneTimeCode(ctx context.Context, tenant string, hosts []string) (code string, err error) {
	if !s.cfg.HasTenant(tenant, "") {
		return "", errors.New("there is no such tenant")
	}
	isBad := func(host string) bool { return !isHostname(host) }
	//defence:client-bound
	if len(hosts) == 0 || len(hosts) > maxRedirects || slices.ContainsFunc(hosts, isBad) {
		return "", errors.New("want the hosts of one client")
	}
	code = newOneTimeCode()
	return code, s.store.addOneTimeCode(ctx, code, tenant, strings.ToLower(strings.Join(hosts, " ")))
}

// ListLogins returns the logins of clients, the latest first.
func (s *Server) ListLogins(ctx context.Context) ([]Login, error) { return s.store.listLogins(ctx) }

// RevokeLogin ends a login. Its tokens are invalid at once. The error is ErrNoClient if there is no such login.
func (s *Server) RevokeLogin(ctx context.Context, id string) error {
	if err := s.store.removeLogin(ctx, id); err != nil {
		return err
	}
	s.logLogin(slog.LevelInfo, "the operator ended a login", slog.String("login", id))
	return nil
}

// EndUnownedLogins ends the logins of tenants that HasTenant does not know any more, and those of removed tokens. Call
// it after each change of the tenants: a later tenant with the name of a removed one must not find logins. A nil Server
// has none.
func (s *Server) EndUnownedLogins(ctx context.Context) error {
	if s == nil {
		return nil
	}
	owners, err := s.store.listOwners(ctx)
	if err != nil {
		return err
	}
	for _, o := range owners {
		//defence:client-unowned
		if !s.cfg.HasTenant(o.tenant, o.proof) {
			if err := s.store.removeOwned(ctx, o); err != nil {
				return err
			}
			s.logLogin(slog.LevelInfo, "ended the logins of a removed tenant or token", slog.String("tenant", o.tenant))
		}
	}
	return nil
}

// Close closes the database, unless it is shared.
func (s *Server) Close() error {
	if s == nil || s.cfg.DB.Postgres {
		return nil
	}
	return s.cfg.DB.Close()
}

func (s *Server) logLogin(level slog.Level, text string, attrs ...slog.Attr) {
	s.cfg.Log.LogAttrs(context.Background(), level, text, append(attrs, logline.Tag("login"))...)
}

func (s *Server) logFailure(err error) {
	s.logLogin(slog.LevelError, "the database of logins cannot be used", slog.String("error",
		database.HideAddress(err).Error()))
}

// refuseRequest answers with an error of RFC 6749 or RFC 7591.
func refuseRequest(w http.ResponseWriter, status int, code, text string) {
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "10")
	}
	rpc.WriteAnswer(w, status, map[string]string{"error": code, "error_description": text})
}

// refuseForFailure answers a program if the database does not answer.
func (s *Server) refuseForFailure(w http.ResponseWriter, err error) {
	s.logFailure(err)
	refuseRequest(w, http.StatusServiceUnavailable, "temporarily_unavailable", "the database of logins cannot be used now")
}
