package mint

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/proxy/internal/minted"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
)

// Value returns the current value of a credential, to replace its name. If necessary it obtains a value, and waits
// until ctx ends. It fails for a key that signs. The error is an *Error, or the error of ctx.
func (m *Minter) Value(ctx context.Context, c catalog.Credential) (string, error) {
	if c.Signs() {
		return "", &Error{Name: c.Name, Code: policy.CodeNotSignable, Detail: detailNoValue}
	}
	return m.current(ctx, c)
}

// current is Value, but also returns the secret of a key that signs.
func (m *Minter) current(ctx context.Context, c catalog.Credential) (string, error) {
	s, err := m.state(c)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	now := m.now()
	if s.usable(now) {
		v := s.kept.Access
		// The value is still good, so renew it in the background.
		if !s.renewAt.IsZero() && now.After(s.renewAt) && s.mayTry(now) {
			m.renew(s)
		}
		s.mu.Unlock()
		return v, nil
	}
	// During the pause, fail at once instead of asking the server for every request.
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
	// The value may be too short-lived, or a logout came in between.
	if !s.usable(m.now()) {
		return "", &Error{Name: s.name, Code: policy.CodeTokenUnavailable, Detail: detailLifetime}
	}
	return s.kept.Access, nil
}

// state finds the state of a credential. It fails if the request's catalog has another configuration.
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

// Renewed renews a credential because a server refused value. It returns true once another value is in force. It
// returns false if no other value can be expected now. A server that always refuses causes at most one renewal per
// refusedAgain.
func (m *Minter) Renewed(ctx context.Context, c catalog.Credential, value string) bool {
	s, err := m.state(c)
	if err != nil {
		return false
	}
	s.mu.Lock()
	now := m.now()
	// Another request has already renewed the value.
	if s.kept.Access != value {
		ok := s.usable(now)
		s.mu.Unlock()
		return ok
	}
	f := s.flight
	if f == nil {
		// If the clock went back, the last refusal is in the future and does not count.
		soon := now.Sub(s.refused) < refusedAgain && !now.Before(s.refused)
		// A credential without an end has no refresh token, so no other value can be obtained.
		endless := s.kept.Expires == nil
		if soon || endless || !s.mayTry(now) || m.conf.Values.Crowded(s.name) {
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
	// Two renewals at once would use up the same refresh token.
	//defence:single-flight
	if s.flight != nil {
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

// fly runs one renewal from the first step to the last.
func (m *Minter) fly(s *state, f *flight) {
	// Not the context of a request: other requests wait for this renewal, too.
	ctx, cancel := context.WithTimeout(m.owner.ctx, requestTime)
	defer cancel()
	err := m.attempt(ctx, s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flight = nil
	m.mu.Lock()
	if m.leaving[s.name] == s {
		delete(m.leaving, s.name)
		s.gone = true
	}
	m.mu.Unlock()
	if err == nil {
		s.failed, s.attempts, s.nextTry = nil, 0, time.Time{}
		// After the state is set: waiting requests look at it.
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

// attempt obtains a value, stores it, publishes it and puts it in force.
func (m *Minter) attempt(ctx context.Context, s *state) error {
	s.mu.Lock()
	unstored, k, serial, old := s.unstored, s.kind, s.serial, s.kept
	digest := s.conf.MintDigest()
	s.mu.Unlock()
	switch {
	case k == nil:
		return unavailable(detailKind)
	case !k.stored():
		return m.obtain(ctx, s, k, old, serial, digest, nil)
	}
	st, err := m.opened(true, 0)
	if err != nil {
		return unavailable(detailStorage)
	}
	// The folder could not be opened before. A stored value may make the request to the server unnecessary.
	if s.read(st, m.conf.Values, m.now()) {
		return nil
	}
	s.mu.Lock()
	old = s.kept
	s.mu.Unlock()
	// A former renewal could not be stored. Store its value first, because its refresh token is the only valid one.
	if unstored != nil {
		return m.put(s, serial, *unstored, func(next kept) error { return st.write(s.name, next) })
	}
	// Take the room on the disk before the refresh token is used up.
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
	var next kept
	if err == nil {
		step("answered")
		next, err = m.judge(s.name, g, old, digest, began)
	}
	if err == nil {
		return m.put(s, serial, next, commit)
	}
	// The old refresh token is used up, even if the rest of the answer is unusable. So keep the new one.
	if old.Refresh != "" && g.Refresh != old.Refresh && m.fits(g.Refresh) {
		old.Digest, old.Refresh = digest, g.Refresh
		return errors.Join(err, m.put(s, serial, old, commit))
	}
	return err
}

// fits reports whether a text that a server chose may be a refresh token or a client secret. The proxy masks it in the
// responses of every API, and refuses requests that contain it.
func (m *Minter) fits(text string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return minted.Problem(text) == nil && plausible(text) && !names(m.catalog, text) && !m.known.Contains(text)
}

// names reports whether a text contains a token name.
func names(c *catalog.Catalog, text string) bool {
	in := func(c catalog.Credential) bool { return strings.Contains(text, c.Name) }
	return slices.ContainsFunc(c.AllCredentials(), in)
}

// judge turns a grant into a stored value, or rejects it. name is the token name, and began is the time of the request.
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
		// A longer life could overflow a time.
		life = min(life, maxLife)
		next.Expires, next.Forget = end(began, life), end(began, life+after)
	}
	m.mu.Lock()
	known, all := m.known, m.catalog
	m.mu.Unlock()
	if names(all, g.Access) {
		return kept{}, unavailable(detailUnusable)
	}
	for _, text := range append([]string{next.Access}, next.Inner...) {
		if minted.Problem(text) != nil {
			return kept{}, unavailable(detailUnusable)
		}
		// A server that echoes a secret as a token would make the proxy send this secret to an API.
		//defence:mint-echo
		if echoes(known, text, next, old) {
			return kept{}, unavailable(detailEcho)
		}
	}
	switch another := next.Refresh != old.Refresh; {
	case g.Issued && !plausible(next.Access), another && !plausible(next.Refresh):
		return kept{}, unavailable(detailPlain)
	case another && !m.fits(next.Refresh):
		return kept{}, unavailable(detailUnusable)
	}
	return next, nil
}

func end(began time.Time, life time.Duration) *time.Time {
	t := began.Add(life)
	return &t
}

// echoes reports whether a token contains a secret that must never be sent to an API: a credential, a secret inside
// one, or a refresh token.
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

// put stores a value, publishes it and puts it in force, in this order. It fails if another change has happened since
// serial. Only requests for this value wait for the disk and the patterns. A value that could not be stored stays in
// memory, unused. commit stores the value; nil means that it is not stored.
func (m *Minter) put(s *state, serial int, next kept, commit func(kept) error) error {
	if err := m.save(s, serial, next, commit); err != nil {
		return err
	}
	s.mu.Lock()
	old := s.kept
	s.mu.Unlock()
	now := m.now()
	// If both have a text, the later entry wins, so the text stays known.
	values := append(s.over(old, now), s.values(next, now)...)
	var published error
	// Publish before use: a response could otherwise contain a value that scrub does not know.
	step("publish")
	//defence:publish-first
	published = m.conf.Values.Add(values...)
	step("use")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	// A login, a logout or a new configuration has overtaken this value.
	case s.gone || s.serial != serial:
		return unavailable(detailChanged)
	// The login continues with the new refresh token, but without an access token.
	case published != nil:
		s.kept = kept{Digest: next.Digest, Refresh: next.Refresh, Client: next.Client}
		return unavailable(detailTooMany)
	}
	s.kept, s.renewAt = next, renewal(next)
	return nil
}

// save stores a value with commit, unless another change has happened since serial.
func (m *Minter) save(s *state, serial int, next kept, commit func(kept) error) error {
	m.storing.Lock()
	defer m.storing.Unlock()
	// Check under storing: Logout and Configure also hold it while they change the folder.
	s.mu.Lock()
	late := s.gone || s.serial != serial
	s.mu.Unlock()
	if late {
		return unavailable(detailChanged)
	}
	var err error
	//defence:store-first
	if commit != nil {
		err = commit(next)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The server has already used up the old refresh token, so keep the new one for the next attempt.
	if s.unstored = nil; err != nil {
		s.unstored = &next
		return unavailable(detailStorage)
	}
	return nil
}
