package mint

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"maps"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

const (
	// loginTime is the time that a login waits for the person.
	loginTime = 10 * time.Minute
	// maxLogins is the number of logins that may wait at the same time.
	maxLogins = 16
	// maxGuesses is the number of redirects with a wrong state that end a login.
	maxGuesses = 5
	// pollInterval is the interval if the server states none. slower is added when a server asks to slow down.
	pollInterval, slower = 5 * time.Second, 5 * time.Second
)

// The errors of a login.
var (
	errNoCredential = refused("unknown_credential", "No API has an oauth2 credential of this name that needs a login.")
	errNoLogin      = refused("unknown_login", "There is no such login: it has ended, or another login has begun.")
	errState        = refused("wrong_state", "The redirect does not belong to this login.")
	errIssuer       = refused("wrong_issuer", "The redirect comes from another authorization server.")
	errServer       = refused("another_server",
		"The resource names another authorization server than before. If that is right, log out first.")
	errWay        = refused("no_such_way", "The configuration offers no login of this kind.")
	errPort       = refused("wrong_port", "The redirect's port is not the one of the configuration.")
	errStorage    = refused("cannot_be_stored", "The token cannot be stored.")
	errSupply     = refused("not_usable", "The value cannot be scrubbed: it must be 8 to 8192 bytes of printable ASCII.")
	errNotCommand = refused("not_supplied_so", "No API has a credential of this name with \"command\".")
)

func refused(code, text string) *rpc.Error {
	return &rpc.Error{Code: code, Text: text}
}

// logins are the logins that wait for a person.
type logins struct {
	mu   sync.Mutex
	byID map[string]*login
}

// login is one login. The verifier goes only to the token endpoint, and the state only into the address that the person
// opens.
type login struct {
	id, name string
	digest   string
	state    string
	verifier string
	redirect string
	began    time.Time
	guesses  int
	client   *client

	mu       sync.Mutex // one poll at a time
	device   string     // the device code; empty for a login by browser
	interval time.Duration
	next     time.Time
	deadline time.Time
}

// Begin begins a login for a credential.
func (m *Minter) Begin(ctx context.Context, want credentialapi.Login) (credentialapi.Started, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	s, o := m.loginState(want.Name)
	if s == nil {
		return credentialapi.Started{}, errNoCredential
	}
	l := &login{id: rand.Text(), name: want.Name, state: rand.Text() + rand.Text(), verifier: rand.Text() + rand.Text(),
		began: m.now(), digest: s.digest()}
	l.redirect = o.RedirectURI(want.Port)
	if want.Way == credentialapi.WayBrowser && (want.Port < 1 || want.Port > 65535 ||
		o.RedirectPort != 0 && want.Port != o.RedirectPort) {
		return credentialapi.Started{}, errPort
	}
	var err error
	if l.client, err = m.clientFor(ctx, s, o, l.redirect); err != nil {
		return credentialapi.Started{}, said(err)
	}
	var started credentialapi.Started
	switch want.Way {
	case credentialapi.WayBrowser:
		started, err = l.browser(o)
	case credentialapi.WayDevice:
		started, err = m.device(ctx, s, o, l)
	default:
		err = errWay
	}
	if err != nil {
		return credentialapi.Started{}, said(err)
	}
	m.logins.add(l, m.now())
	return started, nil
}

// loginState finds a credential that needs a login.
func (m *Minter) loginState(name string) (*state, *oauth2) {
	m.mu.Lock()
	s := m.states[name]
	m.mu.Unlock()
	if s == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.conf.Login()
	if o == nil {
		return nil, nil
	}
	return s, &oauth2{o}
}

func (s *state) digest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conf.MintDigest()
}

// requester returns the requester of a credential.
func (m *Minter) requester(s *state) *requester {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &requester{transport: m.conf.Transport, owner: m.owner, api: s.api, userAgent: m.conf.UserAgent}
}

// clientFor returns the client for a login.
func (m *Minter) clientFor(ctx context.Context, s *state, o *oauth2, redirect string) (*client, error) {
	if o.Resource != "" {
		c, err := o.discover(ctx, m.requester(s), redirect)
		s.mu.Lock()
		before := s.kept.Client
		s.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		// The proxy would mask this text in all responses, so it must not be a common word.
		case o.ClientID == "" && c.Secret != "" && !m.fits(c.Secret):
			return nil, unavailable(detailUnusable)
		// The secret of the configured client must not go to a new authorization server.
		case o.ClientID != "" && before != nil && before.Issuer != c.Issuer:
			return nil, errServer
		}
		return c, nil
	}
	return o.client(nil), nil
}

// browser returns the address that the person opens.
func (l *login) browser(o *oauth2) (credentialapi.Started, error) {
	u, err := url.Parse(l.client.AuthURL)
	if err != nil || u.Scheme != "https" {
		return credentialapi.Started{}, errWay
	}
	q := u.Query()
	for name, value := range o.Params {
		q.Set(name, value)
	}
	sum := sha256.Sum256([]byte(l.verifier))
	// The fixed parameters come last: Params must not replace state or the PKCE challenge.
	for name, value := range map[string]string{
		"response_type": "code", "client_id": l.client.ID, "redirect_uri": l.redirect, "state": l.state,
		"code_challenge": base64.RawURLEncoding.EncodeToString(sum[:]), "code_challenge_method": "S256",
	} {
		q.Set(name, value)
	}
	if len(l.client.Scopes) > 0 {
		q.Set("scope", o.scope(l.client.Scopes))
	}
	if l.client.Resource != "" {
		q.Set("resource", l.client.Resource)
	}
	u.RawQuery = q.Encode()
	return credentialapi.Started{ID: l.id, URL: u.String(), Redirect: l.redirect}, nil
}

// add adds a login. It replaces an earlier login of the same credential.
func (ls *logins) add(l *login, now time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.byID == nil {
		ls.byID = map[string]*login{}
	}
	var oldest *login
	for id, o := range ls.byID {
		if o.name == l.name || o.over(now) {
			delete(ls.byID, id)
		} else if oldest == nil || o.began.Before(oldest.began) {
			oldest = o
		}
	}
	// An abandoned login must not block a new one.
	if len(ls.byID) >= maxLogins {
		delete(ls.byID, oldest.id)
	}
	ls.byID[l.id] = l
}

func (l *login) over(now time.Time) bool {
	return now.Sub(l.began) > loginTime || now.Before(l.began.Add(-skew))
}

// get returns a waiting login, or nil.
func (ls *logins) get(id string, now time.Time) *login {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byID[id]
	if l == nil || l.over(now) {
		delete(ls.byID, id)
		return nil
	}
	return l
}

// take ends the wait of a login if the state is right. No other redirect is accepted for the login afterwards.
func (ls *logins) take(id, state string, now time.Time) (*login, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byID[id]
	if l == nil || l.over(now) || l.device != "" {
		return nil, errNoLogin
	}
	//defence:login-state
	if subtle.ConstantTimeCompare([]byte(l.state), []byte(state)) != 1 {
		// A wrong state does not end the login at once: a stray redirect would otherwise stop it. maxGuesses bounds guessing.
		if l.guesses++; l.guesses >= maxGuesses {
			delete(ls.byID, id)
		}
		return nil, errState
	}
	// Delete before the exchange: a second redirect with the same state fails.
	delete(ls.byID, id)
	return l, nil
}

// forget removes the logins of a credential.
func (ls *logins) forget(name string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	maps.DeleteFunc(ls.byID, func(_ string, l *login) bool { return l.name == name })
}

// end removes a login. It returns false if the login was already removed.
func (ls *logins) end(id string) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	_, ok := ls.byID[id]
	delete(ls.byID, id)
	return ok
}

// Finish exchanges the code that a browser brought back, and puts the token in force.
func (m *Minter) Finish(ctx context.Context, r credentialapi.Redirect) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	l, err := m.logins.take(r.ID, r.State, m.now())
	if err != nil {
		return err
	}
	switch {
	case !l.issuedBy(r.Issuer):
		return errIssuer
	case r.Error != "":
		return said(unavailable(shownCode(r.Error)))
	case r.Code == "" || len(r.Code) > maxAnswer:
		return said(unavailable("invalid_code"))
	}
	form := url.Values{"grant_type": {"authorization_code"}, "code": {r.Code}, "redirect_uri": {l.redirect},
		"code_verifier": {l.verifier}}
	return m.exchange(ctx, l, form)
}

// issuedBy reports whether a redirect may come from the login's authorization server (RFC 9207). It prevents mix-up
// attacks.
func (l *login) issuedBy(issuer string) bool {
	c := l.client
	switch {
	case c.Issuer != "":
		// The redirect must have iss if the metadata announces it. Otherwise an attacker could remove it.
		//defence:login-issuer permits
		return issuer == c.Issuer || issuer == "" && !c.IssuerNamed
	case issuer == "":
		return true
	}
	u, err := url.Parse(issuer)
	auth, err2 := url.Parse(c.AuthURL)
	//defence:login-issuer permits
	return err == nil && err2 == nil && u.Scheme == "https" && strings.EqualFold(u.Host, auth.Host)
}

// exchange turns a code into a token, and puts the token in force.
func (m *Minter) exchange(ctx context.Context, l *login, form url.Values) error {
	s, o := m.loginState(l.name)
	// The configuration may have changed while the person logged in.
	if s == nil || s.digest() != l.digest {
		return errNoLogin
	}
	s.mu.Lock()
	before := s.serial
	s.mu.Unlock()
	st, err := m.opened(true, 0)
	if err != nil {
		return errStorage
	}
	// Reserve the room on the disk first: a code can be exchanged only once.
	d, err := st.begin(l.name)
	if err != nil {
		return errStorage
	}
	defer d.discard()
	began := m.now()
	g, err := o.token(ctx, m.requester(s), l.client, form)
	if err != nil {
		return said(err)
	}
	// GitHub and Slack issue tokens without an end in this way.
	if g.Refresh == "" && g.Life == 0 {
		g.Endless = true
	}
	old := kept{}
	if o.Resource != "" {
		old.Client = l.client
	}
	next, err := m.judge(l.name, g, old, l.digest, began)
	if err != nil {
		return said(err)
	}
	s.mu.Lock()
	// The person has logged out, or another login has finished.
	if s.serial != before {
		s.mu.Unlock()
		return errNoLogin
	}
	// A renewal of the former login may be under way. The new serial makes it fail.
	s.serial++
	serial := s.serial
	s.mu.Unlock()
	if err := m.put(s, serial, next, d.commit); err != nil {
		return said(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed, s.attempts, s.nextTry = nil, 0, time.Time{}
	m.notifyLogin(l.name, false)
	return nil
}

// said turns an error into one for the operator.
func said(err error) error {
	if r, ok := err.(*rpc.Error); ok { //nolint:errorlint // none is wrapped
		return r
	}
	e := named("", err)
	return refused(e.Detail, "The authorization server gave no token: "+e.Detail+".")
}
