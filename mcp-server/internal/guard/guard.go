// Package guard decides which clients may use the MCP endpoint.
//
// Threat: a web page in the user's browser can send requests to 127.0.0.1, even under the page's host name if that
// resolves to 127.0.0.1 (DNS rebinding). Another user of the machine can connect as well.
//
// Contract: on every address the Host must be an allowed one, and an Origin must match the Host or be an allowed one. A
// request needs the bearer token if one is set. Without a token, only connections of the owner and root are accepted
// (see Listener). Requests from other machines get only the paths that are meant for them (see SplitRequests).
package guard

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/addresslimit"
)

// Config configures a Guard.
type Config struct {
	// AllowedHosts are host names that are allowed besides localhost, 127.0.0.1 and [::1]. If a name has a port, the Host
	// must have the same port.
	AllowedHosts []string
	// Token is the bearer token. If empty, the operator has no token.
	Token secret.Value
	// Required means that a token is required even if Token is empty: then only tenants have tokens.
	Required bool
	// Tenant returns the owner of a token other than Token, and the handler of the owner's requests. The handler is nil if
	// the token is unknown. Tenant takes the same time for every token.
	Tenant func(token string) (name string, own http.Handler)
	// Login verifies an access token of an identity provider, or of package authserver. address is the sender's: see
	// addresslimit.AddressOf. The error wraps auth.ErrInvalidToken if the token is not valid. If nil, there are no logins.
	Login func(ctx context.Context, token, address string) (Login, error)
	// CanRevoke means that Login also refuses revoked tokens. Then a stream ends within two seconds of the revocation, or
	// if Login cannot verify its token.
	CanRevoke bool
	// MetadataURL is the URL of the metadata that clients need for a login.
	MetadataURL string
	// PublicHost is the value of the Host header of clients on other machines, with a port unless it is 443. If empty,
	// there are no such clients.
	PublicHost string
	// AllowedOrigins are origins of other web pages that may use the MCP endpoint. They need a token like all clients.
	AllowedOrigins []string
	// Page is the path of a page that any web page may link to, because its content is the same for all users. If empty,
	// there is no such page.
	Page string
	// LoginPage is the path of a page that any web page may link to with a query, because a request only shows a form. If
	// empty, there is no such page.
	LoginPage string
}

// Login is a verified access token.
type Login struct {
	// Subject identifies the user, in a form without spaces.
	Subject string
	// Expires is the end of the token.
	Expires time.Time
	// Tenant is the name of the user's tenant. Handler serves its requests.
	Tenant  string
	Handler http.Handler
}

// Guard checks requests. Create it with New.
type Guard struct {
	cfg         Config
	hosts       []string
	token       [sha256.Size]byte
	hasOwnToken bool // the operator has a token
	needsToken  bool // requests need the operator's token or a tenant's
}

// New returns a guard.
func New(cfg Config) *Guard {
	g := &Guard{
		cfg: cfg, hosts: []string{"localhost", "127.0.0.1", "::1"}, hasOwnToken: !cfg.Token.IsEmpty(),
		needsToken: !cfg.Token.IsEmpty() || cfg.Required, token: sha256.Sum256([]byte(cfg.Token.Reveal())),
	}
	for _, h := range cfg.AllowedHosts {
		g.hosts = append(g.hosts, strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(h, "["), "]")))
	}
	return g
}

// SplitRequests passes requests whose Host is allowed and that come from no foreign web page. Requests from other
// machines and from allowed web pages go to public, which may be nil: then it refuses them. Other requests go to local.
func (g *Guard) SplitRequests(local, public http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Deferred before the checks, so that a refused request also costs the connection its place.
		if c, ok := r.Context().Value(connKey{}).(*limitedConn); ok {
			defer c.endRequest()
		}
		outside := g.isFromOutside(r)
		foreign := public != nil && g.isAllowedOrigin(r)
		switch {
		//defence:mcp-host
		case !g.isOwnHost(r.Host) && !g.isPublicHost(r.Host), outside && public == nil:
			http.Error(w, "Forbidden: this Host is not allowed; MCP_ALLOWED_HOSTS can allow it", http.StatusForbidden)
		//defence:mcp-origin
		case !isOwnOrigin(r) && !g.isPageOpening(r) && !foreign:
			http.Error(w, "Forbidden: requests from other web pages are not allowed", http.StatusForbidden)
		case foreign:
			serveAcrossOrigins(w, r, public)
		//defence:public-paths
		case outside:
			public.ServeHTTP(w, r)
		default:
			local.ServeHTTP(w, r)
		}
	})
}

// isPublicHost reports whether a Host header is that of clients on other machines.
func (g *Guard) isPublicHost(host string) bool {
	return g.cfg.PublicHost != "" && strings.EqualFold(strings.TrimSuffix(host, ":443"), g.cfg.PublicHost)
}

// forwarded are the headers of proxies and tunnels. They only take rights away, so a client may forge them.
var forwarded = [...]string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port",
	"X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip", "Fly-Client-Ip", "Via"}

// isFromOutside reports whether a request comes from another machine, through the proxy that serves the public host.
func (g *Guard) isFromOutside(r *http.Request) bool {
	if g.cfg.PublicHost == "" {
		return false
	}
	// Some tunnels replace the Host by localhost.
	return g.isPublicHost(r.Host) || slices.ContainsFunc(forwarded[:], func(name string) bool {
		return len(r.Header.Values(name)) > 0
	})
}

// isAllowedOrigin reports whether a request comes from a web page of Config.AllowedOrigins.
func (g *Guard) isAllowedOrigin(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	// Without a token, every allowed page would be the operator.
	return g.needsToken && len(origins) == 1 && slices.Contains(g.cfg.AllowedOrigins, origins[0])
}

// serveAcrossOrigins serves a request of an allowed web page, and lets the page read the response.
func serveAcrossOrigins(w http.ResponseWriter, r *http.Request, next http.Handler) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, Mcp-Protocol-Version, WWW-Authenticate")
	h.Add("Vary", "Origin")
	if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
		h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
		h.Set("Access-Control-Allow-Headers",
			"Authorization, Content-Type, Last-Event-Id, Mcp-Session-Id, Mcp-Protocol-Version, Mcp-Method, Mcp-Name")
		h.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	next.ServeHTTP(w, r)
}

// RequireBearer passes requests with the token, and takes the same time for every token. A session is bound to the
// token of its first request. If no token is required, every request passes.
func (g *Guard) RequireBearer(next http.Handler) http.Handler {
	if !g.needsToken {
		return requireAdmission("", next)
	}
	// The SDK's check comes second. It binds a session to a user.
	verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: "bearer"}, nil
	}
	options := &auth.RequireBearerTokenOptions{AllowMissingExpiration: true}
	bound := requireAdmission("", auth.RequireBearerToken(verify, options)(next))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.IsAuthorized(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="codeforge"`)
			want := "this server requires the bearer token MCP_AUTH_TOKEN"
			if g.cfg.Tenant != nil {
				want += ", or one of MCP_TOKENS_FILE"
			}
			http.Error(w, want, http.StatusUnauthorized)
			return
		}
		bound.ServeHTTP(w, r)
	})
}

// RequireClient is RequireBearer for the MCP endpoint, which tenants use too. A tenant's requests go to the handler
// from Config.Tenant or Config.Login.
func (g *Guard) RequireClient(next http.Handler) http.Handler {
	operator := g.RequireBearer(next)
	if g.cfg.Tenant == nil {
		return operator
	}
	login := g.requireLogin()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token, ok := bearerOf(r); ok {
			if name, own := g.cfg.Tenant(token); own != nil {
				requireAdmission(name, own).ServeHTTP(w, r)
				return
			}
		}
		if g.cfg.Login == nil || g.hasToken(r) {
			operator.ServeHTTP(w, r)
			return
		}
		login.ServeHTTP(w, r)
	})
}

// loginKey is the key of a Login in auth.TokenInfo.Extra.
const loginKey = "login"

// requireLogin passes requests with an access token of the identity provider to the handler of its tenant. The SDK's
// middleware tells other clients where to log in, and binds a session to its user.
func (g *Guard) requireLogin() http.Handler {
	verify := func(ctx context.Context, token string, r *http.Request) (*auth.TokenInfo, error) {
		l, err := g.cfg.Login(ctx, token, addresslimit.AddressOf(r))
		if err != nil {
			return nil, err
		}
		return &auth.TokenInfo{UserID: l.Subject, Expiration: l.Expires, Extra: map[string]any{loginKey: l}}, nil
	}
	serve := func(w http.ResponseWriter, r *http.Request) {
		l := auth.TokenInfoFromContext(r.Context()).Extra[loginKey].(Login)
		address := addresslimit.AddressOf(r) // now, because the handler changes the headers while the stream is watched
		// Calls of a protocol without sessions belong to a machine, and all users share the proxy's.
		r.RemoteAddr = l.Subject
		// Streams for messages of the server have no other end. A call may end after its token.
		if r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen" {
			ctx, cancel := context.WithDeadline(r.Context(), l.Expires)
			defer cancel()
			r = r.WithContext(ctx)
			if g.cfg.CanRevoke {
				token, _ := bearerOf(r)
				var watch sync.WaitGroup
				watch.Go(func() { g.endIfRevoked(ctx, token, address, cancel) })
				defer watch.Wait()
				defer cancel()
			}
		}
		requireAdmission(l.Tenant, l.Handler).ServeHTTP(w, r)
	}
	options := &auth.RequireBearerTokenOptions{ResourceMetadataURL: g.cfg.MetadataURL}
	return auth.RequireBearerToken(verify, options)(http.HandlerFunc(serve))
}

// revokeTime is the interval between checks of the token of a stream.
const revokeTime = time.Second

// endIfRevoked calls end once a stream's token is not valid any more, or cannot be verified. It returns if ctx ends.
func (g *Guard) endIfRevoked(ctx context.Context, token, address string, end func()) {
	for range timing.EachTick(ctx, revokeTime) {
		_, err := g.cfg.Login(ctx, token, address)
		//defence:client-stream
		if err != nil {
			end()
		}
	}
}

// requireAdmission passes requests whose connection AdmitConn accepts.
func requireAdmission(tenant string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !AdmitConn(r.Context(), tenant) {
			w.Header().Set("Connection", "close")
			http.Error(w, TooMany, http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// TooMany is the answer to a request that AdmitConn refuses.
const TooMany = "too many connections: use fewer, and reuse them"

func bearerOf(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

// IsAuthorized reports whether RequireBearer passes a request.
func (g *Guard) IsAuthorized(r *http.Request) bool {
	//defence:mcp-bearer permits
	return !g.needsToken || g.hasToken(r)
}

func (g *Guard) hasToken(r *http.Request) bool {
	token, ok := bearerOf(r)
	return g.IsToken(token) && ok
}

// IsToken reports whether a text is the token. It is always false if no token is set. It compares hashes, so that the
// time reveals neither a correct prefix of the token nor its length.
func (g *Guard) IsToken(text string) bool {
	sum := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1 && g.hasOwnToken
}

// isPageOpening reports whether a request only opens one of the pages in a new tab or window.
func (g *Guard) isPageOpening(r *http.Request) bool {
	isPage := g.cfg.Page != "" && r.URL.Path == g.cfg.Page && r.URL.RawQuery == "" ||
		g.cfg.LoginPage != "" && r.URL.Path == g.cfg.LoginPage
	// Only a navigation of a whole tab counts. A frame or a fetch would still serve the foreign page.
	return isPage && r.Method == http.MethodGet &&
		len(r.Header.Values("Origin")) == 0 &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// isOwnHost reports whether a Host header names this server.
func (g *Guard) isOwnHost(host string) bool {
	host = strings.ToLower(host)
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	} else {
		name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	}
	// Only configured names may have a port; the first three entries are the local names.
	return slices.Contains(g.hosts, name) || slices.Contains(g.hosts[3:], host)
}

// isOwnOrigin reports whether a request comes from this server's host and port, or not from a web page at all.
func isOwnOrigin(r *http.Request) bool {
	// Browsers send Sec-Fetch-Site even with requests that have no Origin.
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default:
		return false
	}
	origins := r.Header.Values("Origin")
	switch len(origins) {
	case 0:
		return true
	case 1:
		u, err := url.Parse(origins[0])
		return err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, r.Host)
	}
	// Several Origin headers come from no browser, and checking only one of them would let the other decide.
	return false
}
