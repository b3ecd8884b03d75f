package broker

import (
	"net/http"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// lendTime is how long a finished run gets its session back after a call that is sent for its plan.
const lendTime = time.Minute

// lentSession is the session of a finished run, for the calls of its plan.
type lentSession struct {
	session string
	until   time.Time
}

// lendSession gives a finished run its session back. The proxy stored the session when the call was recorded.
func (b *Broker) lendSession(run, session string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lentSessions[run] = lentSession{session, time.Now().Add(lendTime)}
}

func (b *Broker) sessionOfRun(run string) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessionOfRunLocked(run)
}

// sessionOfRunLocked is sessionOfRun for a caller that holds the lock.
func (b *Broker) sessionOfRunLocked(run string) (string, bool) {
	if session, ok := b.cfg.Session(run); ok {
		return session, true
	}
	l, ok := b.lentSessions[run]
	return l.session, ok && time.Now().Before(l.until)
}

// setResultCode reports to the proxy that a call was only recorded for a plan, or that the tool failed.
func (c *callRequest) setResultCode(h http.Header, result []byte) {
	if c.planned {
		// The proxy stores the session with the plan, and returns it with PlanSend.
		session, _ := c.broker.sessionOfRun(c.run)
		h.Set(proxyapi.HeaderCode, proxyapi.CodePlanned)
		h.Set(proxyapi.HeaderSession, session)
	} else if word := resultWord(result, nil); word != "ok" {
		h.Set(proxyapi.HeaderCode, word)
	}
}
