package egress

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/framing"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	// tooLate is how long a complete message may be held back before the receipt names the cause.
	tooLate = 2 * time.Second
	// watchedUpTo is how many bytes of a body are searched for the ends of messages that are held back. A longer body that
	// was never late is a download.
	watchedUpTo = 1 << 20
)

// lateness watches both directions of an exchange for complete messages that are held back.
type lateness struct {
	request *lateWatch   // of the request's body; may be nil
	watches []*lateWatch // one for each watched body
	found   atomic.Bool  // a complete message was held back for too long
}

// framingOf returns the framing by which a body with these headers leaves.
func (m *requestMessage) framingOf(h http.Header) framing.Kind {
	//defence:message-framing
	if !m.byMessage {
		return framing.None
	}
	return framing.DetectKind(h)
}

// lateWatch watches one direction of an exchange for a complete message that is held back while the client is silent.
// The methods that count accept a nil lateWatch.
type lateWatch struct {
	client  *atomic.Int64 // bytes of the request: the client is still sending while it grows
	found   *atomic.Bool  // see lateness
	changed func() bool   // whether the proxy changed the body: its lengths cannot be compared then

	mu                     sync.Mutex
	scan                   *framing.Scanner
	arrived, left, message int64 // bytes; message is the end of the last complete message
	timer                  *time.Timer
	runs, stopped          bool  // the timer is running; the watch has ended
	sent                   int64 // bytes that the client had sent when the timer was started
}

// watchBody returns a lateWatch for a body of unknown length, or nil if a setting of its API could not help.
func (m *requestMessage) watchBody(h http.Header, length int64, apis []*catalog.API, changed func() bool) *lateWatch {
	kind := framing.DetectKind(h)
	if m.byMessage || kind == framing.None || length >= 0 || len(apis) == 0 || h.Get("Content-Encoding") != "" {
		return nil
	}
	l := &lateWatch{client: &m.received, found: &m.late.found, changed: changed, scan: kind.NewScanner()}
	// restart arms the timer only while a complete message is held back.
	l.timer = time.AfterFunc(tooLate, l.noteLate)
	l.timer.Stop()
	m.late.watches = append(m.late.watches, l)
	return l
}

// countArrived counts bytes that the scrubber has not searched yet, and finds the ends of messages in them.
func (l *lateWatch) countArrived(p []byte) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.arrived > watchedUpTo {
		l.stopLocked()
	}
	for len(p) > 0 && !l.stopped {
		n, ended := l.scan.NextPart(p)
		p, l.arrived = p[n:], l.arrived+int64(n)
		if ended {
			l.message = l.arrived
		}
	}
	if !l.runs {
		l.restartTimer()
	}
}

func (l *lateWatch) countLeft(p []byte) {
	if l == nil || len(p) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left += int64(len(p))
	l.restartTimer()
}

// restartTimer starts the timer if a complete message is held back. The caller holds mu.
func (l *lateWatch) restartTimer() {
	l.runs = l.message > l.left && !l.stopped
	if !l.runs {
		l.timer.Stop()
		return
	}
	l.sent = l.client.Load()
	l.timer.Reset(tooLate)
}

// noteLate notes that a message is late, unless the proxy changed the body or the client is still sending.
func (l *lateWatch) noteLate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.runs || l.changed():
	case l.sent != l.client.Load(): // the client is still sending, so it does not wait for an answer
		l.restartTimer()
	default:
		l.found.Store(true)
		l.stopLocked()
	}
}

func (l *lateWatch) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopLocked()
}

func (l *lateWatch) stopLocked() {
	l.stopped, l.runs = true, false
	l.timer.Stop()
}

// watchRequest watches the body of a request that is ready to leave.
func (m *requestMessage) watchRequest(apis []*catalog.API, swapped *swap.Report) error {
	body := coding.BodyOf(m.out)
	if body == nil {
		return nil
	}
	m.late.request = m.watchBody(m.out.Header, m.out.ContentLength, apis, func() bool {
		return m.redacted.Count() > 0 || slices.ContainsFunc(swapped.Swapped(), func(s swap.Swap) bool {
			return s.In == "body"
		})
	})
	if m.late.request != nil {
		body.AddObserver(m.late.request.countLeft)
	}
	return nil
}

// hintHeld names the setting for messages that were held back for too long. apis are those of the request.
func (l *lateness) hintHeld(host string, apis []*catalog.API) []proxyapi.Hint {
	// The timers must not set found while the hints are made.
	for _, w := range l.watches {
		w.stop()
	}
	if !l.found.Load() {
		return nil
	}
	return []proxyapi.Hint{newHint("message_held", host,
		readertext.NewText("had a complete message that the proxy held "+
			"back for more than 2 s while the code waited: a credential may be split, so the end of a text leaves only when "+
			"more follows. {The user can set|Set} \"framing\": \"message\" in apis/%API/config.json; then each message leaves "+
			"when it is complete.", "%API", apis[0].Name))}
}
