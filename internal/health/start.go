package health

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/timing"
)

// holdTime is how long a container stays after its daemon could not start. It exceeds the time in which the engine
// marks it unhealthy, and the ten seconds below which the engine delays the next attempt.
const holdTime = 15 * time.Second

// startError is an error that kept a daemon from starting.
type startError struct{ error }

func (e startError) Unwrap() error { return e.error }

// CannotStart marks an error that kept a daemon from starting. CannotStart(nil) is nil.
func CannotStart(err error) error {
	if err == nil {
		return nil
	}
	return startError{err}
}

// HoldUntilStopped is for the end of main. If err is a CannotStart and this is process 1 of a container,
// HoldUntilStopped makes the container unhealthy, with err as the reason, before the engine restarts it. A container
// that ends at once is neither healthy nor unhealthy, and Compose reports no error. HoldUntilStopped returns after
// 15 s or when ctx ends, and otherwise at once.
func HoldUntilStopped(ctx context.Context, err error) {
	var failed startError
	// Only a container is restarted by an engine.
	if os.Getpid() != 1 || !errors.As(err, &failed) {
		return
	}
	withdraw, err := publishProblem(failed.Error())
	if err != nil {
		return
	}
	defer withdraw()
	timing.WaitFor(ctx, holdTime)
}
