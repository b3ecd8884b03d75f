// Package mint obtains the credentials that change: access tokens, short-lived keys, and values of secret managers.
// Each kind has a file (oauth2.go, githubapp.go, aws.go ...); renew.go decides when to obtain a credential.
//
// Contract: a credential is obtained when a request uses it, and renewed before it expires. Each credential has at most
// one renewal under way, in its own context, regardless of the number of waiting requests. A new value is first stored,
// then made known to scrub and swap (package renewedvalues), and only then used. An expired credential is never used;
// if there is no other, the request fails.
//
// Threat: a server that answers slowly, endlessly, with a redirect, or with a secret instead of a token. A process that
// is killed between any two steps. Code that makes the proxy renew without end. No text that a server chose leaves this
// package, except the credential.
package mint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
)

const (
	// defaultLife is the life of a token if the server states none.
	defaultLife = 5 * time.Minute
	// minLife is the shortest useful life. A life of maxLife counts as endless.
	minLife = 30 * time.Second
	maxLife = 10 * 365 * 24 * time.Hour
	// renewBefore is the minimum time before the expiry at which a token is renewed. It is a tenth of the token's life if
	// that is longer, and never more than half.
	renewBefore = time.Minute
	// searchAfter is the time after its expiry for which a value is still searched for in responses.
	searchAfter = time.Hour
	// afterUnknown is the time from its beginning for which a value without a stated life is searched for. afterSource is
	// the time for which a replaced value of a secret manager is searched for. Both values may be valid for longer than
	// they are used.
	afterUnknown, afterSource = 8 * time.Hour, 4 * time.Hour
	// staleSource is the time for which a value of a secret manager is used beyond its life if there is no newer value.
	staleSource = time.Hour
	// forever replaces a missing end.
	forever = 100 * 365 * 24 * time.Hour
	// refusedAgain is the minimum time between two renewals because a server refused the token. A crowded credential is
	// renewed only because of its expiry.
	refusedAgain = time.Minute
	// The time between failed attempts grows from backoffMin to backoffMax. An ended login is not tried again for
	// backoffEnded.
	backoffMin, backoffMax, backoffEnded = time.Second, time.Minute, 10 * time.Minute
	// skew is the time by which a clock may go back before a value counts as expired.
	skew = time.Minute
	// closeTime is the time that Close waits for renewals, so that received values are stored.
	closeTime = 5 * time.Second
	// lockTime is the time that a starting proxy waits for another proxy that ends.
	lockTime = 10 * time.Second
)

// Config configures a Minter.
type Config struct {
	Transport Transport
	// Values receives the obtained values.
	Values *renewedvalues.Values
	// Dir is the folder tokens/.
	Dir string
	// APIs is the folder apis/.
	APIs      string
	UserAgent string
	Log       *slog.Logger
	// Login is called after a login, and with out after a logout. It may be nil.
	Login func(name string, out bool)
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// Minter obtains credentials. Make one with New, then call Configure with the catalog.
type Minter struct {
	conf  Config
	owner *upstream.ContextOwner
	end   context.CancelFunc
	// patience is the time that the first Configure waits for another proxy that ends.
	patience time.Duration
	wg       sync.WaitGroup

	loading sync.Mutex // one Configure at a time
	storing sync.Mutex // one change of the folder at a time; taken before mu

	mu     sync.Mutex  // also guards all states, and all logins except for their polls
	store  *tokenStore // nil until there is a credential to obtain
	states map[string]*credentialState
	// leaving are credentials that no API has any more, with a renewal in progress that will be stored.
	leaving map[string]*credentialState
	catalog *catalog.Catalog
	known   *scrub.Scrubber // the fixed secrets of the catalog: no token may contain one
	closed  bool

	logins map[string]*login // the logins that wait for a person, by id
}

// New makes a Minter without a catalog.
func New(c Config) *Minter {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Login == nil {
		c.Login = func(string, bool) {}
	}
	m := &Minter{conf: c, patience: lockTime, states: map[string]*credentialState{},
		leaving: map[string]*credentialState{}, logins: map[string]*login{}}
	ctx, end := context.WithCancel(context.Background())
	m.owner, m.end = upstream.NewOwner(ctx), end
	return m
}

// wallTime returns the wall clock's time. The monotonic clock stands still while a machine sleeps, but tokens expire.
func (m *Minter) wallTime() time.Time { return m.conf.Now().Round(0) }

// grant is an obtained value.
type grant struct {
	Access string
	// Issued means that a token server chose the value, not the user.
	Issued bool
	// Life is the life of the value. 0 means that the server states none.
	Life time.Duration
	// Stale is the time for which the value may be used beyond Life if there is no newer value.
	Stale time.Duration
	// Endless means that the value does not expire.
	Endless bool
	// Refresh replaces the stored refresh token. If it is empty, the stored one stays.
	Refresh string
	// Inner are further secrets that belong to the value.
	Inner []string
	// Client replaces the stored client. If it is nil, the stored one stays.
	Client *client
}

// obtainGrant returns the next value of a credential. old is the stored value. Only one call for a credential is under
// way at a time.
func (m *Minter) obtainGrant(ctx context.Context, how catalog.Mint, r *requester, old storedToken) (grant, error) {
	switch how := how.(type) {
	case *catalog.OAuth2:
		return (&oauth2{how}).obtainGrant(ctx, r, old)
	case *catalog.GitHubApp:
		return r.obtainInstallationToken(ctx, how, m.wallTime())
	case *catalog.Google:
		return r.obtainGoogleToken(ctx, how, m.wallTime())
	case *catalog.AWS:
		return r.assumeRole(ctx, how, m.wallTime)
	case *catalog.Fetch:
		return m.fetchSecret(ctx, how, r)
	case *catalog.File:
		return readFile(how, m.conf.APIs)
	}
	// Only the feeder outside the proxy supplies the value of a command.
	return grant{}, &Error{Code: policy.CodeSecretUnavailable, Detail: detailNotSupplied}
}

// isObtained reports whether a Mint has values. The keys that only sign have none.
func isObtained(how catalog.Mint) bool {
	switch how := how.(type) {
	case *catalog.HMAC:
		return false
	case *catalog.AWS:
		return how.RoleARN != ""
	}
	return true
}

// isStored reports whether the values are stored. Values from outside the proxy are not copied to a disk.
func isStored(how catalog.Mint) bool {
	switch how.(type) {
	case *catalog.Fetch, *catalog.File, *catalog.Command:
		return false
	}
	return true
}

// findCredential finds a credential of the current catalog, and its API, also an internal one. The API is nil if the
// catalog has no such credential.
func (m *Minter) findCredential(name string) (catalog.Credential, *catalog.API) {
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

// Configure puts a catalog in force. Call it before the catalog judges a request. When Configure returns, scrub and
// swap know the stored values of the catalog's credentials. An error means that the folder cannot be used: those
// credentials then fail.
func (m *Minter) Configure(c *catalog.Catalog) error {
	m.loading.Lock()
	defer m.loading.Unlock()
	// All values are added at once: each Add compiles the patterns again.
	next, loaded, values := map[string]*credentialState{}, []*credentialState{}, []renewedvalues.Value{}
	st, err := m.openStoreOnce(c.HasMint(), m.patience)
	m.patience = 0
	for _, a := range c.APIs() {
		for _, cr := range a.Credentials {
			if cr.Mint == nil {
				continue
			}
			s := m.adoptState(a, cr)
			if s == nil {
				s = &credentialState{name: cr.Name, conf: cr, api: a, unread: st == nil}
				if st != nil {
					values, loaded = append(values, s.loadStored(st, m.wallTime())...), append(loaded, s)
				}
			}
			next[cr.Name] = s
		}
	}
	if len(values) > 0 {
		if added := m.conf.Values.AddValues(values...); added != nil {
			err = errors.Join(err, added)
			// The scrubber does not know these values, so they must not be used.
			for _, s := range loaded {
				s.dropLoaded()
			}
		}
	}
	var known *scrub.Scrubber
	if c.HasMint() {
		known = scrub.New(c.AllSecrets())
	}
	m.mu.Lock()
	old := m.states
	m.states, m.known, m.catalog = next, known, c
	m.mu.Unlock()
	m.obtainAhead(next)
	// Wait until no renewal is being stored. After that, a replaced state stores nothing.
	m.storing.Lock()
	defer m.storing.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, s := range old {
		if next[name] != s {
			m.endState(s, next[name] == nil)
		}
	}
	for name, s := range m.leaving {
		if next[name] != nil && next[name] != s {
			m.endState(s, false)
		}
	}
	return err
}

// endState ends a state. With finish, a renewal under way is finished and stored. The configuration may be missing only
// for a moment, and the sent refresh token is already used up. The caller holds mu.
func (m *Minter) endState(s *credentialState, finish bool) {
	if finish && s.flight != nil {
		m.leaving[s.name] = s
		return
	}
	s.gone = true
	if m.leaving[s.name] == s {
		delete(m.leaving, s.name)
	}
	_ = m.conf.Values.AddValues(s.listReplaced(s.kept, m.wallTime())...)
}

// obtainAhead obtains the missing values of secret managers and files before a request uses them. Otherwise a server
// that has seen such a value could show it to code that has not used its name. It waits only for files.
func (m *Minter) obtainAhead(states map[string]*credentialState) {
	var files []*renewal
	m.mu.Lock()
	for _, s := range states {
		_, isFetch := s.conf.Mint.(*catalog.Fetch)
		_, isFile := s.conf.Mint.(*catalog.File)
		// An unchanged state may lack its value: its API, or that of a credential that it needs, was inactive.
		if !s.api.Active || !isFetch && !isFile || s.isUsable(m.wallTime()) {
			continue
		}
		if f := m.startRenewal(s); isFile {
			files = append(files, f)
		}
	}
	m.mu.Unlock()
	for _, f := range files {
		<-f.done
	}
}

// openStoreOnce returns the store. It opens the store when it is first needed.
func (m *Minter) openStoreOnce(needed bool, patience time.Duration) (*tokenStore, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.store != nil || !needed {
		return m.store, nil
	}
	// A renewal that starts now could open the folder after Close has left it.
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

// adoptState returns the existing state of a credential whose way to obtain it is unchanged, and replaces its
// configuration. It returns nil if there is no such state.
func (m *Minter) adoptState(a *catalog.API, cr catalog.Credential) *credentialState {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := cmp.Or(m.states[cr.Name], m.leaving[cr.Name])
	if s == nil || s.gone || s.conf.MintDigest() != cr.MintDigest() {
		return nil
	}
	delete(m.leaving, cr.Name)
	// The new configuration may have another client secret, perhaps the right one, so forget the failures.
	if !s.conf.IsSame(cr) {
		s.failed, s.nextTry, s.attempts = nil, time.Time{}, 0
	}
	s.conf, s.api = cr, a
	return s
}

// Close ends the renewals. Renewals under way have closeTime to be stored.
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
	// The time is over: cancel the requests that are still under way.
	m.end()
	<-done
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store.close()
	m.store = nil
}
