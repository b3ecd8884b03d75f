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

// digest is the stored form of a code or a bearer, so that a reader of this memory cannot sign in.
type digest [sha256.Size]byte

// sessions are the valid codes and bearers. The zero value is ready to use.
type sessions struct {
	now func() time.Time // nil: time.Now

	mu    sync.Mutex
	codes []code
	open  []session // oldest first
}

type code struct {
	digest digest
	until  time.Time
}

// session is one signed-in browser.
type session struct {
	bearer digest
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

func (s *sessions) time() time.Time {
	if s.now != nil {
		return s.now()
	}
	return time.Now()
}

// Code returns a new code that opens one session within a minute.
func (s *sessions) Code() string {
	text := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	// The oldest code gives way, so that a new one always works.
	if len(s.codes) >= maxCodes {
		s.codes = s.codes[1:]
	}
	s.codes = append(s.codes, code{sha256.Sum256([]byte(text)), s.time().Add(codeTime)})
	return text
}

// use reports whether a code is valid, and removes it.
func (s *sessions) use(text string) bool {
	sum := digest(sha256.Sum256([]byte(text)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	// Comparing digests reveals no part of the code by its time.
	i := slices.IndexFunc(s.codes, func(c code) bool { return c.digest == sum })
	if i < 0 {
		return false
	}
	//defence:console-code
	s.codes = slices.Delete(s.codes, i, i+1)
	return true
}

// begin opens a session and returns its bearer.
func (s *sessions) begin(agent string) (bearer string, opened session) {
	bearer = rand.Text() + rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	if len(s.open) >= maxSessions {
		// Its streams must end with it.
		close(s.open[0].ended)
		s.open = slices.Delete(s.open, 0, 1)
	}
	now := s.time()
	if len(agent) > maxAgent {
		agent = agent[:maxAgent]
	}
	opened = session{
		bearer: sha256.Sum256([]byte(bearer)), ID: rand.Text()[:8], Opened: now, Until: now.Add(sessionTime), Agent: agent,
		ended: make(chan struct{}),
	}
	s.open = append(s.open, opened)
	return bearer, opened
}

// find returns the session of a bearer.
func (s *sessions) find(bearer string) (session, bool) {
	sum := digest(sha256.Sum256([]byte(bearer)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	i := slices.IndexFunc(s.open, func(o session) bool { return o.bearer == sum })
	if i < 0 {
		return session{}, false
	}
	return s.open[i], true
}

// end closes a session by its ID.
func (s *sessions) end(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.open, func(o session) bool { return o.ID == id })
	if i < 0 {
		return false
	}
	//defence:console-end
	close(s.open[i].ended)
	//defence:console-end
	s.open = slices.Delete(s.open, i, i+1)
	return true
}

// list returns the sessions, and marks one.
func (s *sessions) list(this string) []session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	out := slices.Clone(s.open)
	for i := range out {
		out[i].This = out[i].ID == this
	}
	return out
}

// sweep removes expired codes and sessions. The caller holds the lock.
func (s *sessions) sweep() {
	now := s.time()
	s.codes = slices.DeleteFunc(s.codes, func(c code) bool { return over(now, c.until) })
	s.open = slices.DeleteFunc(s.open, func(o session) bool {
		//defence:console-end
		over := over(now, o.Until)
		if over {
			close(o.ended)
		}
		return over
	})
}

// over reports whether a time has passed on either clock. The monotonic clock stops while a machine sleeps, and the
// wall clock can be set back.
func over(now, until time.Time) bool { return !now.Before(until) || !now.Round(0).Before(until) }
