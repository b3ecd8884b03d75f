package tools

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// reporterConfig configures a reporter. Zero durations get the defaults named there.
type reporterConfig struct {
	// Send notifies the client. It may block while the client does not read. progress grows with every call. Nil means the
	// client asked for no notifications.
	Send func(ctx context.Context, progress float64, message string)
	// Batch is how often output is sent. Zero means 500 ms.
	Batch time.Duration
	// Heartbeat is how often a notification is sent while a run prints nothing. Zero means 10 s.
	Heartbeat time.Duration
}

// maxProgressMessage is how much of the output one notification contains, in bytes: the end of what was printed.
const maxProgressMessage = 600

// stopTimeout is how long Stop waits for a notification in progress.
const stopTimeout = 250 * time.Millisecond

// reporter tells one client what one run prints while it runs, and that it is still running. Make it with
// startReporter, end it with Stop.
//
// A client that does not read must not delay a run: printing never blocks, and text that has not been sent yet is
// bounded, so that lines are dropped.
type reporter struct {
	cfg     reporterConfig
	started time.Time
	cancel  context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	pending string
	state   string
	step    string // what a call reported, until it is sent
	urgent  string // a message that goes out before all others
}

// startReporter begins to report until Stop or the end of ctx.
func startReporter(ctx context.Context, cfg reporterConfig) *reporter {
	if cfg.Batch == 0 {
		cfg.Batch = 500 * time.Millisecond
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 10 * time.Second
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &reporter{cfg: cfg, started: time.Now(), cancel: cancel, done: make(chan struct{}), state: "waiting for a slot"}
	if cfg.Send == nil {
		close(r.done)
		return r
	}
	go r.report(ctx)
	return r
}

// Stop ends the reporting. It does not wait long for a notification that the client does not read: that ends when the
// transport gives up writing to the client.
func (r *reporter) Stop() {
	r.cancel()
	select {
	case <-r.done:
	case <-time.After(stopTimeout):
	}
}

// Running reports that the run has its slot.
func (r *reporter) Running() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = "running"
}

// Waiting reports at once that the run waits for a person, or that it no longer waits.
func (r *reporter) Waiting(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state, r.urgent = "running", ""; on {
		r.state, r.urgent = approvalapi.Waiting, approvalapi.Waiting
	}
}

// Progress reports how far a call of the run is. Of several reports the last is sent, when nothing was printed.
func (r *reporter) Progress(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step = text
}

// Printed adds what the run printed. It never blocks.
func (r *reporter) Printed(s string) {
	if r.cfg.Send == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = lastLines(r.pending + lastLines(s))
}

// report is the goroutine that notifies the client.
func (r *reporter) report(ctx context.Context) {
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

func (r *reporter) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.urgent; s != "" {
		r.urgent = ""
		return s
	}
	if s := strings.TrimRight(r.pending, "\n"); s != "" {
		r.pending = ""
		return s
	}
	s := r.step
	r.pending, r.step = "", ""
	return s
}

func (r *reporter) heartbeat() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%s, %.0f s", r.state, time.Since(r.started).Seconds())
}

// lastLines returns the end of s, at most maxMessage bytes, from the start of a line if possible.
func lastLines(s string) string {
	if len(s) <= maxProgressMessage {
		return s
	}
	s = s[len(s)-maxProgressMessage:]
	if i := strings.IndexByte(s, '\n'); i >= 0 && i < len(s)-1 {
		return s[i+1:]
	}
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}
