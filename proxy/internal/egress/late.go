package egress

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
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

// streaming says how the messages of a stream pass.
type streaming struct {
	byMessage bool         // all APIs of the host set MessageFraming: each message leaves when it is complete
	watches   []*lateWatch // one for each watched body
	answer    *lateWatch   // of the answer's body; may be nil
	late      atomic.Bool  // a complete message was held back for too long
}

// useFraming sets byMessage if all APIs of the host set MessageFraming.
func (x *exchange) useFraming() {
	holders := x.holders()
	x.byMessage = len(holders) > 0 &&
		!slices.ContainsFunc(holders, func(a *catalog.API) bool { return !a.MessageFraming })
}

// framingOf returns the framing by which a body with these headers leaves.
func (x *exchange) framingOf(h http.Header) framing.Kind {
	//defence:message-framing
	if !x.byMessage {
		return framing.None
	}
	return framing.DetectKind(h)
}

// lateWatch watches one direction of an exchange for a complete message that is held back while the client is silent.
// Its methods accept a nil lateness.
type lateWatch struct {
	x       *exchange
	changed func() bool // whether the proxy changed the body: its lengths cannot be compared then

	mu                     sync.Mutex
	scan                   *framing.Scanner
	arrived, left, message int64 // bytes; message is the end of the last complete message
	timer                  *time.Timer
	runs, stopped          bool  // the timer is running; the watch has ended
	sent                   int64 // bytes that the client had sent when the timer was started
}

// watchLateness returns a lateness for a body of unknown length, or nil if a setting of its API could not help.
func (x *exchange) watchLateness(h http.Header, length int64, changed func() bool) *lateWatch {
	kind := framing.DetectKind(h)
	if x.byMessage || kind == framing.None || length >= 0 || len(x.verdict.APIs) == 0 || h.Get("Content-Encoding") != "" {
		return nil
	}
	l := &lateWatch{x: x, changed: changed, scan: kind.NewScanner()}
	// restart arms the timer only while a complete message is held back.
	l.timer = time.AfterFunc(tooLate, l.noteLate)
	l.timer.Stop()
	x.watches = append(x.watches, l)
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
	l.sent = l.x.up.n.Load()
	l.timer.Reset(tooLate)
}

// noteLate notes that a message is late, unless the proxy changed the body or the client is still sending.
func (l *lateWatch) noteLate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.runs || l.changed():
	case l.sent != l.x.up.n.Load(): // the client is still sending, so it does not wait for an answer
		l.restartTimer()
	default:
		l.x.late.Store(true)
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
func (x *exchange) watchRequest() error {
	out := x.out
	if out.Body == nil || out.Body == http.NoBody || out.Body == x.up {
		return nil
	}
	x.up.late = x.watchLateness(out.Header, out.ContentLength, func() bool {
		return x.redacted.Count() > 0 || slices.ContainsFunc(x.swapped.Swapped(), func(s swap.Swap) bool {
			return s.In == "body"
		})
	})
	if x.up.late != nil {
		out.Body = &tappedBody{out.Body, x.up.late.countLeft}
	}
	return nil
}

func (x *exchange) watchAnswer(resp *http.Response) error {
	x.answer = x.watchLateness(resp.Header, resp.ContentLength, func() bool { return x.scrubbed.Count() > 0 })
	if x.answer != nil {
		resp.Body = &tappedBody{resp.Body, x.answer.countArrived}
	}
	return nil
}

// hintLate names the setting for messages that were held back for too long.
func (x *exchange) hintLate() []proxyapi.Hint {
	// The timers must not set late while the hints are made.
	for _, l := range x.watches {
		l.stop()
	}
	if !x.late.Load() {
		return nil
	}
	return []proxyapi.Hint{newHint("message_held", x.note.Host,
		readertext.NewText("had a complete message that the proxy held "+
			"back for more than 2 s while the code waited: a credential may be split, so the end of a text leaves only when "+
			"more follows. {The user can set|Set} \"framing\": \"message\" in apis/%API/config.json; then each message leaves "+
			"when it is complete.", "%API", x.verdict.APIs[0].Name))}
}
