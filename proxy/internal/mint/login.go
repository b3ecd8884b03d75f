package mint

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/disarm"
	"github.com/codeforge-mcp/codeforge/internal/visible"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/minted"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// grantDevice is the grant type of RFC 8628.
const grantDevice = "urn:ietf:params:oauth:grant-type:device_code"

const (
	// loginTime is how long a login waits for its person.
	loginTime = 10 * time.Minute
	// maxLogins is how many wait at once.
	maxLogins = 16
	// maxGuesses is how many redirects with a wrong state a login takes.
	maxGuesses = 5
	// pollInterval is that of servers that do not say how often they may be asked, and slower is what is added when they
	// find it too often.
	pollInterval, slower = 5 * time.Second, 5 * time.Second
)

// The refusals of a login.
var (
	errNoCredential = refused("unknown_credential", "No API has an oauth2 credential of this name that needs a login.")
	errNoLogin      = refused("unknown_login", "There is no such login: it is over, or another one has begun.")
	errState        = refused("wrong_state", "The redirect does not belong to this login.")
	errIssuer       = refused("wrong_issuer", "The redirect comes from another authorization server.")
	errWay          = refused("no_such_way", "The configuration offers no login of this kind.")
	errPort         = refused("wrong_port", "The redirect's port is not the one of the configuration.")
	errStorage      = refused("cannot_be_stored", "The token cannot be stored.")
	errSupply       = refused("not_usable", "The value cannot be scrubbed: it must be 8 to 2048 bytes of printable ASCII.")
	errNotCommand   = refused("not_supplied_so", "No API has a credential of this name with \"command\".")
)

func refused(code, text string) *credentialapi.Refused {
	return &credentialapi.Refused{Code: code, Text: text}
}

// logins are those that wait for a person.
type logins struct {
	mu   sync.Mutex
	byID map[string]*login
}

// login is one. State and verifier do not leave the proxy, except the state in the address of the authorization server.
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
	device   string     // the device code. Empty: a login by browser
	interval time.Duration
	next     time.Time
	deadline time.Time
}

// Begin begins a login of a credential.
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

// loginState finds a credential that a person logs in for.
func (m *Minter) loginState(name string) (*state, *oauth2) {
	m.mu.Lock()
	s := m.states[name]
	m.mu.Unlock()
	if s == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.conf.Mint.Logins() {
		return nil, nil
	}
	return s, &oauth2{s.conf.Mint.OAuth2}
}

func (s *state) digest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conf.Mint.Digest()
}

// requester sends requests for a credential.
func (m *Minter) requester(s *state) *requester {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &requester{transport: m.conf.Transport, owner: m.owner, api: s.api, userAgent: m.conf.UserAgent}
}

// clientFor is the client for a login.
func (m *Minter) clientFor(ctx context.Context, s *state, o *oauth2, redirect string) (*client, error) {
	if o.Resource != "" {
		return o.discover(ctx, m.requester(s), redirect)
	}
	return o.client(nil), nil
}

// browser makes the address that the person opens.
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

// device asks for a code that the person enters (RFC 8628).
func (m *Minter) device(ctx context.Context, s *state, o *oauth2, l *login) (credentialapi.Started, error) {
	if l.client.DeviceURL == "" {
		return credentialapi.Started{}, errWay
	}
	form := url.Values{"client_id": {l.client.ID}}
	if len(l.client.Scopes) > 0 {
		form.Set("scope", o.scope(l.client.Scopes))
	}
	if l.client.Resource != "" {
		form.Set("resource", l.client.Resource)
	}
	user, password := "", ""
	if l.client.Basic && l.client.Secret != "" {
		user, password = l.client.ID, l.client.Secret
	}
	a, err := m.requester(s).post(ctx, l.client.DeviceURL, form, user, password)
	if err != nil {
		return credentialapi.Started{}, err
	}
	var d struct {
		Device   string  `json:"device_code"`
		User     string  `json:"user_code"`
		URL      string  `json:"verification_uri"`
		Google   string  `json:"verification_url"`
		Life     float64 `json:"expires_in"`
		Interval float64 `json:"interval"`
		Error    string  `json:"error"`
	}
	switch err := decode(a.Body, &d); {
	case err != nil:
		return credentialapi.Started{}, unavailable(detailNotJSON)
	case d.Error != "":
		return credentialapi.Started{}, unavailable(shownCode(d.Error))
	case a.Status != 200:
		return credentialapi.Started{}, unavailable(detailStatus)
	}
	if d.URL == "" {
		d.URL = d.Google
	}
	page, err := url.Parse(d.URL)
	if err != nil || page.Scheme != "https" || page.Host == "" || page.User != nil || !plain(d.URL, 2048) ||
		!plain(d.User, 64) || !plain(d.Device, 4096) {
		return credentialapi.Started{}, unavailable(detailNotJSON)
	}
	l.device, l.interval = d.Device, pollInterval
	if d.Interval >= 1 && d.Interval <= 60 {
		l.interval = time.Duration(d.Interval * float64(time.Second))
	}
	l.next, l.deadline = m.now().Add(l.interval), m.now().Add(loginTime)
	if d.Life >= 1 && d.Life < loginTime.Seconds() {
		l.deadline = m.now().Add(time.Duration(d.Life * float64(time.Second)))
	}
	return credentialapi.Started{ID: l.id, URL: d.URL, Code: d.User, Interval: int(l.interval.Seconds())}, nil
}

// plain reports whether a text may be shown on a terminal.
func plain(s string, most int) bool {
	return s != "" && len(s) <= most && visible.Plain(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < '!' || r > '~' })
}

// add makes a login wait, in place of an earlier one of the same credential.
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
	if len(ls.byID) >= maxLogins {
		delete(ls.byID, oldest.id)
	}
	ls.byID[l.id] = l
}

func (l *login) over(now time.Time) bool {
	return now.Sub(l.began) > loginTime || now.Before(l.began.Add(-skew))
}

// get returns a login that waits, or nil.
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

// take ends the wait of a login if the state is its own. Whatever follows, no other redirect is accepted for it.
func (ls *logins) take(id, state string, now time.Time) (*login, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byID[id]
	if l == nil || l.over(now) || l.device != "" {
		return nil, errNoLogin
	}
	if subtle.ConstantTimeCompare([]byte(l.state), []byte(state)) != 1 && !disarm.Off("login-state") {
		if l.guesses++; l.guesses >= maxGuesses {
			delete(ls.byID, id)
		}
		return nil, errState
	}
	delete(ls.byID, id)
	return l, nil
}

// end removes a login. It is false if another has.
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

// issuedBy reports whether a redirect may come from the login's authorization server (RFC 9207).
func (l *login) issuedBy(issuer string) bool {
	c := l.client
	switch {
	case disarm.Off("login-issuer"):
		return true
	case c.Issuer != "":
		return issuer == c.Issuer || issuer == "" && !c.IssuerNamed
	case issuer == "":
		return true
	}
	u, err := url.Parse(issuer)
	auth, err2 := url.Parse(c.AuthURL)
	return err == nil && err2 == nil && u.Scheme == "https" && strings.EqualFold(u.Host, auth.Host)
}

// Poll asks whether the person of a login by device has entered the code.
func (m *Minter) Poll(ctx context.Context, id string) (credentialapi.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	l := m.logins.get(id, m.now())
	if l == nil || l.device == "" {
		return credentialapi.Progress{}, errNoLogin
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := m.now()
	if now.After(l.deadline) {
		m.logins.end(id)
		return credentialapi.Progress{}, said(unavailable("expired_token"))
	}
	if wait := l.next.Sub(now); wait > 0 && wait <= time.Minute {
		return credentialapi.Progress{Interval: int(wait.Seconds()) + 1}, nil
	}
	if m.logins.get(id, now) != l {
		return credentialapi.Progress{}, errNoLogin
	}
	err := m.exchange(ctx, l, url.Values{"grant_type": {grantDevice}, "device_code": {l.device}})
	detail := ""
	if r, ok := err.(*credentialapi.Refused); ok { //nolint:errorlint // exchange returns no other
		detail = r.Code
	}
	switch detail {
	case "slow_down":
		l.interval += slower
		fallthrough
	case "authorization_pending":
		l.next = m.now().Add(l.interval)
		return credentialapi.Progress{Interval: int(l.interval.Seconds())}, nil
	}
	m.logins.end(id)
	if err != nil {
		return credentialapi.Progress{}, err
	}
	return credentialapi.Progress{Done: true}, nil
}

// exchange turns a code into a token, and puts it in force.
func (m *Minter) exchange(ctx context.Context, l *login, form url.Values) error {
	s, o := m.loginState(l.name)
	if s == nil || s.digest() != l.digest {
		return errNoLogin
	}
	st, err := m.opened(true)
	if err != nil {
		return errStorage
	}
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
	if g.Refresh == "" && g.Life == 0 { // as GitHub and Slack do
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
	s.serial++ // a renewal of the former login that is under way comes too late
	serial := s.serial
	s.mu.Unlock()
	if err := m.put(s, serial, next, d.commit); err != nil {
		return said(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed, s.attempts, s.nextTry = nil, 0, time.Time{}
	return nil
}

// said is an error for the operator.
func said(err error) error {
	if r, ok := err.(*credentialapi.Refused); ok { //nolint:errorlint // none is wrapped
		return r
	}
	e := named("", err)
	return refused(e.Detail, "The authorization server gave no token: "+e.Detail+".")
}

// Logout forgets a credential: what is stored, and what is in memory. A name that no API has any more is forgotten too.
func (m *Minter) Logout(name string) error {
	if !catalog.ValidTokenName(name) {
		return errNoCredential
	}
	st, err := m.opened(true)
	if err != nil {
		return errStorage
	}
	m.mu.Lock()
	s := m.states[name]
	m.mu.Unlock()
	if s == nil {
		if err := st.remove(name); err != nil {
			return errStorage
		}
		return nil
	}
	m.storing.Lock()
	defer m.storing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := st.remove(name); err != nil {
		return errStorage
	}
	s.serial++
	if s.kept.Refresh != "" { // the server may still know it
		_ = m.conf.Values.Add(minted.Value{Text: s.kept.Refresh, Until: m.now().Add(after)})
	}
	s.kept, s.unstored, s.renewAt = kept{}, nil, time.Time{}
	s.failed, s.attempts, s.nextTry = nil, 0, time.Time{}
	return nil
}

// Supply takes over the value of a "command" from the feeder that ran it.
func (m *Minter) Supply(name string, v credentialapi.Supply) error {
	m.mu.Lock()
	s := m.states[name]
	m.mu.Unlock()
	if s == nil {
		return errNotCommand
	}
	s.mu.Lock()
	c, digest := s.conf.Mint.Command, s.conf.Mint.Digest()
	s.mu.Unlock()
	if c == nil {
		return errNotCommand
	}
	now := m.now()
	g := grant{Access: v.Value, Life: c.TTL.Duration(), Stale: staleSource}
	if v.ExpiresAt != nil {
		g.Life, g.Stale = v.ExpiresAt.Sub(now), 0
	}
	next, err := m.judge(name, g, kept{}, digest, now)
	if err != nil {
		return errSupply
	}
	s.mu.Lock()
	s.serial++
	serial := s.serial
	s.mu.Unlock()
	if err := m.put(s, serial, next, nil); err != nil {
		return said(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed, s.attempts, s.nextTry = nil, 0, time.Time{}
	return nil
}

// List describes the credentials of the catalog that the proxy obtains.
func (m *Minter) List() []credentialapi.Credential {
	m.mu.Lock()
	states := slices.Collect(maps.Values(m.states))
	m.mu.Unlock()
	out := []credentialapi.Credential{}
	for _, s := range states {
		out = append(out, s.describe(m.now()))
	}
	slices.SortFunc(out, func(a, b credentialapi.Credential) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// describe tells everything about a credential but its value.
func (s *state) describe(now time.Time) credentialapi.Credential {
	s.mu.Lock()
	defer s.mu.Unlock()
	how := s.conf.Mint
	c := credentialapi.Credential{Name: s.name, API: s.api.Name, Kind: how.Kind(), Logins: how.Logins()}
	if how.Logins() {
		o := how.OAuth2
		c.Browser, c.Device = o.AuthURL != "" || o.Resource != "", o.DeviceURL != "" || o.Resource != ""
		c.RedirectHost, c.RedirectPort = o.RedirectHost, o.RedirectPort
	}
	if s.usable(now) {
		c.ValidUntil = s.kept.Expires
	}
	if s.failed != nil {
		c.LastError = s.failed.Detail
	}
	switch {
	case how.Signs() && s.kind == nil, s.usable(now):
		c.State = credentialapi.StateReady
	case how.Logins() && (s.kept.Refresh == "" || s.failed != nil && s.failed.Code == policy.CodeLoginNeeded):
		c.State = credentialapi.StateLogin
	case how.Command != nil:
		c.State = credentialapi.StateSupply
	case s.failed != nil:
		c.State = credentialapi.StateFailed
	case s.kept.Refresh != "":
		c.State = credentialapi.StateReady
	default:
		c.State = credentialapi.StateUnused
	}
	if how.Command != nil {
		c.Command, c.TTL, c.DueAt = how.Command.Args, int(how.Command.TTL), s.kept.Renew
	}
	return c
}
