package network

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// TestAwaitLossWithoutInterface: a container that starts between two owners of its namespace finds no interface, and must
// not wait for one.
func TestAwaitLossWithoutInterface(t *testing.T) {
	nowhere, _ := slot.ParseNetwork("10.251.77") // unlike every network of the tests
	if err := AwaitLoss(t.Context(), nowhere, true); !errors.Is(err, ErrLost) {
		t.Errorf("with an owner: %v, want %v", err, ErrLost)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*pollEvery+100*time.Millisecond)
	defer cancel()
	if err := AwaitLoss(ctx, nowhere, false); err != nil || ctx.Err() == nil {
		t.Errorf("without an owner: %v before the end", err)
	}
}
