// Package mint obtains the credentials that change: access tokens, short-lived keys, and what secret managers hold.
//
// Contract: a credential is obtained when a request uses it, and renewed before it ends. Whatever the number of
// requests that wait for it, one is under way for each credential, in a context of its own. What was obtained is first
// stored, then made known to scrub and swap (package minted), and only then used. A credential that has ended is never
// used; if there is no other, the request that needs it fails.
//
// Threat: a server that answers slowly, endlessly, with a redirect, or with a secret in the place of a token; a process
// that is killed between any two steps; code that makes the proxy renew without end. No text that a server chose leaves
// this package, except the credential itself.
package mint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/disarm"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/proxy/internal/minted"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
)

const (
	// defaultLife is that of a token whose server does not say how long it lives.
	defaultLife = 5 * time.Minute
	// minLife is the shortest that is of use. A life of maxLife is as good as one without end.
	minLife = 30 * time.Second
	maxLife = 10 * 365 * 24 * time.Hour
	// early is how long before its end a token is renewed at least; it is a tenth of the token's life if that is longer,
	// and never more than half.
	early = time.Minute
	// after is how long after its end a value is still looked for in responses.
	after = time.Hour
	// afterUnknown is how long one is looked for whose server does not say how long it lives, from its beginning, and
	// afterSource what a secret manager gave, from when it gave something else: both may be valid for longer than they are
	// used.
	afterUnknown, afterSource = 8 * time.Hour, 4 * time.Hour
	// staleSource is how long what a secret manager gave is used beyond its time while there is nothing newer.
	staleSource = time.Hour
	// forever stands for the end of what has none.
	forever = 100 * 365 * 24 * time.Hour
	// refusedAgain is how soon a token may be renewed again because a server refused it.
	refusedAgain = time.Minute
	// refusedMost is how many values of a credential there may be for such a renewal: those for its end take precedence.
	refusedMost = 64
	// The time between failed attempts grows from backoffMin to backoffMax. An ended login is not tried again for
	// backoffEnded.
	backoffMin, backoffMax, backoffEnded = time.Second, time.Minute, 10 * time.Minute
	// skew is how far a clock may go back before what was obtained counts as ended.
	skew = time.Minute
	// closeTime is how long Close waits for renewals: what a server has answered should be stored.
	closeTime = 5 * time.Second
)

// Config holds what a Minter needs.
type Config struct {
	Transport Transport
	// Values gets what is obtained.
	Values *minted.Values
	// Dir is the folder tokens/.
	Dir string
	// APIs is the folder apis/.
	APIs      string
	UserAgent string
	Log       *slog.Logger
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// Minter obtains credentials. Make one with New, and give it the catalog with Configure.
type Minter struct {
	conf  Config
	owner *owner
	end   context.CancelFunc
	wg    sync.WaitGroup

	loading sync.Mutex // one Configure at a time
	storing sync.Mutex // one change of the folder at a time; taken before a state's mu

	mu      sync.Mutex
	store   *store // nil until there is a credential to obtain
	states  map[string]*state
	catalog *catalog.Catalog
	known   *scrub.Scrubber // what is fixed in the catalog: no token may contain it
	closed  bool

	logins logins
}

// New makes a Minter of no catalog.
func New(c Config) *Minter {
	if c.Now == nil {
		c.Now = time.Now
	}
	m := &Minter{conf: c, states: map[string]*state{}}
	ctx, end := context.WithCancel(context.Background())
	m.owner, m.end = &owner{ctx}, end
	return m
}

// now is the wall clock's time: the monotonic clock stands still while a machine sleeps, and tokens do not.
func (m *Minter) now() time.Time { return m.conf.Now().Round(0) }

// state is one credential.
type state struct {
	name string
	conf catalog.Credential
	api  *catalog.API
	kind kind

	mu      sync.Mutex
	gone    bool // replaced by another configuration
	serial  int  // grows with every login, logout and supplied value: a renewal that began before comes too late
	kept    kept
	renewAt time.Time
	flight  *flight
	// unstored is what a server gave and the disk did not take. It is stored before anything else is asked for.
	unstored *kept
	failed   *Error
	attempts int
	nextTry  time.Time
	refused  time.Time // when a renewal because of a refusal began
	used     bool
}

// flight is one renewal under way.
type flight struct {
	done chan struct{}
	err  *Error // valid once done is closed
}

// kind obtains values of one credential. One call is under way at a time.
type kind interface {
	// obtain returns the next value. old is what is kept.
	obtain(ctx context.Context, r *requester, old kept) (grant, error)
	// stored reports whether what is obtained is stored. What a secret manager holds is not copied to a disk.
	stored() bool
}

// grant is what a kind obtained.
type grant struct {
	Access string
	// Life is how long it lives. 0: the server does not say.
	Life time.Duration
	// Stale is how long it may be used beyond Life while nothing replaces it.
	Stale time.Duration
	// Endless: it has no end.
	Endless bool
	// Refresh replaces the kept one. Empty: the kept one stays.
	Refresh string
	// Inner are further secrets.
	Inner []string
	// Client replaces the kept one. Nil: the kept one stays.
	Client *client
}

// kindOf returns how a credential is obtained, or nil for one that is not.
func (m *Minter) kindOf(how *catalog.Mint) kind {
	switch {
	case how == nil:
		return nil
	case how.OAuth2 != nil:
		return &oauth2{how.OAuth2}
	case how.GitHubApp != nil:
		return &githubApp{how.GitHubApp, m.now}
	case how.Google != nil:
		return &google{how.Google, m.now}
	case how.AWS != nil && how.AWS.RoleARN != "":
		return &assumedRole{how.AWS, m.now}
	case how.Fetch != nil:
		return &fetched{how.Fetch, m}
	case how.File != nil:
		return &watched{how.File, m.conf.APIs}
	case how.Command != nil:
		return supplied{}
	}
	return nil
}

// credential finds a credential of the catalog that is in force, and its API, internal ones included. The API is nil if
// there is none.
func (m *Minter) credential(name string) (catalog.Credential, *catalog.API) {
	m.mu.Lock()
	c := m.catalog
	m.mu.Unlock()
	for _, a := range c.APIs() {
		for _, cr := range a.Credentials {
			if cr.Name == name && a.Active {
				return cr, a
			}
		}
	}
	return catalog.Credential{}, nil
}

// Configure puts a catalog in force: before it is used to judge a request. What is stored for its credentials is known
// to scrub and swap when Configure returns. An error means that nothing can be stored: those credentials then fail.
func (m *Minter) Configure(c *catalog.Catalog) error {
	m.loading.Lock()
	defer m.loading.Unlock()
	next, values := map[string]*state{}, []minted.Value{}
	st, err := m.opened(c.Mints())
	for _, a := range c.APIs() {
		for _, cr := range a.Credentials {
			if cr.Mint == nil {
				continue
			}
			s := m.adopt(a, cr)
			if s == nil {
				s = &state{name: cr.Name, conf: cr, api: a, kind: m.kindOf(cr.Mint)}
				if st != nil {
					values = append(values, s.load(st, m.now())...)
				}
			}
			next[cr.Name] = s
		}
	}
	if len(values) > 0 {
		err = errors.Join(err, m.conf.Values.Add(values...))
	}
	known := scrub.New(c.AllSecrets())
	m.mu.Lock()
	old := m.states
	m.states, m.known, m.catalog = next, known, c
	m.mu.Unlock()
	m.ahead(next, old)
	m.storing.Lock() // what a former state obtained is stored now or never
	defer m.storing.Unlock()
	for name, s := range old {
		if next[name] != s {
			s.mu.Lock()
			s.gone = true
			s.mu.Unlock()
		}
	}
	return err
}

// ahead obtains what secret managers and files hold before a request uses it: a server that has seen it before may show
// it to code that has not used its name. It waits for files alone.
func (m *Minter) ahead(next, old map[string]*state) {
	var files []*flight
	for name, s := range next {
		if old[name] == s || !s.api.Active || s.kind == nil || s.kind.stored() || s.conf.Mint.Command != nil {
			continue
		}
		s.mu.Lock()
		f := m.renew(s)
		s.mu.Unlock()
		if s.conf.Mint.File != nil {
			files = append(files, f)
		}
	}
	for _, f := range files {
		<-f.done
	}
}

// opened returns the store, which it opens when it is first needed.
func (m *Minter) opened(needed bool) (*store, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.store != nil || !needed {
		return m.store, nil
	}
	st, err := openStore(m.conf.Dir)
	if err != nil {
		return nil, fmt.Errorf("the folder for tokens: %w", err)
	}
	m.store = st
	return st, nil
}

// adopt returns the state of a credential that is obtained as before, with its configuration replaced. Nil: there is
// none.
func (m *Minter) adopt(a *catalog.API, cr catalog.Credential) *state {
	m.mu.Lock()
	s := m.states[cr.Name]
	m.mu.Unlock()
	if s == nil || s.conf.Mint.Digest() != cr.Mint.Digest() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.conf.Same(cr) { // another client secret, perhaps the right one
		s.failed, s.nextTry, s.attempts = nil, time.Time{}, 0
	}
	s.conf, s.api, s.kind = cr, a, m.kindOf(cr.Mint)
	return s
}

// load takes over what is stored, and returns what must be known.
func (s *state) load(st *store, now time.Time) []minted.Value {
	k, err := st.read(s.name, s.conf.Mint.Digest())
	if err != nil {
		s.failed = &Error{Name: s.name, Code: policy.CodeTokenUnavailable, Detail: detailStorage}
		return nil
	}
	values := s.values(k, now)
	if slices.ContainsFunc(values, func(v minted.Value) bool { return minted.Problem(v.Text) != nil }) {
		s.failed = &Error{Name: s.name, Code: policy.CodeTokenUnavailable, Detail: detailStorage}
		return nil
	}
	s.kept, s.renewAt = k, renewal(k)
	return values
}

// values are what must be known of a kept credential.
func (s *state) values(k kept, now time.Time) []minted.Value {
	var out []minted.Value
	if k.Access != "" {
		until := now.Add(forever)
		if k.Forget != nil {
			until = *k.Forget
		}
		out = append(out, minted.Value{Name: s.name, Text: k.Access, Until: until})
		for _, inner := range k.Inner {
			out = append(out, minted.Value{Text: inner, Until: until})
		}
	}
	if k.Refresh != "" {
		out = append(out, minted.Value{Text: k.Refresh, Until: now.Add(forever)})
	}
	if k.Client != nil && k.Client.Secret != "" {
		out = append(out, minted.Value{Text: k.Client.Secret, Until: now.Add(forever)})
	}
	return out
}

// shownAs is the token name for a kept value itself, and "" for what belongs to it.
func (s *state) shownAs(text string, k kept) string {
	if text == k.Access {
		return s.name
	}
	return ""
}

// renewal is when a kept credential is renewed: early, and each at another time.
func renewal(k kept) time.Time {
	switch {
	case k.Renew != nil:
		return *k.Renew
	case k.Expires == nil:
		return time.Time{}
	}
	life := k.Expires.Sub(k.Minted)
	ahead := max(early, life/10)
	ahead = min(ahead+time.Duration(rand.Int64N(int64(ahead/5)+1)), life/2) //nolint:gosec // it hides nothing
	return k.Expires.Add(-ahead)
}

// usable reports whether a kept credential has begun and not ended. The caller holds mu.
func (s *state) usable(now time.Time) bool {
	k := &s.kept
	if k.Access == "" {
		return false
	}
	if disarm.Off("stale-token") {
		return true
	}
	return k.Expires == nil || now.Before(*k.Expires) && now.After(k.Minted.Add(-skew))
}

// Value returns a credential that is in force. It obtains one if need be, and waits for that until ctx ends. Its error
// is an *Error, or that of ctx.
func (m *Minter) Value(ctx context.Context, c catalog.Credential) (string, error) {
	s, err := m.state(c)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.used = true
	now := m.now()
	if s.usable(now) {
		v := s.kept.Access
		if !s.renewAt.IsZero() && now.After(s.renewAt) && s.mayTry(now) {
			m.renew(s)
		}
		s.mu.Unlock()
		return v, nil
	}
	if s.flight == nil && !s.mayTry(now) {
		defer s.mu.Unlock()
		return "", s.failed
	}
	f := m.renew(s)
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case <-f.done:
	}
	if f.err != nil {
		return "", f.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.usable(m.now()) {
		return "", &Error{Name: s.name, Code: policy.CodeTokenUnavailable, Detail: detailLifetime}
	}
	return s.kept.Access, nil
}

// state finds the state of a credential as a request's catalog has it.
func (m *Minter) state(c catalog.Credential) (*state, error) {
	m.mu.Lock()
	s := m.states[c.Name]
	m.mu.Unlock()
	if s == nil {
		return nil, &Error{Name: c.Name, Code: policy.CodeTokenUnavailable, Detail: detailChanged}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || !s.conf.Same(c) {
		return nil, &Error{Name: c.Name, Code: policy.CodeTokenUnavailable, Detail: detailChanged}
	}
	return s, nil
}

// mayTry reports whether an attempt may begin after those that failed. The caller holds mu.
func (s *state) mayTry(now time.Time) bool {
	return s.failed == nil || now.After(s.nextTry) || s.nextTry.Sub(now) > backoffEnded // the clock went back
}

// Renewed renews a credential because a server refused this value of it. It is true once there is another one, and
// false if there will be none now: a server that always refuses makes no more than one renewal a minute.
func (m *Minter) Renewed(ctx context.Context, c catalog.Credential, value string) bool {
	s, err := m.state(c)
	if err != nil {
		return false
	}
	s.mu.Lock()
	now := m.now()
	if s.kept.Access != value {
		ok := s.usable(now)
		s.mu.Unlock()
		return ok
	}
	f := s.flight
	if f == nil {
		soon := now.Sub(s.refused) < refusedAgain && !now.Before(s.refused)
		endless := s.kept.Expires == nil // without a refresh token nothing gets another
		if soon || endless || !s.mayTry(now) || m.conf.Values.Count(s.name) >= refusedMost {
			s.mu.Unlock()
			return false
		}
		s.refused = now
		f = m.renew(s)
	}
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return false
	case <-f.done:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.err == nil && s.kept.Access != value && s.usable(m.now())
}

// renew starts a renewal, or returns the one under way. The caller holds the state's mu.
func (m *Minter) renew(s *state) *flight {
	if s.flight != nil && !disarm.Off("single-flight") {
		return s.flight
	}
	f := &flight{done: make(chan struct{})}
	m.mu.Lock()
	closed := m.closed
	if !closed {
		m.wg.Add(1)
	}
	m.mu.Unlock()
	if closed {
		f.err = &Error{Name: s.name, Code: policy.CodeTokenUnavailable, Detail: detailChanged}
		close(f.done)
		return f
	}
	s.flight = f
	go func() {
		defer m.wg.Done()
		m.fly(s, f)
	}()
	return f
}

// fly is one renewal, from the first step to the last.
func (m *Minter) fly(s *state, f *flight) {
	ctx, cancel := context.WithTimeout(m.owner.ctx, requestTime)
	defer cancel()
	err := m.attempt(ctx, s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flight = nil
	if err == nil {
		s.failed, s.attempts, s.nextTry = nil, 0, time.Time{}
		close(f.done)
		return
	}
	e := named(s.name, err)
	f.err = e
	pause := min(backoffMin<<min(s.attempts, 10), backoffMax)
	if e.Code == policy.CodeLoginNeeded {
		pause = backoffEnded
	}
	s.failed, s.attempts, s.nextTry = e, s.attempts+1, m.now().Add(pause)
	m.conf.Log.LogAttrs(ctx, slog.LevelWarn, "a credential could not be obtained", logline.Tag("mint"),
		slog.String("credential", s.name), slog.String("code", e.Code), slog.String("detail", e.Detail))
	close(f.done)
}

// attempt obtains, stores, publishes and puts in force.
func (m *Minter) attempt(ctx context.Context, s *state) error {
	s.mu.Lock()
	old, unstored, k, serial := s.kept, s.unstored, s.kind, s.serial
	digest := s.conf.Mint.Digest()
	s.mu.Unlock()
	switch {
	case k == nil:
		return unavailable(detailKind)
	case !k.stored():
		return m.obtain(ctx, s, k, old, serial, digest, nil)
	}
	st, err := m.opened(true)
	if err != nil {
		return unavailable(detailStorage)
	}
	if unstored != nil {
		return m.put(s, serial, *unstored, func(next kept) error { return st.write(s.name, next) })
	}
	d, err := st.begin(s.name)
	if err != nil {
		return unavailable(detailStorage)
	}
	defer d.discard()
	return m.obtain(ctx, s, k, old, serial, digest, d.commit)
}

// obtain asks for the next value, and takes it over.
func (m *Minter) obtain(
	ctx context.Context, s *state, k kind, old kept, serial int, digest string, commit func(kept) error,
) error {
	began := m.now()
	step("ask")
	g, err := k.obtain(ctx, m.requester(s), old)
	if err != nil {
		return err
	}
	step("answered")
	next, err := m.judge(s.name, g, old, digest, began)
	if err != nil {
		return err
	}
	return m.put(s, serial, next, commit)
}

// judge turns a grant into what is kept, or refuses it.
func (m *Minter) judge(name string, g grant, old kept, digest string, began time.Time) (kept, error) {
	next := kept{Digest: digest, Access: g.Access, Minted: began, Refresh: old.Refresh, Client: old.Client, Inner: g.Inner}
	if g.Refresh != "" {
		next.Refresh = g.Refresh
	}
	if g.Client != nil {
		next.Client = g.Client
	}
	switch life := g.Life; {
	case g.Endless:
	case g.Stale > 0:
		next.Renew, next.Expires = end(began, life), end(began, life+g.Stale)
	case life == 0:
		next.Expires, next.Forget = end(began, defaultLife), end(began, afterUnknown)
	case life < minLife:
		return kept{}, unavailable(detailLifetime)
	default:
		life = min(life, maxLife)
		next.Expires, next.Forget = end(began, life), end(began, life+after)
	}
	m.mu.Lock()
	known := m.known
	m.mu.Unlock()
	for _, text := range append([]string{next.Access}, next.Inner...) {
		if minted.Problem(text) != nil {
			return kept{}, unavailable(detailUnusable)
		}
		if echoes(known, text, next, old) && !disarm.Off("mint-echo") {
			return kept{}, unavailable(detailEcho)
		}
	}
	if next.Refresh != "" && (minted.Problem(next.Refresh) != nil || known.Contains(next.Refresh)) {
		return kept{}, unavailable(detailUnusable)
	}
	return next, nil
}

func end(began time.Time, life time.Duration) *time.Time {
	t := began.Add(life)
	return &t
}

// echoes reports whether a token contains what must never leave for an API: a credential, a secret inside one, or a
// refresh token.
func echoes(known *scrub.Scrubber, text string, next, old kept) bool {
	var own []catalog.Credential
	for _, secretText := range []string{next.Refresh, old.Refresh} {
		own = append(own, mask(secretText))
	}
	if next.Client != nil {
		own = append(own, mask(next.Client.Secret))
	}
	return known.Contains(text) || scrub.New(own).Contains(text)
}

// put stores, publishes and puts in force, in this order, unless something else has done so since serial. No request
// waits for the disk or for the patterns meanwhile, unless it waits for this value. What could not be stored stays in
// memory, unused. commit stores; nil: it is not stored.
func (m *Minter) put(s *state, serial int, next kept, commit func(kept) error) error {
	if err := m.save(s, serial, next, commit); err != nil {
		return err
	}
	s.mu.Lock()
	old := s.kept
	s.mu.Unlock()
	now := m.now()
	values := s.values(next, now)
	if old.Refresh != "" && old.Refresh != next.Refresh {
		values = append(values, minted.Value{Text: old.Refresh, Until: now.Add(after)})
	}
	if old.Access != "" && old.Access != next.Access && old.Forget == nil {
		for _, text := range append([]string{old.Access}, old.Inner...) {
			values = append(values, minted.Value{Name: s.shownAs(text, old), Text: text, Until: now.Add(afterSource)})
		}
	}
	step("publish")
	published := error(nil)
	if !disarm.Off("publish-first") {
		published = m.conf.Values.Add(values...)
	}
	step("use")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.gone || s.serial != serial:
		return unavailable(detailChanged)
	case published != nil: // the login goes on with its refresh token
		s.kept = kept{Digest: next.Digest, Refresh: next.Refresh, Client: next.Client}
		return unavailable(detailTooMany)
	}
	s.kept, s.renewAt = next, renewal(next)
	return nil
}

// save stores.
func (m *Minter) save(s *state, serial int, next kept, commit func(kept) error) error {
	m.storing.Lock()
	defer m.storing.Unlock()
	s.mu.Lock()
	late := s.gone || s.serial != serial
	s.mu.Unlock()
	if late {
		return unavailable(detailChanged)
	}
	var err error
	if commit != nil && !disarm.Off("store-first") {
		err = commit(next)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unstored = nil; err != nil {
		s.unstored = &next
		return unavailable(detailStorage)
	}
	return nil
}

// Close ends renewals, after those that are under way had a moment to be stored.
func (m *Minter) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	done := make(chan struct{})
	go func() { m.wg.Wait(); close(done) }()
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	m.end()
	<-done
}
