package sandboxapi

import (
	"net/http"
	"sync"
	"time"
)

// stallBound bounds how long a client may stall its response after the run or program has ended.
type stallBound struct {
	ctl *http.ResponseController

	mu             sync.Mutex
	sending, ended bool
}

// setSending records whether a write is in progress. After the end it sets a deadline for that write. Between two
// writes it sets no deadline, because the cleanup may take long.
func (p *stallBound) setSending(sending bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sending = sending
	if p.ended {
		p.setDeadline()
	}
}

// ReportEnd implements Output and Duplex.
func (p *stallBound) ReportEnd() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.setDeadline()
}

// setDeadline sets the write deadline for the current state. The caller holds p.mu.
func (p *stallBound) setDeadline() {
	var deadline time.Time
	if p.sending {
		deadline = time.Now().Add(stalledFor)
	}
	_ = p.ctl.SetWriteDeadline(deadline)
}
