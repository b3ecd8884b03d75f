package health

import (
	"context"
	"errors"
	"os"
	"time"
)

// holdTime is how long a container stays after its daemon could not start: longer than the engine takes to call it
// unhealthy, and longer than the ten seconds below which the engine delays the next attempt.
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

// Hold is for the end of main. When err is a CannotStart and this is process 1 of a container, it makes the container
// unhealthy, with err as the reason, before the engine starts it again: a container that ends at once is neither
// healthy nor unhealthy, and Compose reports nothing. It returns when ctx ends, after 15 s, or else at once.
func Hold(ctx context.Context, err error) {
	var failed startError
	if os.Getpid() != 1 || !errors.As(err, &failed) {
		return
	}
	withdraw, err := publish(failed.Error())
	if err != nil {
		return
	}
	defer withdraw()
	select {
	case <-ctx.Done():
	case <-time.After(holdTime):
	}
}
