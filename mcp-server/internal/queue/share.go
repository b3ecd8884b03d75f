package queue

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Share is one tenant's part of the slots. It bounds the runs that have a slot or are next for one, and the further
// runs that wait. In the queue, all runs of a tenant are one session, so that they delay others by only one run.
type Share struct {
	name  string
	slots chan struct{}
	most  int

	mu      sync.Mutex
	waiting int
}

// NewShare returns a share for a number of runs at once, and of further runs that wait.
func NewShare(name string, runs, waiting int) *Share {
	return &Share{name: name, slots: make(chan struct{}, runs), most: waiting}
}

// CountSlots returns the largest number of the tenant's runs at once.
func (s *Share) CountSlots() int { return cap(s.slots) }

// CountUse returns the number of the tenant's runs that have a slot or are next for one, and the number of further
// waiting runs.
func (s *Share) CountUse() (runs, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.slots), s.waiting
}

// beginRun waits until the tenant may have one more run. A nil share has no bound.
func (s *Share) beginRun(ctx context.Context) error {
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
			_, waiting := s.CountUse()
			return &BusyError{Waited: time.Since(start), Waiting: waiting}
		}
		return ctx.Err()
	}
}

// endRun returns the place that begin took.
func (s *Share) endRun() {
	//defence:tenant-share
	if s != nil {
		<-s.slots
	}
}
