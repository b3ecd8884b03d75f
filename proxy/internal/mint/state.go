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
	unread   bool // the folder could not be opened yet
}

// read takes over what is stored if the folder could not be opened before. It reports whether that can be used.
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

// flight is one renewal under way.
type flight struct {
	done chan struct{}
	err  *Error // valid once done is closed
}

// load takes over what is stored, and returns what must be known: also what was obtained with another configuration,
// and is not used.
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
	if k.Digest == s.conf.MintDigest() {
		s.kept, s.renewAt = k, renewal(k)
	}
	return values
}

// unload forgets what was loaded and cannot be used.
func (s *state) unload() {
	s.kept, s.renewAt = kept{}, time.Time{}
	s.failed = &Error{Name: s.name, Code: policy.CodeTokenUnavailable, Detail: detailStorage}
}

// values are what must be known of a kept credential while it is the current one: whatever the clock says, which may go
// back.
func (s *state) values(k kept, now time.Time) []minted.Value {
	return s.known(k, now.Add(forever), now.Add(forever))
}

// over are the values of a kept credential that is not the current one any more.
func (s *state) over(k kept, now time.Time) []minted.Value {
	until := now.Add(afterSource)
	if k.Forget != nil {
		until = *k.Forget
	}
	return s.known(k, until, now.Add(after))
}

// known are the values of a kept credential: the token and what it is used with until one time, and what gets the next
// one until another.
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
	//defence:stale-token permits
	return k.Expires == nil || now.Before(*k.Expires) && now.After(k.Minted.Add(-skew))
}

// mayTry reports whether an attempt may begin after those that failed. The caller holds mu.
func (s *state) mayTry(now time.Time) bool {
	return s.failed == nil || now.After(s.nextTry) || s.nextTry.Sub(now) > backoffEnded // the clock went back
}
