package shim

import (
	"sync"
)

// maxIDs bounds the remembered execs. mcp-server keeps one at a time, and only inspects older ones.
const maxIDs = 64

// idSet remembers the execs this shim created. The zero value is empty.
type idSet struct {
	mu    sync.Mutex
	order []string
	// fresh is true for an exec that was not started yet, and false for a started one. Other execs were not created here.
	fresh map[string]bool
}

// addID stores a new exec, and drops the oldest beyond maxIDs.
func (s *idSet) addID(id string) {
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

// hasID reports whether this shim created the exec.
func (s *idSet) hasID(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.fresh[id]
	//defence:shim-ids permits
	return ok
}

// takeID reports whether this shim created the exec and the exec was not started. From then on it counts as started.
func (s *idSet) takeID(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fresh[id] {
		//defence:shim-ids permits
		return false
	}
	// Taken under the lock: two starts at once must not both succeed.
	s.fresh[id] = false
	return true
}
