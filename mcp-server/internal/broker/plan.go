package broker

import (
	"net/http"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// lendTime is how long a run that is over keeps its session after a call that is sent for its plan.
const lendTime = time.Minute

// sessionLent is the session of a run that is over, for the calls of its plan.
type sessionLent struct {
	session string
	until   time.Time
}

// lend gives a run that is over its session again: the proxy knows it from when the call was recorded.
func (b *Broker) lend(run, session string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lent == nil {
		b.lent = map[string]sessionLent{}
	}
	b.lent[run] = sessionLent{session, time.Now().Add(lendTime)}
}

// session is the MCP session of a run.
func (b *Broker) session(run string) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessionOf(run)
}

// sessionOf is session for a caller that holds the lock.
func (b *Broker) sessionOf(run string) (string, bool) {
	if session, ok := b.cfg.Session(run); ok {
		return session, true
	}
	l, ok := b.lent[run]
	return l.session, ok && time.Now().Before(l.until)
}

// tellPlan says to the proxy that a call was not made, or that a call of a plan was made and failed.
func (c *call) tellPlan(h http.Header, result []byte) {
	switch {
	case c.planned:
		session, _ := c.broker.session(c.run)
		h.Set(controlapi.HeaderCode, controlapi.CodePlanned)
		h.Set(controlapi.HeaderSession, session)
	case c.plan == controlapi.PlanSend && outcome(result, nil) != "ok":
		h.Set(controlapi.HeaderCode, outcome(result, nil))
	}
}
