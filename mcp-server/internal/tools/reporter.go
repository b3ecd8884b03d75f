package tools

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// reporterConfig configures a reporter. Zero durations get the defaults named there.
type reporterConfig struct {
	// Send notifies the client. It may block while the client does not read. progress grows with every call. If nil, the
	// client asked for no notifications.
	Send func(ctx context.Context, progress float64, message string)
	// Batch is the interval between two notifications with output. Zero means 500 ms.
	Batch time.Duration
	// Heartbeat is the interval between notifications while a run prints no output. Zero means 10 s.
	Heartbeat time.Duration
}

// maxProgressMessage bounds the output in one notification, in bytes. The end of the output is sent.
const maxProgressMessage = 600

// stopTimeout is how long Stop waits for a notification in progress.
const stopTimeout = 250 * time.Millisecond

// runReporter sends one client the output of a run while it runs, and signs of life. Create it with startReporter and
// end it with Stop.
//
// A client that does not read must not delay a run. So printing never blocks, and unsent text is bounded: lines are
// dropped.
type runReporter struct {
	cfg     reporterConfig
	started time.Time
	cancel  context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	pending string
	state   string
	step    string // the progress of a call, until it is sent
	urgent  string // a message that is sent before all others
}

// startReporter reports until Stop or the end of ctx.
func startReporter(ctx context.Context, cfg reporterConfig) *runReporter {
	cfg.Batch = cmp.Or(cfg.Batch, 500*time.Millisecond)
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 10*time.Second)
	ctx, cancel := context.WithCancel(ctx)
	r := &runReporter{cfg: cfg, started: time.Now(), cancel: cancel, done: make(chan struct{}),
		state: "waiting for a slot"}
	if cfg.Send == nil {
		close(r.done)
		return r
	}
	go r.notifyClient(ctx)
	return r
}

// Stop ends the reporting. It waits only stopTimeout for a notification that the client does not read. Such a
// notification ends when the transport gives up writing.
func (r *runReporter) Stop() {
	r.cancel()
	select {
	case <-r.done:
	case <-time.After(stopTimeout):
	}
}

// Running reports that the run has its slot.
func (r *runReporter) Running() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = "running"
}

// Waiting reports at once that the run waits for a person, or no longer waits.
func (r *runReporter) Waiting(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state, r.urgent = "running", ""; on {
		r.state, r.urgent = approvalapi.Waiting, approvalapi.Waiting
	}
}

// Progress reports the progress of a call of the run. Only the last report is sent, and only if there is no output.
func (r *runReporter) Progress(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step = text
}

// Printed adds output of the run. It never blocks.
func (r *runReporter) Printed(s string) {
	if r.cfg.Send == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// The end of the output is the newest part, and the rest is dropped.
	r.pending = lastLines(r.pending + lastLines(s))
}

// notifyClient is the goroutine that notifies the client.
func (r *runReporter) notifyClient(ctx context.Context) {
	defer close(r.done)
	told := r.started
	for range timing.EachTick(ctx, r.cfg.Batch) {
		message := r.takeOutput()
		if message == "" {
			if time.Since(told) < r.cfg.Heartbeat {
				continue
			}
			message = r.heartbeatText()
		}
		// Sent without the lock, because Send may block and Printed must not.
		told = time.Now()
		r.cfg.Send(ctx, time.Since(r.started).Seconds(), message)
	}
}

func (r *runReporter) takeOutput() string {
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

func (r *runReporter) heartbeatText() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%s, %.0f s", r.state, time.Since(r.started).Seconds())
}

// lastLines returns the end of s, at most maxProgressMessage bytes, from the start of a line if possible.
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
