package shim

import (
	"sync"
)

// maxIDs is how many execs are remembered. mcp-server keeps one at a time; older ones are only inspected.
const maxIDs = 64

// ids remembers the execs this shim created. The zero value is empty.
type ids struct {
	mu    sync.Mutex
	order []string
	// fresh is true for an exec that has not been started, false for one that has. Absent: not created here.
	fresh map[string]bool
}

// add remembers a new exec and forgets the oldest beyond maxIDs.
func (s *ids) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fresh == nil {
		s.fresh = map[string]bool{}
	}
	s.order = append(s.order, id)
	s.fresh[id] = true
	if len(s.order) > maxIDs {
		delete(s.fresh, s.order[0])
		s.order = s.order[1:]
	}
}

// has reports whether this shim created the exec.
func (s *ids) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.fresh[id]
	//defence:shim-ids permits
	return ok
}

// take reports whether this shim created the exec and it has not been started. From then on it counts as started.
func (s *ids) take(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fresh[id] {
		//defence:shim-ids permits
		return false
	}
	s.fresh[id] = false
	return true
}
