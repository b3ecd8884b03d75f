package runapi

import (
	"net/http"
	"sync"
	"time"
)

// patience bounds how long a reader may stall its answer once what the answer is about has ended.
type patience struct {
	ctl *http.ResponseController

	mu             sync.Mutex
	sending, ended bool
}

// limit records whether something is being sent, and after the end sets a write deadline while it is. Between two
// writes there is no deadline, because the cleanup may take long.
func (p *patience) limit(sending bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sending = sending
	if p.ended {
		p.bound()
	}
}

// Ended implements Output and Duplex.
func (p *patience) Ended() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.bound()
}

// bound sets the write deadline for the current state. p.mu is held.
func (p *patience) bound() {
	var deadline time.Time
	if p.sending {
		deadline = time.Now().Add(stalledFor)
	}
	_ = p.ctl.SetWriteDeadline(deadline)
}
