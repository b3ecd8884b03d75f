// Package ports makes the proxy listen on the ports of the catalog other than 443 and 80, and on no others.
//
// Threat: a port that is open in the sandbox although no API uses it any more. A request on an open port is checked
// like any other: package policy decides about hosts and APIs.
package ports

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
)

// retryInterval is the interval for opening a port that could not be opened. In embedded mode, code may be listening on
// the port.
const retryInterval = time.Second

// Config configures Ports.
type Config struct {
	// Slots are the places where each port is opened: the slots, or only nil for all slots together.
	Slots []*slot.ID
	// Open listens on a port of a seat.
	Open func(seat *slot.ID, port uint16) (entrance.Listener, error)
	// Add makes the entrance accept from a listener. It returns a function that closes the listener.
	Add func(entrance.Listener) (remove func(), err error)
	Log *slog.Logger
}

// Ports are the open ports. Make one with New.
type Ports struct {
	conf Config

	mu     sync.Mutex
	want   []uint16
	open   map[slotPort]func()
	failed map[slotPort]bool // failed and logged
}

// slotPort is one port of one seat, by the index in Config.Slots.
type slotPort struct {
	seat int
	port uint16
}

// New makes Ports without open ports.
func New(c Config) *Ports {
	return &Ports{conf: c, open: map[slotPort]func(){}, failed: map[slotPort]bool{}}
}

// SetPorts opens and closes ports, so that exactly the given ports are open.
func (p *Ports) SetPorts(ports []uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want = slices.Clone(ports)
	for d, remove := range p.open {
		if !slices.Contains(p.want, d.port) {
			// A port that no API uses must not stay open in the sandbox.
			remove()
			delete(p.open, d)
		}
	}
	// A new list is a new attempt: failures are logged again.
	clear(p.failed)
	p.openMissing()
}

// openMissing opens the missing ports. The caller holds mu.
func (p *Ports) openMissing() {
	for _, port := range p.want {
		for i, seat := range p.conf.Slots {
			d := slotPort{i, port}
			if p.open[d] != nil {
				continue
			}
			l, err := p.conf.Open(seat, port)
			if err == nil {
				p.open[d], err = p.conf.Add(l)
			}
			if err == nil {
				delete(p.failed, d)
				continue
			}
			delete(p.open, d)
			// Log a failure once, not at every retry.
			if !p.failed[d] {
				p.failed[d] = true
				p.conf.Log.LogAttrs(context.Background(), slog.LevelWarn, "a port of the catalog is not open yet",
					logline.Tag("error"), slog.Int("port", int(port)), slog.String("cause", err.Error()))
			}
		}
	}
}

// RetryFailed retries ports that could not be opened, until ctx ends.
func (p *Ports) RetryFailed(ctx context.Context) {
	for range timing.EachTick(ctx, retryInterval) {
		p.mu.Lock()
		p.openMissing()
		p.mu.Unlock()
	}
}
