package history

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// maxEvents is the number of events that a reader may lag behind. maxEventBytes bounds the output in all these events.
const (
	maxEvents     = 4096
	maxEventBytes = 4 << 20
)

// eventFeed stores the latest events for readers, each with a cursor. A publisher never waits for a reader.
type eventFeed struct {
	era string // distinguishes the numbers of two processes

	mu     sync.Mutex
	events []operatorapi.HistoryEvent
	next   uint64 // the number of the next event
	bytes  int
	more   chan struct{} // closed with the next event
	over   bool
}

func (f *eventFeed) beginChange() {
	f.era, f.more, f.next = rand.Text()[:6], make(chan struct{}), 1
}

func (f *eventFeed) endChange() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over {
		f.over = true
		close(f.more)
	}
}

func (f *eventFeed) publishEvent(e operatorapi.HistoryEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// end has closed more, and a second close would panic.
	if f.over {
		return
	}
	e.Cursor = f.cursorOf(f.next)
	f.next++
	f.events = append(f.events, e)
	f.bytes += eventWeight(e)
	drop := 0
	// A slow reader loses events and gets a gap: it must not hold the memory or the publisher.
	for len(f.events)-drop > maxEvents || f.bytes > maxEventBytes && drop < len(f.events)-1 {
		f.bytes -= eventWeight(f.events[drop])
		f.events[drop] = operatorapi.HistoryEvent{} // for the garbage collector
		drop++
	}
	f.events = f.events[drop:]
	// Closing the channel wakes all readers at once; the next event needs a new channel.
	close(f.more)
	f.more = make(chan struct{})
}

func eventWeight(e operatorapi.HistoryEvent) int {
	if e.Print != nil {
		return len(e.Print.Text)
	}
	return 0
}

func (f *eventFeed) cursorOf(n uint64) string { return f.era + "." + strconv.FormatUint(n, 10) }

// eventsAfter returns the events after a cursor, and a channel that is closed with the next event.
func (f *eventFeed) eventsAfter(cursor string) ([]operatorapi.HistoryEvent, <-chan struct{}, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := f.next - uint64(len(f.events))
	at, known := f.placeOf(cursor)
	// The era differs after a restart, so an old cursor never matches by chance.
	switch {
	case !known || at < first:
		gap := operatorapi.HistoryEvent{Kind: operatorapi.EventGap, Cursor: f.cursorOf(first - 1)}
		return append([]operatorapi.HistoryEvent{gap}, f.events...), f.more, f.over
	case at < f.next:
		return append([]operatorapi.HistoryEvent(nil), f.events[at-first:]...), f.more, f.over
	}
	return nil, f.more, f.over
}

// placeOf returns the number of the event after a cursor.
func (f *eventFeed) placeOf(cursor string) (uint64, bool) {
	era, text, _ := strings.Cut(cursor, ".")
	n, err := strconv.ParseUint(text, 10, 64)
	return n + 1, era == f.era && err == nil && n+1 <= f.next
}

func (f *eventFeed) latestCursor() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cursorOf(f.next - 1)
}

// CurrentCursor returns a cursor from which Follow continues with future events.
func (s *Store) CurrentCursor() string {
	if s == nil {
		return ""
	}
	return s.feed.latestCursor()
}

// Follow waits for events after the cursor and returns at least one. Continue with the cursor of the last event. If the
// next events were dropped, or the cursor is older than mcp-server's start, the first event is an EventGap. The error
// is ErrOff if the store is off, and context.Canceled if ctx ends or the store closes.
func (s *Store) Follow(ctx context.Context, cursor string) ([]operatorapi.HistoryEvent, error) {
	if s.isOff() {
		return nil, ErrOff
	}
	for {
		events, more, over := s.feed.eventsAfter(cursor)
		if len(events) > 0 {
			return events, nil
		}
		if over {
			return nil, context.Canceled
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
