package receipt

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// maxQueue is the number of events by which a slow subscriber may lag before it loses events.
const maxQueue = 256

// Note is everything about a finished exchange.
type Note struct {
	proxyapi.Exchange
	// Slot is the slot of the exchange, for the log.
	Slot int
	// Recorder is the receipt of the run, or nil without a run.
	Recorder *Recorder
	Hints    []proxyapi.Hint
	// Left means that a part of the request may have left, even if the request was refused afterwards.
	Left bool
	// Cause is the underlying error. It may quote the upstream, so only the operator sees it.
	Cause error
}

// Config configures a Journal.
type Config struct {
	Log *slog.Logger
	// Clean is the last scrub and redaction. Every string from outside passes it.
	Clean func(string) string
	// Ledger records the data that left the machine. Nil means that there is no ledger.
	Ledger func(ledger.Entry) error
}

// Journal records every exchange: one log line, one receipt entry, one count, one event.
type Journal struct {
	conf    Config
	metrics *Metrics
	era     string        // the beginning of the ids of this process's exchanges
	last    atomic.Uint64 // the end of the last id

	mu   sync.Mutex
	subs map[chan proxyapi.Event]*subscription
}

// subscription is the kind of events that a subscriber wants, and the number of events lost since the last one it got.
type subscription struct {
	of   proxyapi.Events
	lost int
}

// NewJournal makes a journal without subscribers.
func NewJournal(c Config) *Journal {
	if c.Clean == nil {
		c.Clean = func(s string) string { return s }
	}
	return &Journal{
		conf: c, metrics: newMetrics(), era: strings.ToLower(rand.Text()[:10]),
		subs: map[chan proxyapi.Event]*subscription{},
	}
}

// Metrics returns the counts so far.
func (j *Journal) Metrics() *Metrics { return j.metrics }

// RecordExchange records an exchange.
func (j *Journal) RecordExchange(n Note) {
	e := n.Exchange
	e.Method, e.URL, e.Host = j.conf.Clean(e.Method), j.conf.Clean(e.URL), j.conf.Clean(e.Host)
	// Clean before cutting: a cut credential would not be found.
	e.Method = safetext.CutText(e.Method, maxMethod, "...")
	if e.CausedBy != nil {
		// Copy before the change: the caller's value is shared.
		cause := *e.CausedBy
		cause.Call = j.conf.Clean(cause.Call)
		e.CausedBy = &cause
	}
	for _, list := range [][]proxyapi.Swap{e.Swapped, e.Scrubbed} {
		for i := range list {
			list[i].In = j.conf.Clean(list[i].In)
		}
	}
	e.ID = j.era + strconv.FormatUint(j.last.Add(1), 36)
	for i := range n.Hints {
		h := &n.Hints[i]
		h.Host, h.Text, h.Person = j.conf.Clean(h.Host), j.conf.Clean(h.Text), j.conf.Clean(h.Person)
	}
	if n.Recorder != nil {
		n.Recorder.AddExchange(e, n.Hints)
	}
	j.metrics.countExchange(e)
	counted := e.Outcome == proxyapi.OutcomeDenied && !n.Left && n.Recorder != nil &&
		n.Recorder.countRefused() > maxRefused
	if j.conf.Ledger != nil && !counted {
		// The ledger counts lost entries itself.
		kept := truncateExchange(e)
		_ = j.conf.Ledger(ledger.Entry{Exchange: &kept})
	}
	j.logExchange(n, e)
	j.PublishEvent(proxyapi.Event{Exchange: &e})
}

// RecordAlarm records an alarm: one log line, one count, one event and one record of the ledger. The receipt gets the
// first alarm. rec may be nil.
func (j *Journal) RecordAlarm(slot int, rec *Recorder, a proxyapi.Alarm) {
	a.At, a.Method, a.Host = time.Now().UTC(), j.conf.Clean(a.Method), j.conf.Clean(a.Host)
	if rec != nil {
		rec.SetAlarm(a)
	}
	j.metrics.alarms.WithLabelValues(a.Kind).Inc()
	if j.conf.Ledger != nil {
		_ = j.conf.Ledger(ledger.Entry{Alarm: &a}) // the ledger counts lost entries
	}
	j.conf.Log.LogAttrs(context.Background(), slog.LevelError, a.DescribeSecret()+" was to be sent", logline.Tag("alarm"),
		slog.Int("slot", slot), slog.String("run", a.Run), slog.String("tenant", a.Tenant), slog.String("method", a.Method),
		slog.String("host", a.Host), slog.String("in", a.In))
	j.PublishEvent(proxyapi.Event{Alarm: &a})
}

// CleanText applies the last scrub and redaction to a string from outside.
func (j *Journal) CleanText(s string) string { return j.conf.Clean(s) }

// PublishCaused reports to subscribers which requests a tool call made its server send. The exchanges were recorded
// before.
func (j *Journal) PublishCaused(c proxyapi.CausedRequests) {
	c.Call = j.conf.Clean(c.Call)
	j.PublishEvent(proxyapi.Event{Caused: &c})
}

// logExchange writes one line for an exchange, and one for each kind of change to the exchange.
func (j *Journal) logExchange(n Note, e proxyapi.Exchange) {
	tag, level := "req", slog.LevelInfo
	switch {
	case e.Code == "method_restricted":
		tag, level = "restrict", slog.LevelWarn
	case e.Outcome == proxyapi.OutcomeDenied:
		tag, level = "deny", slog.LevelWarn
	case e.Outcome == proxyapi.OutcomeFailed:
		tag, level = "error", slog.LevelError
	}
	attrs := []slog.Attr{
		logline.Tag(tag), slog.Int("slot", n.Slot), slog.String("run", e.Run), slog.Int("status", e.Status),
		slog.String("outcome", e.Outcome), slog.Int64("up", e.BytesUp), slog.Int64("down", e.BytesDown),
		slog.String("took", time.Duration(e.Milliseconds*float64(time.Millisecond)).Round(time.Microsecond).String()),
	}
	if e.Tenant != "" {
		attrs = append(attrs, slog.String("tenant", e.Tenant))
	}
	if e.CausedBy != nil {
		attrs = append(attrs, slog.String("caused_by", e.CausedBy.Run))
	}
	if e.Code != "" {
		attrs = append(attrs, slog.String("code", e.Code))
	}
	if n.Cause != nil {
		attrs = append(attrs, slog.String("cause", n.Cause.Error()))
	}
	now := time.Now()
	lines := make([]slog.Record, 0, 4)
	line := func(level slog.Level, text string, attrs ...slog.Attr) {
		r := slog.NewRecord(now, level, text, 0)
		r.AddAttrs(attrs...)
		lines = append(lines, r)
	}
	what := e.Method + " " + e.URL
	if call := e.CalledTool(); call != "" {
		what = "CALL " + call
	}
	line(level, what, attrs...)
	for _, s := range e.Swapped {
		line(slog.LevelInfo, s.Name, logline.Tag("inject"), slog.String("run", e.Run),
			slog.String("host", e.Host), slog.String("in", s.In))
	}
	if e.Redacted > 0 {
		line(slog.LevelInfo, strconv.Itoa(e.Redacted)+" redacted", logline.Tag("redact"),
			slog.String("run", e.Run), slog.String("host", e.Host))
	}
	if e.Sanitized > 0 {
		line(slog.LevelInfo, strconv.Itoa(e.Sanitized)+" scrubbed", logline.Tag("sanitize"),
			slog.String("run", e.Run), slog.String("host", e.Host))
	}
	_ = logline.LogTogether(context.Background(), j.conf.Log, lines...)
}

// Subscribe returns a channel of the events of a kind, until cancel is called. A subscriber that does not read loses
// events. The next event has the number of lost events.
func (j *Journal) Subscribe(of proxyapi.Events) (events <-chan proxyapi.Event, cancel func()) {
	ch := make(chan proxyapi.Event, maxQueue)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.subs[ch] = &subscription{of: of}
	return ch, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.subs, ch)
	}
}

// PublishEvent sends an event to every subscriber.
func (j *Journal) PublishEvent(e proxyapi.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for ch, s := range j.subs {
		if !s.of.HasEvent(e) {
			continue
		}
		// The event is a copy for each subscriber.
		e.Lost = s.lost
		// A slow subscriber must not block exchanges.
		select {
		case ch <- e:
			s.lost = 0
		default:
			s.lost++
		}
	}
}
