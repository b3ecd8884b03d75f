package authserver

import (
	"encoding/json"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/addresslimit"
)

// Bounds of a registration. maxUnused bounds the clients without a login: at one registration each second, a client has
// a quarter of an hour for its first login.
const (
	maxRedirects = 10
	maxRedirect  = 1000 // bytes
	maxName      = 80   // bytes
	maxUnused    = 1000
)

// grantTypes are the ways to a token.
var grantTypes = []string{"authorization_code", "refresh_token"}

// client is a registered client, or one with a document. Its name is the client's claim.
type client struct {
	// ID is random, or the URL of the client's document.
	ID        string
	Name      string
	Redirects []string
}

// metadata is the part of a client's metadata that has a use here (RFC 7591).
type metadata struct {
	Redirects     []string `json:"redirect_uris"`
	Name          string   `json:"client_name"`
	ResponseTypes []string `json:"response_types"`
	GrantTypes    []string `json:"grant_types"`
}

// findMistake returns the error of RFC 7591 for metadata that no client may have, and its text. Both are "" for others.
func (m *metadata) findMistake() (code, text string) {
	//defence:client-metadata
	if len(m.Redirects) == 0 || len(m.Redirects) > maxRedirects || slices.ContainsFunc(m.Redirects, isBadRedirect) {
		return "invalid_redirect_uri",
			"want 1 to 10 redirect_uris with https, or with http and a loopback host, without a fragment"
	}
	//defence:client-metadata
	if len(m.ResponseTypes) > 0 && !slices.Contains(m.ResponseTypes, "code") ||
		len(m.GrantTypes) > 0 && !slices.Contains(m.GrantTypes, grantTypes[0]) {
		return "invalid_client_metadata", "want response type code, and grant type " + grantTypes[0]
	}
	return "", ""
}

// registerClient registers a client (RFC 7591). Metadata without use here is ignored.
func (s *Server) registerClient(w http.ResponseWriter, r *http.Request) {
	//defence:client-flood
	if s.registrations.IsExceeded(addresslimit.AddressOf(r)) {
		refuseRequest(w, http.StatusTooManyRequests, "slow_down", "too many registrations")
		return
	}
	var in metadata
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || kind != "application/json" {
		refuseRequest(w, http.StatusBadRequest, "invalid_client_metadata", "want a JSON object of at most 16 KiB")
		return
	}
	if code, text := in.findMistake(); code != "" {
		refuseRequest(w, http.StatusBadRequest, code, text)
		return
	}
	c := client{newSecret(), cleanName(in.Name), in.Redirects}
	at, err := s.store.addClient(r.Context(), c)
	if err != nil {
		s.refuseForFailure(w, err)
		return
	}
	// All clients are public: a secret of a client that anyone may register would prove nothing.
	rpc.WriteAnswer(w, http.StatusCreated, map[string]any{
		"client_id": c.ID, "client_id_issued_at": at.Unix(), "client_name": c.Name, "redirect_uris": c.Redirects,
		"token_endpoint_auth_method": "none", "grant_types": grantTypes, "response_types": []string{"code"},
	})
}

// cleanName returns a client's name for pages and terminals: one line of visible characters.
func cleanName(name string) string {
	//defence:client-name
	name = strings.TrimSpace(safetext.OneLine(safetext.CutText(name, maxName, "...")))
	if name == "" {
		return "a client without a name"
	}
	return name
}

// isBadRedirect reports whether no client may register a redirect URI. Schemes such as javascript and those of apps are
// refused, because any page or app can claim them.
func isBadRedirect(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return true
	}
	//defence:client-scheme
	if u.Scheme != "https" && !isLoopback(u) {
		return true
	}
	odd := strings.ContainsFunc(text, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`"'<>\^{}|`+"`", c)
	})
	//defence:client-url
	return odd || len(text) > maxRedirect || u.User != nil || u.Opaque != "" || strings.Contains(text, "#") ||
		!isHostname(u.Hostname())
}

// isHostname reports whether a text is a host name or an address that a page can show, and that is safe in a header.
func isHostname(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return !strings.Contains(name, "%")
	}
	return name != "" && strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

// isLoopback reports whether a redirect URI leads to the machine of the browser (RFC 8252).
func isLoopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

// hasRedirect reports whether a client has registered a redirect URI, character by character. Only the port of a
// loopback host is free, because a program on the user's machine cannot choose it beforehand.
func (c client) hasRedirect(text string) bool {
	return slices.ContainsFunc(c.Redirects, func(known string) bool {
		return text == known || !isBadRedirect(text) && dropPort(text) != "" && dropPort(text) == dropPort(known)
	})
}

// dropPort returns a redirect URI of a loopback host without its port. It returns "" for other URIs.
func dropPort(text string) string {
	u, err := url.Parse(text)
	if err != nil || !isLoopback(u) {
		return ""
	}
	_, rest, _ := strings.Cut(text, u.Host)
	return u.Hostname() + rest
}
