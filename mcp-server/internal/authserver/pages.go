package authserver

import (
	"bytes"
	"cmp"
	"crypto/subtle"
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/addresslimit"
)

// cookieName is the cookie that binds forms to a browser. Its prefix keeps it from other hosts and from plain HTTP.
const cookieName = "__Host-codeforge-login"

//go:embed pages
var pageFiles embed.FS

// pages escapes each value for its place in the page.
var pages = template.Must(template.ParseFS(pageFiles, "pages/*.html"))

// page is the content of a page.
type page struct {
	// Name is the client's claim. Host is the host to which the browser goes back. Neither is verified.
	Name, Host string
	// Site is the host of the client's document, or "".
	Site string
	// Form binds the form to the cookie. Query is the request of the client.
	Form, Query string
	Problem     string
	Tenant      string
	// APIs are the APIs of the tenant, or nil for all.
	APIs []string
}

// HasAllAPIs is for the template, in which an empty list and nil are alike.
func (p page) HasAllAPIs() bool { return p.APIs == nil }

// consentPage is the page whose form leads back to the client.
const consentPage = "consent.html"

// writePage writes a page.
func (s *Server) writePage(w http.ResponseWriter, status int, name string, p page) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, p); err != nil {
		s.logLogin(slog.LevelError, "a page cannot be written", slog.String("error", err.Error()))
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	actions := "'self'"
	// Browsers apply form-action to all redirects after a form, also to those of the client's site.
	if name == consentPage {
		actions += " https: http:"
	}
	//defence:client-frames
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; "+
		"form-action "+actions)
	//defence:client-frames
	h.Set("X-Frame-Options", "DENY")
	// Not no-referrer, with which browsers send the Origin null with the page's own forms.
	//defence:client-cache
	h.Set("Referrer-Policy", "same-origin")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // an error means that the browser has gone
}

func (s *Server) refusePage(w http.ResponseWriter, status int, problem string) {
	s.writePage(w, status, "problem.html", page{Problem: problem})
}

// startLogin is the authorization endpoint. It only shows a form, so any page may lead there.
func (s *Server) startLogin(w http.ResponseWriter, r *http.Request) {
	p, c, err := s.readRequest(r, r.URL.RawQuery)
	if err != nil {
		s.refuseLogin(w, err)
		return
	}
	s.askWho(w, r, http.StatusOK, p, c, r.URL.RawQuery, "")
}

// refuseLogin shows why a login cannot start. It never leads back to the client: anyone may register a client, so this
// page would lead to any site.
func (s *Server) refuseLogin(w http.ResponseWriter, err error) {
	if e, ok := errors.AsType[requestError](err); ok {
		s.refusePage(w, http.StatusBadRequest, string(e))
		return
	}
	s.logFailure(err)
	s.refusePage(w, http.StatusServiceUnavailable, "The database of logins cannot be used now. Try again later.")
}

// requestError is a mistake in a request, in words for the user.
type requestError string

func (e requestError) Error() string { return string(e) }

// maxState bounds the state of a client, in bytes.
const maxState = 2000

// readRequest checks an authorization request.
func (s *Server) readRequest(r *http.Request, query string) (p request, c client, err error) {
	v, err := url.ParseQuery(query)
	if err != nil || hasRepeated(v) {
		return p, c, requestError("The link of the client has a mistake.")
	}
	c, err = s.findClient(r, v.Get("client_id"))
	if errors.Is(err, errUnknown) {
		return p, c, requestError("This client is not registered here. Remove CodeForge in it, and add it again.")
	}
	if err != nil {
		return p, c, err
	}
	p = request{
		client: c.ID, name: c.Name, redirect: v.Get("redirect_uri"),
		state: v.Get("state"), challenge: v.Get("code_challenge"),
	}
	//defence:client-redirect
	if !c.hasRedirect(p.redirect) {
		return p, c, requestError("The client asks to send you to an address that it has not registered.")
	}
	//defence:client-kind
	if v.Get("response_type") != "code" || v.Get("request")+v.Get("request_uri") != "" ||
		cmp.Or(v.Get("response_mode"), "query") != "query" ||
		len(p.state) > maxState || keepPrintable(p.state) != p.state {
		return p, c, requestError("The client asks for a kind of login that does not exist here.")
	}
	//defence:client-challenge
	if v.Get("code_challenge_method") != "S256" || len(p.challenge) != 43 || keepPrintable(p.challenge) == "" {
		return p, c, requestError("The client does not protect its login with PKCE and S256.")
	}
	//defence:client-resource
	if s.isOtherResource(v) {
		return p, c, requestError("The client asks for access to another server.")
	}
	return p, c, nil
}

// askWho shows the form for a token or a code. Its token belongs to the cookie, which is set if it is missing.
func (s *Server) askWho(
	w http.ResponseWriter, r *http.Request, status int, p request, c client, query, problem string,
) {
	cookie := cookieOf(r)
	if cookie == "" {
		cookie = newSecret()
		http.SetCookie(w, newCookie(cookie))
	}
	s.writePage(w, status, "signin.html", page{
		Name: c.Name, Host: hostOf(p.redirect), Form: formToken(cookie), Query: query, Problem: problem,
	})
}

// newCookie returns the cookie with a value, for this host, TLS and the pages of this server only.
func newCookie(value string) *http.Cookie {
	//defence:client-cookie instead &http.Cookie{Name: cookieName, Value: value, Path: "/"}
	return &http.Cookie{
		Name: cookieName, Value: value, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

// cookieOf returns the value of the cookie, or "".
func cookieOf(r *http.Request) string {
	c, err := r.Cookie(cookieName)
	if err != nil || len(c.Value) != len(newSecret()) {
		return ""
	}
	return c.Value
}

// formToken returns the token of the form for the browser with a cookie.
func formToken(cookie string) string { return hashSecret("form " + cookie) }

func hostOf(redirect string) string {
	u, err := url.Parse(redirect)
	if err != nil {
		return ""
	}
	if isLoopback(u) {
		return u.Host + ", a program on your device"
	}
	return u.Host
}

// destinationOf returns the host of a redirect URI as a one-time code names it: localhost for each loopback host.
func destinationOf(redirect string) string {
	u, err := url.Parse(redirect)
	switch {
	case err != nil:
		return ""
	case isLoopback(u):
		return "localhost"
	}
	return strings.ToLower(u.Host)
}

// readOwnForm returns the fields of a form that a page of this server has sent. It answers other requests, and returns
// false for them.
func (s *Server) readOwnForm(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	// A browser sends the Origin with each form.
	//defence:client-origin
	if list := r.Header.Values("Origin"); len(list) != 1 || list[0] != s.cfg.Issuer {
		s.refusePage(w, http.StatusForbidden, "This form comes from another page.")
		return nil, false
	}
	return readForm(w, r)
}

// signIn checks the token or the one-time code, and shows the client and its request.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	v, ok := s.readOwnForm(w, r)
	if !ok {
		return
	}
	cookie := cookieOf(r)
	//defence:client-form
	if cookie == "" || subtle.ConstantTimeCompare([]byte(v.Get("form")), []byte(formToken(cookie))) != 1 {
		s.refusePage(w, http.StatusForbidden, "This form belongs to another browser, or the browser refuses cookies.")
		return
	}
	p, c, err := s.readRequest(r, v.Get("query"))
	if err != nil {
		s.refuseLogin(w, err)
		return
	}
	//defence:client-attempts
	if s.attempts.IsExceeded(addresslimit.AddressOf(r)) {
		w.Header().Set("Retry-After", "10")
		s.askWho(w, r, http.StatusTooManyRequests, p, c, v.Get("query"), "Too many attempts. Wait a minute.")
		return
	}
	p.tenant, p.proof, err = s.identifyTenant(r, v.Get("secret"), destinationOf(p.redirect))
	problem := ""
	switch {
	case errors.Is(err, errUnknown):
		problem = "This is neither the token of a tenant nor a valid code. A code works once, for ten minutes."
	case errors.Is(err, errOtherClient):
		problem = "This code is for another client, at another host. If you did not just add this client, close this page."
	}
	if problem != "" {
		s.logLogin(slog.LevelWarn, "refused to sign in", slog.String("address", addresslimit.AddressOf(r)),
			slog.String("error", err.Error()), slog.String("host", hostOf(p.redirect)))
		s.askWho(w, r, http.StatusForbidden, p, c, v.Get("query"), problem)
		return
	}
	id := newSecret()
	if err == nil {
		err = s.store.addRequest(r.Context(), id, cookie, p)
	}
	if err != nil {
		s.refuseLogin(w, err)
		return
	}
	s.writePage(w, http.StatusOK, consentPage, page{
		Name: c.Name, Host: hostOf(p.redirect), Site: hostOfDocument(c.ID), Form: id, Tenant: p.tenant,
		APIs: s.cfg.ListAPIs(p.tenant),
	})
}

// identifyTenant returns the tenant of a token, or of a one-time code for clients that lead back to this host.
func (s *Server) identifyTenant(r *http.Request, secret, host string) (tenant, proof string, err error) {
	secret = strings.TrimSpace(secret)
	if tenant, proof = s.cfg.FindTenant(secret); tenant != "" {
		return tenant, proof, nil
	}
	code := foldOneTimeCode(secret)
	if code == "" {
		return "", "", errUnknown
	}
	tenant, err = s.store.useOneTimeCode(r.Context(), code, host)
	if err == nil && !s.cfg.HasTenant(tenant, "") {
		err = errUnknown
	}
	return tenant, "", err
}

// decideRequest leads the browser back to the client, with a code if the user approves.
func (s *Server) decideRequest(w http.ResponseWriter, r *http.Request) {
	v, ok := s.readOwnForm(w, r)
	if !ok {
		return
	}
	var p request
	var err error
	answer := url.Values{}
	// A client of several servers must not take this code to another one (RFC 9207).
	//defence:client-issuer
	answer.Set("iss", s.cfg.Issuer)
	if v.Get("decision") == "approve" {
		code := newSecret() + newSecret()
		p, err = s.store.approveRequest(r.Context(), v.Get("form"), cookieOf(r), code)
		answer.Set("code", code)
	} else {
		p, err = s.store.takeRequest(r.Context(), v.Get("form"), cookieOf(r))
		answer.Set("error", "access_denied")
	}
	if errors.Is(err, errUnknown) {
		err = requestError("This form was used, has expired, or belongs to another browser. Start again in the client.")
	}
	if err != nil {
		s.refuseLogin(w, err)
		return
	}
	s.logLogin(slog.LevelInfo, "a user has decided about a client", slog.String("decision", v.Get("decision")),
		slog.String("tenant", p.tenant), slog.String("host", hostOf(p.redirect)))
	if p.state != "" {
		answer.Set("state", p.state)
	}
	// Added to the text, so that the client's parameters stay as they are.
	join := "?"
	if strings.Contains(p.redirect, "?") {
		join = "&"
	}
	w.Header().Set("Location", p.redirect+join+answer.Encode())
	w.WriteHeader(http.StatusSeeOther)
}
