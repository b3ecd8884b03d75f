// Package mint obtains the credentials that change: access tokens, short-lived keys, and what secret managers hold.
// Each way to obtain one has a file (oauth2.go, githubapp.go, aws.go ...); renew.go decides when.
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
	"maps"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/minted"
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
	// refusedAgain is how soon a token may be renewed again because a server refused it. Once a credential is crowded it
	// is renewed for its end alone.
	refusedAgain = time.Minute
	// The time between failed attempts grows from backoffMin to backoffMax. An ended login is not tried again for
	// backoffEnded.
	backoffMin, backoffMax, backoffEnded = time.Second, time.Minute, 10 * time.Minute
	// skew is how far a clock may go back before what was obtained counts as ended.
	skew = time.Minute
	// closeTime is how long Close waits for renewals: what a server has answered should be stored.
	closeTime = 5 * time.Second
	// lockTime is how long a proxy that starts waits for another one that ends.
	lockTime = 10 * time.Second
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
	// Login is called after a login, and after its end (out). It may be nil.
	Login func(name string, out bool)
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// Minter obtains credentials. Make one with New, and give it the catalog with Configure.
type Minter struct {
	conf  Config
	owner *owner
	end   context.CancelFunc
	// patience is how long the first Configure waits for another proxy that ends.
	patience time.Duration
	wg       sync.WaitGroup

	loading sync.Mutex // one Configure at a time
	storing sync.Mutex // one change of the folder at a time; taken before a state's mu

	mu      sync.Mutex
	store   *store // nil until there is a credential to obtain
	states  map[string]*state
	leaving map[string]*state // of no API any more, with a renewal under way that is stored when it is done
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
	m := &Minter{conf: c, patience: lockTime, states: map[string]*state{}, leaving: map[string]*state{}}
	ctx, end := context.WithCancel(context.Background())
	m.owner, m.end = &owner{ctx}, end
	return m
}

// now is the wall clock's time: the monotonic clock stands still while a machine sleeps, and tokens do not.
func (m *Minter) now() time.Time { return m.conf.Now().Round(0) }

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
	// Issued: a server for tokens chose it, and not the user.
	Issued bool
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
	// Client replaces the kept one. Nil means that the kept one stays.
	Client *client
}

// kindOf returns how a credential is obtained, or nil for one that is not.
func (m *Minter) kindOf(how catalog.Mint) kind {
	switch how := how.(type) {
	case *catalog.OAuth2:
		return &oauth2{how}
	case *catalog.GitHubApp:
		return &githubApp{how, m.now}
	case *catalog.Google:
		return &google{how, m.now}
	case *catalog.AWS:
		if how.RoleARN != "" {
			return &assumedRole{how, m.now}
		}
	case *catalog.Fetch:
		return &fetched{how, m}
	case *catalog.File:
		return &watched{how, m.conf.APIs}
	case *catalog.Command:
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
	next, loaded, values := map[string]*state{}, []*state{}, []minted.Value{}
	st, err := m.opened(c.Mints(), m.patience)
	m.patience = 0
	for _, a := range c.APIs() {
		for _, cr := range a.Credentials {
			if cr.Mint == nil {
				continue
			}
			s := m.adopt(a, cr)
			if s == nil {
				s = &state{name: cr.Name, conf: cr, api: a, kind: m.kindOf(cr.Mint), unread: st == nil}
				if st != nil {
					values, loaded = append(values, s.load(st, m.now())...), append(loaded, s)
				}
			}
			next[cr.Name] = s
		}
	}
	if len(values) > 0 {
		if added := m.conf.Values.Add(values...); added != nil {
			err = errors.Join(err, added)
			for _, s := range loaded { // what is not known is not used
				s.unload()
			}
		}
	}
	var known *scrub.Scrubber
	if c.Mints() {
		known = scrub.New(c.AllSecrets())
	}
	m.mu.Lock()
	old := m.states
	m.states, m.known, m.catalog = next, known, c
	m.mu.Unlock()
	m.ahead(next, old)
	m.storing.Lock() // what a former state obtained is stored now or never
	defer m.storing.Unlock()
	for name, s := range old {
		if next[name] != s {
			m.leave(s, next[name] == nil)
		}
	}
	m.mu.Lock()
	left := maps.Clone(m.leaving)
	m.mu.Unlock()
	for name, s := range left {
		if next[name] != nil && next[name] != s {
			m.leave(s, false)
		}
	}
	return err
}

// leave ends a state. With finish a renewal that is under way is finished and stored: a configuration may be away for a
// moment only, and the refresh token that was sent is used up.
func (m *Minter) leave(s *state, finish bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if finish && s.flight != nil {
		m.leaving[s.name] = s
		return
	}
	s.gone = true
	if m.leaving[s.name] == s {
		delete(m.leaving, s.name)
	}
	_ = m.conf.Values.Add(s.over(s.kept, m.now())...)
}

// ahead obtains what secret managers and files hold before a request uses it: a server that has seen it before may show
// it to code that has not used its name. It waits for files alone.
func (m *Minter) ahead(next, old map[string]*state) {
	var files []*flight
	for name, s := range next {
		_, isCommand := s.conf.Mint.(*catalog.Command)
		if old[name] == s || !s.api.Active || s.kind == nil || s.kind.stored() || isCommand {
			continue
		}
		s.mu.Lock()
		f := m.renew(s)
		s.mu.Unlock()
		if _, isFile := s.conf.Mint.(*catalog.File); isFile {
			files = append(files, f)
		}
	}
	for _, f := range files {
		<-f.done
	}
}

// opened returns the store, which it opens when it is first needed.
func (m *Minter) opened(needed bool, patience time.Duration) (*store, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.store != nil || !needed {
		return m.store, nil
	}
	if m.closed {
		return nil, errors.New("the proxy ends")
	}
	st, err := openStore(m.conf.Dir, patience)
	if err != nil {
		return nil, fmt.Errorf("the folder for tokens: %w", err)
	}
	m.store = st
	return st, nil
}

// adopt returns the state of a credential that is obtained as before, with its configuration replaced. Nil means that
// there is none.
func (m *Minter) adopt(a *catalog.API, cr catalog.Credential) *state {
	m.mu.Lock()
	s := m.states[cr.Name]
	if s == nil {
		s = m.leaving[cr.Name]
	}
	m.mu.Unlock()
	if s == nil || s.conf.MintDigest() != cr.MintDigest() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return nil
	}
	m.mu.Lock()
	delete(m.leaving, cr.Name)
	m.mu.Unlock()
	if !s.conf.Same(cr) { // another client secret, perhaps the right one
		s.failed, s.nextTry, s.attempts = nil, time.Time{}, 0
	}
	s.conf, s.api, s.kind = cr, a, m.kindOf(cr.Mint)
	return s
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
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store.close()
	m.store = nil
}
