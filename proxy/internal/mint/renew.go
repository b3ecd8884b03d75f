package mint

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
)

// ObtainValue returns the current value of a credential, to replace its name. If necessary it obtains a value, and
// waits until ctx ends. It fails for a key that signs. The error is an *Error, or the error of ctx.
func (m *Minter) ObtainValue(ctx context.Context, c catalog.Credential) (string, error) {
	if c.IsSigner() {
		return "", &Error{Name: c.Name, Code: policy.CodeNotSignable, Detail: detailNoValue}
	}
	return m.obtainCurrent(ctx, c)
}

// obtainCurrent is ObtainValue, but also returns the secret of a key that signs.
func (m *Minter) obtainCurrent(ctx context.Context, c catalog.Credential) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.findState(c)
	if err != nil {
		return "", err
	}
	now := m.wallTime()
	if s.isUsable(now) {
		// The value is still good, so renew it in the background.
		if !s.renewAt.IsZero() && now.After(s.renewAt) && s.canTry(now) {
			m.startRenewal(s)
		}
		return s.kept.Access, nil
	}
	// During the pause, fail at once instead of asking the server for every request.
	if s.flight == nil && !s.canTry(now) {
		return "", s.failed
	}
	f := m.startRenewal(s)
	if err := m.waitFor(ctx, f); err != nil {
		return "", err
	}
	if f.err != nil {
		return "", f.err
	}
	// The value may be too short-lived, or a logout came in between.
	if !s.isUsable(m.wallTime()) {
		return "", &Error{Name: s.name, Code: policy.CodeTokenUnavailable, Detail: detailLifetime}
	}
	return s.kept.Access, nil
}

// waitFor waits for a renewal without mu, which the caller holds before and after. It returns the cause if ctx ends
// first.
func (m *Minter) waitFor(ctx context.Context, f *renewal) error {
	m.mu.Unlock()
	defer m.mu.Lock()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-f.done:
		return nil
	}
}

// findState finds the state of a credential. It fails if the request's catalog has another configuration. The caller
// holds mu.
func (m *Minter) findState(c catalog.Credential) (*credentialState, error) {
	s := m.states[c.Name]
	if s == nil || s.gone || !s.conf.IsSame(c) {
		return nil, &Error{Name: c.Name, Code: policy.CodeTokenUnavailable, Detail: detailChanged}
	}
	return s, nil
}

// RenewValue renews a credential because a server refused value. It returns true once another value is in force. It
// returns false if no other value can be expected now. A server that always refuses causes at most one renewal per
// refusedAgain.
func (m *Minter) RenewValue(ctx context.Context, c catalog.Credential, value string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.findState(c)
	if err != nil {
		return false
	}
	now := m.wallTime()
	// Another request has already renewed the value.
	if s.kept.Access != value {
		return s.isUsable(now)
	}
	f := s.flight
	if f == nil {
		// If the clock went back, the last refusal is in the future and does not count.
		soon := now.Sub(s.refused) < refusedAgain && !now.Before(s.refused)
		// A credential without an end has no refresh token, so no other value can be obtained.
		endless := s.kept.Expires == nil
		if soon || endless || !s.canTry(now) || m.conf.Values.IsCrowded(s.name) {
			return false
		}
		s.refused = now
		f = m.startRenewal(s)
	}
	return m.waitFor(ctx, f) == nil && f.err == nil && s.kept.Access != value && s.isUsable(m.wallTime())
}

// startRenewal starts a renewal, or returns the one under way. The caller holds mu.
func (m *Minter) startRenewal(s *credentialState) *renewal {
	// Two renewals at once would use up the same refresh token.
	//defence:single-flight
	if s.flight != nil {
		return s.flight
	}
	f := &renewal{done: make(chan struct{})}
	if m.closed {
		f.err = &Error{Name: s.name, Code: policy.CodeTokenUnavailable, Detail: detailChanged}
		close(f.done)
		return f
	}
	s.flight = f
	m.wg.Go(func() { m.runRenewal(s, f) })
	return f
}

// runRenewal runs one renewal from the first step to the last.
func (m *Minter) runRenewal(s *credentialState, f *renewal) {
	// Not the context of a request: other requests wait for this renewal, too.
	ctx, cancel := context.WithTimeout(m.owner.Context(), requestTime)
	defer cancel()
	if err := m.attemptRenewal(ctx, s); err != nil {
		f.err = asError(s.name, err)
		m.conf.Log.LogAttrs(ctx, slog.LevelWarn, "a credential could not be obtained", logline.Tag("mint"),
			slog.String("credential", s.name), slog.String("code", f.err.Code), slog.String("detail", f.err.Detail))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// After the state is set: waiting requests look at it.
	defer close(f.done)
	s.flight = nil
	if m.leaving[s.name] == s {
		delete(m.leaving, s.name)
		s.gone = true
	}
	if f.err == nil {
		s.failed, s.attempts, s.nextTry = nil, 0, time.Time{}
		return
	}
	pause := min(backoffMin<<min(s.attempts, 10), backoffMax)
	if f.err.Code == policy.CodeLoginNeeded {
		pause = backoffEnded
	}
	s.failed, s.attempts, s.nextTry = f.err, s.attempts+1, m.wallTime().Add(pause)
}

// attemptRenewal obtains a value, stores it, publishes it and puts it in force.
func (m *Minter) attemptRenewal(ctx context.Context, s *credentialState) error {
	m.mu.Lock()
	unstored, conf, serial, old := s.unstored, s.conf, s.serial, s.kept
	m.mu.Unlock()
	switch {
	case !isObtained(conf.Mint):
		return newUnavailable(detailKind)
	case !isStored(conf.Mint):
		return m.obtainNext(ctx, s, conf, old, serial, nil)
	}
	st, err := m.openStoreOnce(true, 0)
	if err != nil {
		return newUnavailable(detailStorage)
	}
	m.mu.Lock()
	// The folder could not be opened before. A stored value may make the request to the server unnecessary.
	isUsable := s.loadIfUnread(st, m.conf.Values, m.wallTime())
	old = s.kept
	m.mu.Unlock()
	if isUsable {
		return nil
	}
	// A former renewal could not be stored. Store its value first, because its refresh token is the only valid one.
	if unstored != nil {
		return m.storeAndPublish(s, serial, *unstored, func(next storedToken) error { return st.writeState(s.name, next) })
	}
	// Take the room on the disk before the refresh token is used up.
	d, err := st.beginDraft(s.name)
	if err != nil {
		return newUnavailable(detailStorage)
	}
	defer d.discardDraft()
	return m.obtainNext(ctx, s, conf, old, serial, d.commit)
}

// obtainNext asks for the next value, and takes it over.
func (m *Minter) obtainNext(
	ctx context.Context, s *credentialState, conf catalog.Credential, old storedToken, serial int,
	commit func(storedToken) error,
) error {
	began, digest := m.wallTime(), conf.MintDigest()
	atStep("ask")
	g, err := m.obtainGrant(ctx, conf.Mint, m.newRequester(s), old)
	var next storedToken
	if err == nil {
		atStep("answered")
		next, err = m.acceptToken(s.name, g, old, digest, began)
	}
	if err == nil {
		return m.storeAndPublish(s, serial, next, commit)
	}
	// The old refresh token is used up, even if the rest of the answer is unusable. So keep the new one.
	if old.Refresh != "" && g.Refresh != old.Refresh && m.canBeSecret(g.Refresh) {
		old.Digest, old.Refresh = digest, g.Refresh
		return errors.Join(err, m.storeAndPublish(s, serial, old, commit))
	}
	return err
}

// canBeSecret reports whether a text that a server chose may be a refresh token or a client secret. The proxy masks it
// in the responses of every API, and refuses requests that contain it.
func (m *Minter) canBeSecret(text string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return renewedvalues.CheckValue(text) == nil && isPlausible(text) && !hasTokenName(m.catalog, text) &&
		!m.known.Contains(text)
}

func hasTokenName(c *catalog.Catalog, text string) bool {
	in := func(c catalog.Credential) bool { return strings.Contains(text, c.Name) }
	return slices.ContainsFunc(c.AllCredentials(), in)
}

// acceptToken turns a grant into a stored value, or rejects it. name is the token name, and began is the time of the
// request.
func (m *Minter) acceptToken(name string, g grant, old storedToken, digest string, began time.Time) (storedToken,
	error) {
	next := storedToken{Digest: digest, Access: g.Access, Minted: began, Refresh: old.Refresh, Client: old.Client,
		Inner: g.Inner}
	if g.Refresh != "" {
		next.Refresh = g.Refresh
	}
	if g.Client != nil {
		next.Client = g.Client
	}
	switch life := g.Life; {
	case g.Endless:
	case g.Stale > 0:
		next.Renew, next.Expires = endOfLife(began, life), endOfLife(began, life+g.Stale)
	case life == 0:
		next.Expires, next.Forget = endOfLife(began, defaultLife), endOfLife(began, afterUnknown)
	case life < minLife:
		return storedToken{}, newUnavailable(detailLifetime)
	default:
		// A longer life could overflow a time.
		life = min(life, maxLife)
		next.Expires, next.Forget = endOfLife(began, life), endOfLife(began, life+searchAfter)
	}
	m.mu.Lock()
	known, all := m.known, m.catalog
	m.mu.Unlock()
	if hasTokenName(all, g.Access) {
		return storedToken{}, newUnavailable(detailUnusable)
	}
	for _, text := range append([]string{next.Access}, next.Inner...) {
		if renewedvalues.CheckValue(text) != nil {
			return storedToken{}, newUnavailable(detailUnusable)
		}
		// A server that echoes a secret as a token would make the proxy send this secret to an API.
		//defence:mint-echo
		if hasEcho(known, text, next, old) {
			return storedToken{}, newUnavailable(detailEcho)
		}
	}
	switch another := next.Refresh != old.Refresh; {
	case g.Issued && !isPlausible(next.Access), another && !isPlausible(next.Refresh):
		return storedToken{}, newUnavailable(detailPlain)
	case another && !m.canBeSecret(next.Refresh):
		return storedToken{}, newUnavailable(detailUnusable)
	}
	return next, nil
}

func endOfLife(began time.Time, life time.Duration) *time.Time {
	t := began.Add(life)
	return &t
}

// hasEcho reports whether a token contains a secret that must never be sent to an API: a credential, a secret inside
// one, or a refresh token.
func hasEcho(known *scrub.Scrubber, text string, next, old storedToken) bool {
	own := convert.Each([]string{next.Refresh, old.Refresh}, maskSecret)
	if next.Client != nil {
		own = append(own, maskSecret(next.Client.Secret))
	}
	return known.Contains(text) || scrub.New(own).Contains(text)
}

// storeAndPublish stores a value, publishes it and puts it in force, in this order. It fails if another change has
// happened since serial. Only requests for this value wait for the disk and the patterns. A value that could not be
// stored stays in memory, unused. commit stores the value; nil means that it is not stored.
func (m *Minter) storeAndPublish(s *credentialState, serial int, next storedToken,
	commit func(storedToken) error) error {
	if err := m.saveValue(s, serial, next, commit); err != nil {
		return err
	}
	m.mu.Lock()
	old := s.kept
	m.mu.Unlock()
	now := m.wallTime()
	// If both have a text, the later entry wins, so the text stays known.
	values := append(s.listReplaced(old, now), s.listValues(next, now)...)
	var published error
	// Publish before use: a response could otherwise contain a value that scrub does not know.
	atStep("publish")
	//defence:publish-first
	published = m.conf.Values.AddValues(values...)
	atStep("use")
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	// A login, a logout or a new configuration has overtaken this value.
	case s.gone || s.serial != serial:
		return newUnavailable(detailChanged)
	// The login continues with the new refresh token, but without an access token.
	case published != nil:
		s.kept = storedToken{Digest: next.Digest, Refresh: next.Refresh, Client: next.Client}
		return newUnavailable(detailTooMany)
	}
	s.kept, s.renewAt = next, renewalTime(next)
	m.startDependants(s.name)
	return nil
}

// startDependants obtains the values of secret managers that have waited for a credential, for the reason of
// obtainAhead. The caller holds mu.
func (m *Minter) startDependants(name string) {
	for _, s := range m.states {
		f, isFetch := s.conf.Mint.(*catalog.Fetch)
		if isFetch && s.api.Active && s.kept.Access == "" && slices.Contains(f.Uses, name) {
			m.startRenewal(s)
		}
	}
}

// saveValue stores a value with commit, unless another change has happened since serial.
func (m *Minter) saveValue(s *credentialState, serial int, next storedToken, commit func(storedToken) error) error {
	m.storing.Lock()
	defer m.storing.Unlock()
	// Check under storing: ForgetLogin and Configure also hold it while they change the folder.
	m.mu.Lock()
	late := s.gone || s.serial != serial
	m.mu.Unlock()
	if late {
		return newUnavailable(detailChanged)
	}
	var err error
	//defence:store-first
	if commit != nil {
		err = commit(next)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// The server has already used up the old refresh token, so keep the new one for the next attempt.
	if s.unstored = nil; err != nil {
		s.unstored = &next
		return newUnavailable(detailStorage)
	}
	return nil
}
