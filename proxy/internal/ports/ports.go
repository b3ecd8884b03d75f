// Package ports keeps the proxy listening on the ports of the catalog besides 443 and 80, and on no others.
//
// Threat: a port that is open in the sandbox although no API has it any more. What arrives at an open port is judged
// like every request: which hosts of which APIs are there is up to policy.
package ports

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/internal/entrance"
)

// retry is how often a port is tried again that could not be opened: in embedded mode code may be listening on it
// itself.
const retry = time.Second

// Config holds what Ports needs.
type Config struct {
	// Seats are where each port is opened: the slots, or nil alone for all of them together.
	Seats []*slot.ID
	// Open listens on a port of a seat.
	Open func(seat *slot.ID, port uint16) (entrance.Listener, error)
	// Add lets the entrance accept from a listener, and returns what closes it.
	Add func(entrance.Listener) (remove func(), err error)
	Log *slog.Logger
}

// Ports holds what is open. Make one with New.
type Ports struct {
	conf Config

	mu     sync.Mutex
	want   []uint16
	open   map[door]func()
	failed map[door]bool // and logged
}

// door is one port of one seat, by its place in Config.Seats.
type door struct {
	seat int
	port uint16
}

// New makes one with nothing open.
func New(c Config) *Ports {
	return &Ports{conf: c, open: map[door]func(){}, failed: map[door]bool{}}
}

// Set opens and closes what is needed for these ports to be open, and no others.
func (p *Ports) Set(ports []uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want = slices.Clone(ports)
	for d, remove := range p.open {
		if !slices.Contains(p.want, d.port) {
			remove()
			delete(p.open, d)
		}
	}
	clear(p.failed)
	p.fill()
}

// fill opens what is missing. The caller holds mu.
func (p *Ports) fill() {
	for _, port := range p.want {
		for i, seat := range p.conf.Seats {
			d := door{i, port}
			if p.open[d] != nil {
				continue
			}
			remove, err := p.add(seat, port)
			if err == nil {
				p.open[d] = remove
				delete(p.failed, d)
				continue
			}
			if !p.failed[d] {
				p.failed[d] = true
				p.conf.Log.LogAttrs(context.Background(), slog.LevelWarn, "a port of the catalog is not open yet",
					logline.Tag("error"), slog.Int("port", int(port)), slog.String("cause", err.Error()))
			}
		}
	}
}

func (p *Ports) add(seat *slot.ID, port uint16) (func(), error) {
	l, err := p.conf.Open(seat, port)
	if err != nil {
		return nil, err
	}
	return p.conf.Add(l)
}

// Run tries again what could not be opened, until ctx ends.
func (p *Ports) Run(ctx context.Context) {
	tick := time.NewTicker(retry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.mu.Lock()
			if len(p.failed) > 0 {
				p.fill()
			}
			p.mu.Unlock()
		}
	}
}
