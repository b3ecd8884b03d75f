package network

import (
	"context"
	"errors"
	"time"
)

// ErrLost says that the network namespace has lost its interface.
var ErrLost = errors.New("the network of the sandbox is gone: its owner, sandbox-net, has ended")

// lookEvery is how often Lost looks.
const lookEvery = 500 * time.Millisecond

// Lost waits until the interface with our address goes away, and returns ErrLost then; nil when ctx ends first. The
// engine takes the interface away when the container that owns the namespace ends. What shares the namespace lives
// on without a way out, and gets the new one only by starting again. A namespace that has no such interface to begin
// with has none to lose.
func Lost(ctx context.Context) error {
	if _, err := device(); err != nil {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for missed := 0; missed < 2; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if _, err := device(); err != nil {
			missed++
		} else {
			missed = 0
		}
	}
	return ErrLost
}
