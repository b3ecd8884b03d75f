package broker

import "time"

const (
	// breakerFailures transport failures within breakerTime open a breaker for breakerTime.
	breakerFailures = 5
	breakerTime     = 30 * time.Second
	// firstPause and lastPause bound the pause before the next start of a server that failed.
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// serverBreaker stops calls of a server whose process or connection keeps failing. An error that the server answers
// does not count. A breaker is not safe for concurrent use.
type serverBreaker struct {
	failures []time.Time // the last ones, oldest first
	until    time.Time   // open until then; afterwards only one probe may call until it succeeds
	probing  bool
	row      int // failures since the last success
}

// admitCall reports whether a call may be made, and whether that call is the probe.
func (b *serverBreaker) admitCall(now time.Time) (ok, probe bool) {
	switch {
	case b.until.IsZero():
		return true, false
	case now.Before(b.until) || b.probing:
		return false, false
	}
	b.probing = true
	return true, true
}

// countFailure counts a transport failure of the probe or of another call.
func (b *serverBreaker) countFailure(now time.Time) {
	b.row++
	b.failures = append(b.failures, now)
	if len(b.failures) > breakerFailures {
		b.failures = b.failures[1:]
	}
	// A failed probe opens the breaker again at once: five more calls would only run into the same dead server.
	if b.probing || (len(b.failures) == breakerFailures && now.Sub(b.failures[0]) <= breakerTime) {
		b.until, b.probing = now.Add(breakerTime), false
	}
}

// resetFailures closes the breaker and forgets all failures.
func (b *serverBreaker) resetFailures() { *b = serverBreaker{} }

// releaseProbe frees the probe's place after a probe whose result says nothing about the server's health.
func (b *serverBreaker) releaseProbe() { b.probing = false }

// restartPause returns how long to wait before the next start of the server. It doubles with each failure, up to
// lastPause.
func (b *serverBreaker) restartPause() time.Duration {
	if b.row == 0 {
		return 0
	}
	// The shift is bounded, because firstPause<<row would overflow after many failures.
	return min(lastPause, firstPause<<min(b.row-1, 10))
}
