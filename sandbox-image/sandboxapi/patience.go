package sandboxapi

import (
	"net/http"
	"sync"
	"time"
)

// patience bounds how long a client may stall its response after the run or program has ended.
type patience struct {
	ctl *http.ResponseController

	mu             sync.Mutex
	sending, ended bool
}

// limit records whether a write is in progress. After the end it sets a deadline for that write. Between two writes it
// sets no deadline, because the cleanup may take long.
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

// bound sets the write deadline for the current state. The caller holds p.mu.
func (p *patience) bound() {
	var deadline time.Time
	if p.sending {
		deadline = time.Now().Add(stalledFor)
	}
	_ = p.ctl.SetWriteDeadline(deadline)
}
