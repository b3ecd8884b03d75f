package mint

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
)

// credentialState is the state of one credential. Minter.mu guards it.
type credentialState struct {
	name    string
	conf    catalog.Credential
	api     *catalog.API
	gone    bool // another configuration has replaced it
	serial  int  // grows with every login, logout and supplied value; a renewal that began with an older serial fails
	kept    storedToken
	renewAt time.Time
	flight  *renewal
	// unstored is a received value that could not be stored. It is stored before the next request to the server.
	unstored *storedToken
	failed   *Error
	attempts int
	nextTry  time.Time
	refused  time.Time // the start of the last renewal because of a refusal
	unread   bool      // the folder could not be opened yet
}

// loadIfUnread takes over the stored value if the folder could not be opened before. It reports whether that value is
// usable.
func (s *credentialState) loadIfUnread(st *tokenStore, values *renewedvalues.Values, now time.Time) bool {
	if !s.unread {
		return false
	}
	s.unread = false
	if found := s.loadStored(st, now); values.AddValues(found...) != nil {
		s.dropLoaded()
	}
	return s.isUsable(now)
}

// renewal is a renewal under way.
type renewal struct {
	done chan struct{}
	err  *Error // valid once done is closed
}

// loadStored takes over the stored value. It returns all stored values that scrub must know, including those of another
// configuration, which are not used.
func (s *credentialState) loadStored(st *tokenStore, now time.Time) []renewedvalues.Value {
	k, err := st.readState(s.name)
	if err != nil {
		s.dropLoaded()
		return nil
	}
	values := s.listValues(k, now)
	if slices.ContainsFunc(values, func(v renewedvalues.Value) bool { return renewedvalues.CheckValue(v.Text) != nil }) {
		s.dropLoaded()
		return nil
	}
	// Values of another configuration are known, but not used.
	if k.Digest == s.conf.MintDigest() {
		s.kept, s.renewAt = k, renewalTime(k)
	}
	return values
}

// dropLoaded forgets a loaded value that cannot be used.
func (s *credentialState) dropLoaded() {
	s.kept, s.renewAt = storedToken{}, time.Time{}
	s.failed = &Error{Name: s.name, Code: policy.CodeTokenUnavailable, Detail: detailStorage}
}

// listValues returns the values that scrub must know while k is current. They have no end, because the clock may go
// back.
func (s *credentialState) listValues(k storedToken, now time.Time) []renewedvalues.Value {
	return s.listKnown(k, now.Add(forever), now.Add(forever))
}

// listReplaced returns the values of k after another value has replaced it.
func (s *credentialState) listReplaced(k storedToken, now time.Time) []renewedvalues.Value {
	until := now.Add(afterSource)
	if k.Forget != nil {
		until = *k.Forget
	}
	return s.listKnown(k, until, now.Add(searchAfter))
}

// listKnown returns the values of k. The token and its inner secrets are known until one time, and the refresh token
// and client secret until another.
func (s *credentialState) listKnown(k storedToken, until, refreshes time.Time) []renewedvalues.Value {
	var out []renewedvalues.Value
	add := func(text string, inner bool, until time.Time) {
		if text != "" {
			out = append(out, renewedvalues.Value{Name: s.name, Text: text, Inner: inner, Until: until})
		}
	}
	add(k.Access, false, until)
	for _, inner := range k.Inner {
		add(inner, true, until)
	}
	add(k.Refresh, true, refreshes)
	if k.Client != nil {
		add(k.Client.Secret, true, refreshes)
	}
	return out
}

// renewalTime returns the time at which k is renewed. A random part spreads the renewals.
func renewalTime(k storedToken) time.Time {
	switch {
	case k.Renew != nil:
		return *k.Renew
	case k.Expires == nil:
		return time.Time{}
	}
	life := k.Expires.Sub(k.Minted)
	ahead := max(renewBefore, life/10)
	ahead = min(ahead+time.Duration(rand.Int64N(int64(ahead/5)+1)), life/2) //nolint:gosec // it hides nothing
	return k.Expires.Add(-ahead)
}

// isUsable reports whether the stored value has begun and not expired.
func (s *credentialState) isUsable(now time.Time) bool {
	k := &s.kept
	if k.Access == "" {
		return false
	}
	//defence:stale-token permits
	return k.Expires == nil || now.Before(*k.Expires) && now.After(k.Minted.Add(-skew))
}

// canTry reports whether an attempt may begin after earlier failures.
func (s *credentialState) canTry(now time.Time) bool {
	// If nextTry is further away than any pause, the clock went back.
	return s.failed == nil || now.After(s.nextTry) || s.nextTry.Sub(now) > backoffEnded
}
