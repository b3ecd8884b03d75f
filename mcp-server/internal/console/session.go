package console

import (
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"sync"
	"time"
)

const (
	// codeTime is how long a code is valid. sessionTime is how long a session lasts.
	codeTime    = time.Minute
	sessionTime = 12 * time.Hour
	// maxCodes and maxSessions bound the stored codes and sessions. A new one replaces the oldest.
	maxCodes    = 16
	maxSessions = 32
	// maxAgent bounds the browser's User-Agent, in bytes.
	maxAgent = 200
)

// secretDigest is the stored form of a code or a bearer, so that a reader of this memory cannot sign in.
type secretDigest [sha256.Size]byte

// sessionStore are the valid codes and bearers. The zero value is ready to use.
type sessionStore struct {
	now func() time.Time // nil: time.Now

	mu    sync.Mutex
	codes []signInCode
	open  []browserSession // oldest first
}

type signInCode struct {
	digest secretDigest
	until  time.Time
}

type browserSession struct {
	bearer secretDigest
	ID     string    `json:"id"`
	Opened time.Time `json:"opened"`
	Until  time.Time `json:"until"`
	// Agent is the browser's User-Agent.
	Agent string `json:"agent"`
	// This marks the session of the request.
	This bool `json:"this,omitempty"`
	// ended is closed with the session, so that its streams end.
	ended chan struct{}
}

func (s *sessionStore) currentTime() time.Time {
	if s.now != nil {
		return s.now()
	}
	return time.Now()
}

// NewSignInCode returns a new code that opens one session within a minute.
func (s *sessionStore) NewSignInCode() string {
	text := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeExpired()
	// The oldest code gives way, so that a new one always works.
	if len(s.codes) >= maxCodes {
		s.codes = s.codes[1:]
	}
	s.codes = append(s.codes, signInCode{sha256.Sum256([]byte(text)), s.currentTime().Add(codeTime)})
	return text
}

// useSignInCode reports whether a code is valid, and removes it.
func (s *sessionStore) useSignInCode(text string) bool {
	sum := secretDigest(sha256.Sum256([]byte(text)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeExpired()
	// Comparing digests reveals no part of the code by its time.
	i := slices.IndexFunc(s.codes, func(c signInCode) bool { return c.digest == sum })
	if i < 0 {
		return false
	}
	//defence:console-code
	s.codes = slices.Delete(s.codes, i, i+1)
	return true
}

func (s *sessionStore) openSession(agent string) (bearer string, opened browserSession) {
	bearer = rand.Text() + rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeExpired()
	if len(s.open) >= maxSessions {
		// Its streams must end with it.
		close(s.open[0].ended)
		s.open = slices.Delete(s.open, 0, 1)
	}
	now := s.currentTime()
	if len(agent) > maxAgent {
		agent = agent[:maxAgent]
	}
	opened = browserSession{
		bearer: sha256.Sum256([]byte(bearer)), ID: rand.Text()[:8], Opened: now, Until: now.Add(sessionTime), Agent: agent,
		ended: make(chan struct{}),
	}
	s.open = append(s.open, opened)
	return bearer, opened
}

func (s *sessionStore) findSession(bearer string) (browserSession, bool) {
	sum := secretDigest(sha256.Sum256([]byte(bearer)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeExpired()
	i := slices.IndexFunc(s.open, func(o browserSession) bool { return o.bearer == sum })
	if i < 0 {
		return browserSession{}, false
	}
	return s.open[i], true
}

func (s *sessionStore) closeSession(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.open, func(o browserSession) bool { return o.ID == id })
	if i < 0 {
		return false
	}
	//defence:console-end
	close(s.open[i].ended)
	//defence:console-end
	s.open = slices.Delete(s.open, i, i+1)
	return true
}

func (s *sessionStore) listSessions(this string) []browserSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeExpired()
	out := slices.Clone(s.open)
	for i := range out {
		out[i].This = out[i].ID == this
	}
	return out
}

// removeExpired removes expired codes and sessions. The caller holds the lock.
func (s *sessionStore) removeExpired() {
	now := s.currentTime()
	s.codes = slices.DeleteFunc(s.codes, func(c signInCode) bool { return hasPassed(now, c.until) })
	s.open = slices.DeleteFunc(s.open, func(o browserSession) bool {
		//defence:console-end
		over := hasPassed(now, o.Until)
		if over {
			close(o.ended)
		}
		return over
	})
}

// hasPassed reports whether a time has passed on either clock. The monotonic clock stops while a machine sleeps, and
// the wall clock can be set back.
func hasPassed(now, until time.Time) bool { return !now.Before(until) || !now.Round(0).Before(until) }
