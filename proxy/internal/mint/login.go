package mint

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
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
	errNoCredential = newLoginError("unknown_credential",
		"No API has an oauth2 credential of this name that needs a login.")
	errNoLogin = newLoginError("unknown_login", "There is no such login: it has ended, or another login has begun.")
	errState   = newLoginError("wrong_state", "The redirect does not belong to this login.")
	errIssuer  = newLoginError("wrong_issuer", "The redirect comes from another authorization server.")
	errServer  = newLoginError("another_server",
		"The resource names another authorization server than before. If that is right, log out first.")
	errWay     = newLoginError("no_such_way", "The configuration offers no login of this kind.")
	errPort    = newLoginError("wrong_port", "The redirect's port is not the one of the configuration.")
	errStorage = newLoginError("cannot_be_stored", "The token cannot be stored.")
	errSupply  = newLoginError("not_usable",
		"The value cannot be scrubbed: it must be 8 to 8192 bytes of printable ASCII.")
	errNotCommand = newLoginError("not_supplied_so", "No API has a credential of this name with \"command\".")
)

func newLoginError(code, text string) *rpc.Error {
	return &rpc.Error{Code: code, Text: text}
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

// BeginLogin begins a login for a credential.
func (m *Minter) BeginLogin(ctx context.Context, want credentialapi.Login) (credentialapi.StartedLogin, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	s, o, digest := m.findLoginState(want.Name)
	if s == nil {
		return credentialapi.StartedLogin{}, errNoCredential
	}
	// RFC 7636, section 4.1: a verifier has at least 43 characters, and one rand.Text has only 26.
	l := &login{id: rand.Text(), name: want.Name, state: rand.Text() + rand.Text(), verifier: rand.Text() + rand.Text(),
		began: m.wallTime(), digest: digest}
	l.redirect = o.RedirectURI(want.Port)
	if want.Way == credentialapi.WayBrowser && (want.Port < 1 || want.Port > 65535 ||
		o.RedirectPort != 0 && want.Port != o.RedirectPort) {
		return credentialapi.StartedLogin{}, errPort
	}
	var err error
	if l.client, err = m.obtainClient(ctx, s, o, l.redirect); err != nil {
		return credentialapi.StartedLogin{}, toOperatorError(err)
	}
	var started credentialapi.StartedLogin
	switch want.Way {
	case credentialapi.WayBrowser:
		started, err = l.prepareBrowserLogin(o)
	case credentialapi.WayDevice:
		started, err = m.requestDeviceCode(ctx, s, o, l)
	default:
		err = errWay
	}
	if err != nil {
		return credentialapi.StartedLogin{}, toOperatorError(err)
	}
	// Last: a login that cannot begin must not replace an earlier one that still waits for the person.
	m.addLogin(l)
	return started, nil
}

// findLoginState finds a credential that needs a login, and returns the digest of its configuration.
func (m *Minter) findLoginState(name string) (s *credentialState, o *oauth2, digest string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s = m.states[name]; s == nil || s.conf.LoginClient() == nil {
		return nil, nil, ""
	}
	return s, &oauth2{s.conf.LoginClient()}, s.conf.MintDigest()
}

func (m *Minter) newRequester(s *credentialState) *requester {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &requester{transport: m.conf.Transport, owner: m.owner, api: s.api, userAgent: m.conf.UserAgent}
}

func (m *Minter) obtainClient(ctx context.Context, s *credentialState, o *oauth2, redirect string) (*client, error) {
	if o.Resource != "" {
		c, err := o.discoverClient(ctx, m.newRequester(s), redirect)
		m.mu.Lock()
		before := s.kept.Client
		m.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		// The proxy would mask this text in all responses, so it must not be a common word.
		case o.ClientID == "" && c.Secret != "" && !m.canBeSecret(c.Secret):
			return nil, newUnavailable(detailUnusable)
		// The secret of the configured client must not go to a new authorization server.
		case o.ClientID != "" && before != nil && before.Issuer != c.Issuer:
			return nil, errServer
		}
		return c, nil
	}
	return o.chooseClient(nil), nil
}

// prepareBrowserLogin returns the address that the person opens.
func (l *login) prepareBrowserLogin(o *oauth2) (credentialapi.StartedLogin, error) {
	u, err := url.Parse(l.client.AuthURL)
	if err != nil || u.Scheme != "https" {
		return credentialapi.StartedLogin{}, errWay
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
		q.Set("scope", o.joinScopes(l.client.Scopes))
	}
	if l.client.Resource != "" {
		q.Set("resource", l.client.Resource)
	}
	u.RawQuery = q.Encode()
	return credentialapi.StartedLogin{ID: l.id, URL: u.String(), Redirect: l.redirect}, nil
}

// addLogin adds a login. It replaces an earlier login of the same credential.
func (m *Minter) addLogin(l *login) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var oldest *login
	for id, o := range m.logins {
		if o.name == l.name || o.hasExpired(m.wallTime()) {
			delete(m.logins, id)
		} else if oldest == nil || o.began.Before(oldest.began) {
			oldest = o
		}
	}
	// An abandoned login must not block a new one.
	if len(m.logins) >= maxLogins {
		delete(m.logins, oldest.id)
	}
	m.logins[l.id] = l
}

func (l *login) hasExpired(now time.Time) bool {
	return now.Sub(l.began) > loginTime || now.Before(l.began.Add(-skew))
}

// findLogin returns a waiting login by device, or nil.
func (m *Minter) findLogin(id string) *login {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.logins[id]
	if l == nil || l.hasExpired(m.wallTime()) || l.device == "" {
		return nil
	}
	return l
}

// takeLogin ends the wait of a login by browser if the state is right. No other redirect is accepted for the login
// afterwards.
func (m *Minter) takeLogin(id, state string) (*login, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.logins[id]
	if l == nil || l.hasExpired(m.wallTime()) || l.device != "" {
		return nil, errNoLogin
	}
	//defence:login-state
	if subtle.ConstantTimeCompare([]byte(l.state), []byte(state)) != 1 {
		// A wrong state does not end the login at once: a stray redirect would otherwise stop it. maxGuesses bounds guessing.
		if l.guesses++; l.guesses >= maxGuesses {
			delete(m.logins, id)
		}
		return nil, errState
	}
	// Delete before the exchange: a second redirect with the same state fails.
	delete(m.logins, id)
	return l, nil
}

// endLogin removes a login.
func (m *Minter) endLogin(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.logins, id)
}

// FinishLogin exchanges the code that a browser brought back, and puts the token in force.
func (m *Minter) FinishLogin(ctx context.Context, r credentialapi.Redirect) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	l, err := m.takeLogin(r.ID, r.State)
	if err != nil {
		return err
	}
	switch {
	case !l.canBeIssuedBy(r.Issuer):
		return errIssuer
	case r.Error != "":
		return toOperatorError(newUnavailable(filterCode(r.Error)))
	case r.Code == "" || len(r.Code) > maxAnswer:
		return toOperatorError(newUnavailable("invalid_code"))
	}
	form := url.Values{"grant_type": {"authorization_code"}, "code": {r.Code}, "redirect_uri": {l.redirect},
		"code_verifier": {l.verifier}}
	return m.exchangeCode(ctx, l, form)
}

// canBeIssuedBy reports whether a redirect may come from the login's authorization server (RFC 9207). It prevents
// mix-up attacks.
func (l *login) canBeIssuedBy(issuer string) bool {
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

// exchangeCode turns a code into a token, and puts the token in force.
func (m *Minter) exchangeCode(ctx context.Context, l *login, form url.Values) error {
	s, o, digest := m.findLoginState(l.name)
	// The configuration may have changed while the person logged in.
	if s == nil || digest != l.digest {
		return errNoLogin
	}
	m.mu.Lock()
	before := s.serial
	m.mu.Unlock()
	st, err := m.openStoreOnce(true, 0)
	if err != nil {
		return errStorage
	}
	// Reserve the room on the disk first: a code can be exchanged only once.
	d, err := st.beginDraft(l.name)
	if err != nil {
		return errStorage
	}
	defer d.discardDraft()
	began := m.wallTime()
	g, err := o.requestToken(ctx, m.newRequester(s), l.client, form)
	if err != nil {
		return toOperatorError(err)
	}
	// GitHub and Slack issue tokens without an end in this way.
	if g.Refresh == "" && g.Life == 0 {
		g.Endless = true
	}
	old := storedToken{}
	if o.Resource != "" {
		old.Client = l.client
	}
	next, err := m.acceptToken(l.name, g, old, l.digest, began)
	if err != nil {
		return toOperatorError(err)
	}
	m.mu.Lock()
	// The person has logged out, or another login has finished.
	if s.serial != before {
		m.mu.Unlock()
		return errNoLogin
	}
	// A renewal of the former login may be under way. The new serial makes it fail.
	s.serial++
	serial := s.serial
	m.mu.Unlock()
	if err := m.storeAndPublish(s, serial, next, d.commit); err != nil {
		return toOperatorError(err)
	}
	m.mu.Lock()
	s.failed, s.attempts, s.nextTry = nil, 0, time.Time{}
	m.mu.Unlock()
	m.conf.Login(l.name, false)
	return nil
}

// toOperatorError turns an error into one for the operator.
func toOperatorError(err error) error {
	if r, ok := err.(*rpc.Error); ok { //nolint:errorlint // none is wrapped
		return r
	}
	e := asError("", err)
	return newLoginError(e.Detail, "The authorization server gave no token: "+e.Detail+".")
}
