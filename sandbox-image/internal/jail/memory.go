package jail

import (
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/disarm"
	"github.com/codeforge-mcp/codeforge/internal/proc"
)

// listEvery is how often the processes of a slot are listed while it is watched. Nobody but an interpreter that got out of
// hand has more than one.
const listEvery = 50 * time.Millisecond

// socketsEvery is how often the sockets of a slot are looked at.
const socketsEvery = 200 * time.Millisecond

// scale adds up the memory of all processes of a slot, and of its TCP sockets. The filter keeps code from starting any, and from memory
// that no process holds (see seccomp); that there are none is looked at all the same.
type scale struct {
	// list lists the slot's processes, the interpreter among them.
	list func() []int
	// uid is the user of the slot, as seen from here.
	uid int

	mu      sync.Mutex
	others  []int
	sockets int64 // what is in them
	counted time.Time
	newest  int // the process or thread that the kernel had started last when they were listed
	listing time.Time
}

// weigh is the memory of the interpreter and of whatever it started, in bytes.
func (s *scale) weigh(main int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.listing.IsZero() { // a run that is short has no time for it
		s.listing, s.counted = now, now
	}
	if now.Sub(s.listing) >= listEvery {
		s.listing = now
		s.look(main)
	}
	if now.Sub(s.counted) >= socketsEvery && !disarm.Off("memory-sum") {
		s.counted, s.sockets = now, proc.SocketMemory(main, s.uid)
	}
	total := proc.Memory(main) + s.sockets
	for _, pid := range s.others {
		total += proc.Memory(pid)
	}
	return total
}

// look lists the slot's processes, if any was started on the machine since it last did.
func (s *scale) look(main int) {
	newest, err := proc.LastPID()
	if err == nil && newest == s.newest || disarm.Off("memory-sum") {
		return
	}
	s.newest, s.others = newest, s.others[:0]
	for _, pid := range s.list() {
		if pid != main {
			s.others = append(s.others, pid)
		}
	}
}
