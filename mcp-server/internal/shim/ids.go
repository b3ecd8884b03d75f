package shim

import (
	"slices"
	"sync"
)

// maxIDs bounds the remembered execs. mcp-server starts each one at once.
const maxIDs = 64

// idSet remembers the execs that this shim created and that were not started yet. The zero value is empty.
type idSet struct {
	mu    sync.Mutex
	fresh []string // oldest first
}

// addID stores a new exec, and drops the oldest beyond maxIDs.
func (s *idSet) addID(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh = append(s.fresh, id)
	if len(s.fresh) > maxIDs {
		s.fresh = s.fresh[1:]
	}
}

// takeID reports whether this shim created the exec and the exec was not started. From then on it counts as started.
func (s *idSet) takeID(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.fresh, id)
	if i < 0 {
		//defence:shim-ids permits
		return false
	}
	// Taken under the lock: two starts at once must not both succeed.
	s.fresh = slices.Delete(s.fresh, i, i+1)
	return true
}
