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

// AwaitLoss waits until the interface with the sandbox's address is gone and returns ErrLost, or nil if ctx ends first.
// The engine removes the interface when the container that owns the namespace ends. A container that shares the
// namespace then runs on without a network, and joins the new namespace only at its next start. If the interface is
// missing at the call, AwaitLoss waits for ctx.
func AwaitLoss(ctx context.Context, n slot.Network) error {
	if _, err := device(n); err != nil {
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
		if _, err := device(n); err != nil {
			// Two misses in a row: one failed listing of the interfaces must not end every run.
			missed++
		} else {
			missed = 0
		}
	}
	return ErrLost
}
