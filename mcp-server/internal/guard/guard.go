// Package guard decides which clients may use the MCP endpoint.
//
// Threat: a web page open in the user's browser can send requests to 127.0.0.1, even under a host name of its own that
// resolves to it (DNS rebinding); another user of the machine can connect to it. So on every address the Host must be
// an allowed one, an Origin must match the Host, and a request needs the bearer token if one is set. Without a token
// only connections of the owner and root are accepted (see Listener).
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

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// Config configures a Guard.
type Config struct {
	// AllowedHosts are host names allowed in addition to localhost, 127.0.0.1 and [::1]. If one has a port, the Host
	// must have it too.
	AllowedHosts []string
	// Token is the bearer token. Empty: none is required.
	Token secret.Value
	// Required means that a token is required even if Token is empty: then only tenants have one.
	Required bool
	// Tenant returns, for a token other than Token, whose it is and where its requests go; nil if it is nobody's. It takes
	// the same time for every token.
	Tenant func(token string) (name string, own http.Handler)
	// Page is the path of a page that a link of any web page may open, because it is the same for everybody. Empty: there
	// is none.
	Page string
}

// Guard checks requests. Make it with New.
type Guard struct {
	hosts  []string
	token  [sha256.Size]byte
	has    bool // there is a token
	needs  bool // one is required
	tenant func(token string) (name string, own http.Handler)
	page   string
}

// New makes a guard.
func New(cfg Config) *Guard {
	g := &Guard{
		hosts: []string{"localhost", "127.0.0.1", "::1"}, has: !cfg.Token.Empty(),
		needs: !cfg.Token.Empty() || cfg.Required, tenant: cfg.Tenant, page: cfg.Page,
	}
	for _, h := range cfg.AllowedHosts {
		g.hosts = append(g.hosts, strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(h, "["), "]")))
	}
	g.token = sha256.Sum256([]byte(cfg.Token.Reveal()))
	return g
}

// Local passes requests whose Host is allowed and that do not come from a foreign web page.
func (g *Guard) Local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			defer c.served()
		}
		switch {
		//defence:mcp-host
		case !g.ourHost(r.Host):
			http.Error(w, "Forbidden: this Host is not allowed; MCP_ALLOWED_HOSTS can allow it", http.StatusForbidden)
		//defence:mcp-origin
		case !ownOrigin(r) && !g.opens(r):
			http.Error(w, "Forbidden: requests from other web pages are not allowed", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Bearer passes requests that carry the token, and takes the same time whatever they carry. Sessions are bound to the
// token they began with. Without a token in the configuration every request passes.
func (g *Guard) Bearer(next http.Handler) http.Handler {
	if !g.needs {
		return admitting("", next)
	}
	// The SDK's own check comes second, since it is what binds a session to a user.
	verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: "bearer"}, nil
	}
	options := &auth.RequireBearerTokenOptions{AllowMissingExpiration: true}
	bound := admitting("", auth.RequireBearerToken(verify, options)(next))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.Passes(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="codeforge"`)
			want := "this server requires the bearer token MCP_AUTH_TOKEN"
			if g.tenant != nil {
				want += ", or one of MCP_TOKENS_FILE"
			}
			http.Error(w, want, http.StatusUnauthorized)
			return
		}
		bound.ServeHTTP(w, r)
	})
}

// Clients is Bearer for the MCP endpoint, which tenants have too: their requests go to where Config.Tenant says.
func (g *Guard) Clients(next http.Handler) http.Handler {
	operator := g.Bearer(next)
	if g.tenant == nil {
		return operator
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token, ok := bearer(r); ok {
			if name, own := g.tenant(token); own != nil {
				admitting(name, own).ServeHTTP(w, r)
				return
			}
		}
		operator.ServeHTTP(w, r)
	})
}

// admitting passes requests whose connection may stay.
func admitting(tenant string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Admit(r.Context(), tenant) {
			w.Header().Set("Connection", "close")
			http.Error(w, TooMany, http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// TooMany is what a request is told that Admit refuses.
const TooMany = "too many connections: use fewer, and keep them"

// bearer is the token that a request carries.
func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

// Passes reports whether Bearer passes a request.
func (g *Guard) Passes(r *http.Request) bool {
	//defence:mcp-bearer permits
	return !g.needs || g.carriesToken(r)
}

func (g *Guard) carriesToken(r *http.Request) bool {
	token, ok := bearer(r)
	return g.IsToken(token) && ok
}

// IsToken reports whether a text is the token; never, if none is set. It compares hashes, so that the time reveals
// neither how much of the token was right nor its length.
func (g *Guard) IsToken(text string) bool {
	sum := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1 && g.has
}

// opens reports whether a request only opens the page, in a tab or window of its own.
func (g *Guard) opens(r *http.Request) bool {
	return g.page != "" && r.Method == http.MethodGet && r.URL.Path == g.page && r.URL.RawQuery == "" &&
		len(r.Header.Values("Origin")) == 0 &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// ourHost reports whether a Host header names us.
func (g *Guard) ourHost(host string) bool {
	host = strings.ToLower(host)
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	} else {
		name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	}
	return slices.Contains(g.hosts, name) || slices.Contains(g.hosts[3:], host)
}

// ownOrigin reports whether a request does not come from a web page, or comes from one of our own host and port.
func ownOrigin(r *http.Request) bool {
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
	return false
}
