package mint

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/minted"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// state is the state of one credential.
type state struct {
	name string
	conf catalog.Credential
	api  *catalog.API
	kind kind

	mu      sync.Mutex
	gone    bool // another configuration has replaced it
	serial  int  // grows with every login, logout and supplied value; a renewal that began with an older serial fails
	kept    kept
	renewAt time.Time
	flight  *flight
	// unstored is a received value that could not be stored. It is stored before the next request to the server.
	unstored *kept
	failed   *Error
	attempts int
	nextTry  time.Time
	refused  time.Time // the start of the last renewal because of a refusal
	unread   bool      // the folder could not be opened yet
}

// read takes over the stored value if the folder could not be opened before. It reports whether that value is usable.
func (s *state) read(st *store, values *minted.Values, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unread {
		return false
	}
	s.unread = false
	if found := s.load(st, now); values.Add(found...) != nil {
		s.unload()
	}
	return s.usable(now)
}

// flight is a renewal under way.
type flight struct {
	done chan struct{}
	err  *Error // valid once done is closed
}

// load takes over the stored value. It returns all stored values that scrub must know, including those of another
// configuration, which are not used.
func (s *state) load(st *store, now time.Time) []minted.Value {
	k, err := st.read(s.name)
	if err != nil {
		s.unload()
		return nil
	}
	values := s.values(k, now)
	if slices.ContainsFunc(values, func(v minted.Value) bool { return minted.Problem(v.Text) != nil }) {
		s.unload()
		return nil
	}
	// Values of another configuration are known, but not used.
	if k.Digest == s.conf.MintDigest() {
		s.kept, s.renewAt = k, renewal(k)
	}
	return values
}

// unload forgets a loaded value that cannot be used.
func (s *state) unload() {
	s.kept, s.renewAt = kept{}, time.Time{}
	s.failed = &Error{Name: s.name, Code: policy.CodeTokenUnavailable, Detail: detailStorage}
}

// values returns the values that scrub must know while k is current. They have no end, because the clock may go back.
func (s *state) values(k kept, now time.Time) []minted.Value {
	return s.known(k, now.Add(forever), now.Add(forever))
}

// over returns the values of k after another value has replaced it.
func (s *state) over(k kept, now time.Time) []minted.Value {
	until := now.Add(afterSource)
	if k.Forget != nil {
		until = *k.Forget
	}
	return s.known(k, until, now.Add(after))
}

// known returns the values of k. The token and its inner secrets are known until one time, and the refresh token and
// client secret until another.
func (s *state) known(k kept, until, refreshes time.Time) []minted.Value {
	var out []minted.Value
	add := func(text string, inner bool, until time.Time) {
		if text != "" {
			out = append(out, minted.Value{Name: s.name, Text: text, Inner: inner, Until: until})
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

// renewal returns the time at which k is renewed. A random part spreads the renewals.
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

// usable reports whether the stored value has begun and not expired. The caller holds mu.
func (s *state) usable(now time.Time) bool {
	k := &s.kept
	if k.Access == "" {
		return false
	}
	//defence:stale-token permits
	return k.Expires == nil || now.Before(*k.Expires) && now.After(k.Minted.Add(-skew))
}

// mayTry reports whether an attempt may begin after earlier failures. The caller holds mu.
func (s *state) mayTry(now time.Time) bool {
	// If nextTry is further away than any pause, the clock went back.
	return s.failed == nil || now.After(s.nextTry) || s.nextTry.Sub(now) > backoffEnded
}
