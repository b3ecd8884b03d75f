package queue

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Share is one tenant's part of the slots: how many of its runs may have one, or be next in turn for one, and how many
// more may wait. In the queue its runs are one session, so that it delays others by one run, however many it has.
type Share struct {
	name  string
	slots chan struct{}
	most  int

	mu      sync.Mutex
	waiting int
}

// NewShare makes a share for a number of runs at once, and of runs that wait besides.
func NewShare(name string, runs, waiting int) *Share {
	return &Share{name: name, slots: make(chan struct{}, runs), most: waiting}
}

// Use is how many runs of the tenant have a slot or are next in turn for one, and how many wait besides.
func (s *Share) Use() (runs, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.slots), s.waiting
}

// begin waits until the tenant may have one more run. Of nobody's share there is always more.
func (s *Share) begin(ctx context.Context) error {
	//defence:tenant-share permits
	if s == nil {
		return nil
	}
	select {
	case s.slots <- struct{}{}:
		return nil
	default:
	}
	s.mu.Lock()
	if s.waiting >= s.most {
		defer s.mu.Unlock()
		return &BusyError{Waiting: s.waiting}
	}
	s.waiting++
	s.mu.Unlock()
	start := time.Now()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting--
	}()
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			_, waiting := s.Use()
			return &BusyError{Waited: time.Since(start), Waiting: waiting}
		}
		return ctx.Err()
	}
}

// end gives back what begin took.
func (s *Share) end() {
	//defence:tenant-share
	if s != nil {
		<-s.slots
	}
}
