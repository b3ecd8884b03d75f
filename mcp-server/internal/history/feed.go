package history

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
)

// maxEvents is how many events a reader may lag behind, maxEventBytes how many bytes of output they hold in all.
const (
	maxEvents     = 4096
	maxEventBytes = 4 << 20
)

// feed keeps the latest events for readers, each with a cursor of its own. A publisher waits for nobody.
type feed struct {
	era string // tells the numbers of one process from those of another

	mu     sync.Mutex
	events []historyapi.Event
	next   uint64 // the number of the next event
	bytes  int
	more   chan struct{} // closed with the next event
	over   bool
}

func (f *feed) begin() {
	f.era, f.more, f.next = rand.Text()[:6], make(chan struct{}), 1
}

func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over {
		f.over = true
		close(f.more)
	}
}

// publish adds an event.
func (f *feed) publish(e historyapi.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return
	}
	e.Cursor = f.cursor(f.next)
	f.next++
	f.events = append(f.events, e)
	f.bytes += weight(e)
	drop := 0
	for len(f.events)-drop > maxEvents || f.bytes > maxEventBytes && drop < len(f.events)-1 {
		f.bytes -= weight(f.events[drop])
		f.events[drop] = historyapi.Event{} // for the garbage collector
		drop++
	}
	f.events = f.events[drop:]
	close(f.more)
	f.more = make(chan struct{})
}

func weight(e historyapi.Event) int {
	if e.Print != nil {
		return len(e.Print.Text)
	}
	return 0
}

func (f *feed) cursor(n uint64) string { return f.era + "." + strconv.FormatUint(n, 10) }

// from returns the events after a cursor and a channel that is closed when there are more.
func (f *feed) from(cursor string) ([]historyapi.Event, <-chan struct{}, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := f.next - uint64(len(f.events))
	at, known := f.place(cursor)
	switch {
	case !known || at < first:
		gap := historyapi.Event{Kind: historyapi.EventGap, Cursor: f.cursor(first - 1)}
		return append([]historyapi.Event{gap}, f.events...), f.more, f.over
	case at < f.next:
		return append([]historyapi.Event(nil), f.events[at-first:]...), f.more, f.over
	}
	return nil, f.more, f.over
}

// place is the number of the event that comes after a cursor.
func (f *feed) place(cursor string) (uint64, bool) {
	era, text, _ := strings.Cut(cursor, ".")
	n, err := strconv.ParseUint(text, 10, 64)
	return n + 1, era == f.era && err == nil && n+1 <= f.next
}

// now is the cursor of the latest event.
func (f *feed) now() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cursor(f.next - 1)
}

// Now is a cursor from which Follow continues with what happens from now on.
func (s *Store) Now() string {
	if s == nil {
		return ""
	}
	return s.feed.now()
}

// Follow waits for events after the cursor and returns them, at least one. The cursor to continue with is the last
// event's. A reader whose next events are no longer kept, or whose cursor is from before mcp-server's start, first gets
// an EventGap. The error is ErrOff if there will be no events, and context.Canceled also when the store closes.
func (s *Store) Follow(ctx context.Context, cursor string) ([]historyapi.Event, error) {
	if s.off() {
		return nil, ErrOff
	}
	for {
		events, more, over := s.feed.from(cursor)
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
