// Package progress tells a client what a run prints while it runs, and that it still runs.
//
// A client that does not read must not hold a run up: printing only replaces what waits to be told, and what waits is
// bounded, so that lines are dropped instead.
package progress

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Config configures a Reporter. Zero durations get the defaults named there.
type Config struct {
	// Send tells the client. It may block for as long as the client does not read. Progress grows with every call.
	// Nil: nobody asked to be told.
	Send func(ctx context.Context, progress float64, message string)
	// Batch is how often output is told. Zero means 500 ms.
	Batch time.Duration
	// Heartbeat is how often a silent run is told of. Zero means 10 s.
	Heartbeat time.Duration
}

// maxMessage is the most that is told at once, in bytes: the end of what was printed.
const maxMessage = 600

// stopTime is how long Stop waits for a notification that is on its way.
const stopTime = 250 * time.Millisecond

// Reporter tells one client of one run. Make it with Start, end it with Stop.
type Reporter struct {
	cfg     Config
	started time.Time
	cancel  context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	pending string
	state   string
}

// Start begins to report until Stop or the end of ctx.
func Start(ctx context.Context, cfg Config) *Reporter {
	if cfg.Batch == 0 {
		cfg.Batch = 500 * time.Millisecond
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 10 * time.Second
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &Reporter{cfg: cfg, started: time.Now(), cancel: cancel, done: make(chan struct{}), state: "waiting for a slot"}
	if cfg.Send == nil {
		close(r.done)
		return r
	}
	go r.report(ctx)
	return r
}

// Stop ends the reporting. A notification that a client does not read is left behind after a moment: it ends when the
// transport gives up writing to that client.
func (r *Reporter) Stop() {
	r.cancel()
	select {
	case <-r.done:
	case <-time.After(stopTime):
	}
}

// Running says that the run has its slot.
func (r *Reporter) Running() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = "running"
}

// Printed takes what the run printed. It never blocks.
func (r *Reporter) Printed(s string) {
	if r.cfg.Send == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = last(r.pending + last(s))
}

// report is the goroutine that tells.
func (r *Reporter) report(ctx context.Context) {
	defer close(r.done)
	tick := time.NewTicker(r.cfg.Batch)
	defer tick.Stop()
	told := r.started
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		message := r.take()
		if message == "" {
			if time.Since(told) < r.cfg.Heartbeat {
				continue
			}
			message = r.heartbeat()
		}
		told = time.Now()
		r.cfg.Send(ctx, time.Since(r.started).Seconds(), message)
	}
}

func (r *Reporter) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := strings.TrimRight(r.pending, "\n")
	r.pending = ""
	return s
}

func (r *Reporter) heartbeat() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%s, %.0f s", r.state, time.Since(r.started).Seconds())
}

// last is the end of s, at most maxMessage bytes, beginning at a line where that is possible.
func last(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	s = s[len(s)-maxMessage:]
	if i := strings.IndexByte(s, '\n'); i >= 0 && i < len(s)-1 {
		return s[i+1:]
	}
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}
