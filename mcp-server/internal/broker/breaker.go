package broker

import "time"

const (
	// breakerFailures transport failures within breakerTime open a breaker for breakerTime.
	breakerFailures = 5
	breakerTime     = 30 * time.Second
	// firstPause and lastPause bound the pause before a server that failed is started again.
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// breaker stops calls of a server whose process or connection keeps failing. Errors that a server answers with do not
// count. It is not safe for concurrent use.
type breaker struct {
	failures []time.Time // the last ones, oldest first
	until    time.Time   // open until then; then for all but one probe until the probe has succeeded
	probing  bool
	row      int // failures since the last success
}

// admit says whether a call may be made, and whether it is the probe.
func (b *breaker) admit(now time.Time) (ok, probe bool) {
	switch {
	case b.until.IsZero():
		return true, false
	case now.Before(b.until) || b.probing:
		return false, false
	}
	b.probing = true
	return true, true
}

// failed counts a transport failure, of the probe or of another call.
func (b *breaker) failed(now time.Time) {
	b.row++
	b.failures = append(b.failures, now)
	if len(b.failures) > breakerFailures {
		b.failures = b.failures[1:]
	}
	if b.probing || (len(b.failures) == breakerFailures && now.Sub(b.failures[0]) <= breakerTime) {
		b.until, b.probing = now.Add(breakerTime), false
	}
}

// succeeded notes that the server answered: it works.
func (b *breaker) succeeded() { *b = breaker{} }

// released notes that the probe ended without saying anything about the server.
func (b *breaker) released() { b.probing = false }

// pause is how long to wait before the server is started again.
func (b *breaker) pause() time.Duration {
	if b.row == 0 {
		return 0
	}
	return min(lastPause, firstPause<<min(b.row-1, 10))
}
