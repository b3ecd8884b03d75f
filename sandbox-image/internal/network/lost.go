package network

import (
	"context"
	"errors"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// ErrLost means that the network namespace has lost its interface.
var ErrLost = errors.New("the network of the sandbox is gone: its owner, sandbox-net, has ended")

// pollEvery is the interval at which AwaitLoss and AwaitSuccessor check.
const pollEvery = 500 * time.Millisecond

// AwaitLoss waits until the interface with our address is gone and returns ErrLost, or nil when ctx ends first. The
// engine removes the interface when the container that owns the namespace ends. A container that shares the namespace
// keeps running without a network, and joins the new namespace only when it is started again. If the namespace has an
// owner, the interface must exist: a container that starts between two owners joins the namespace of the ended one. If
// the namespace has no owner and no such interface, AwaitLoss waits for ctx.
func AwaitLoss(ctx context.Context, n slot.Network, hasOwner bool) error {
	if _, err := findDevice(n); err != nil && !hasOwner {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for missed := 0; missed < 2; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if _, err := findDevice(n); err != nil {
			// Two misses in a row: one failed listing of the interfaces must not end every run.
			missed++
		} else {
			missed = 0
		}
	}
	return ErrLost
}
