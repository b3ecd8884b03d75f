package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/timing"
)

const (
	// firstPause and lastPause bound the pauses before a restart. Each pause is twice as long as the one before.
	firstPause = time.Second
	lastPause  = time.Minute
	// settled is how long all parts must work before the next pause is firstPause again. A part that fails less often
	// costs one second per failure.
	settled = 20 * time.Second
)

// restarter starts all parts again if one fails. The daemons share slots, leases and sockets, so it never restarts a
// single one. Otherwise the rights of a run would depend on which daemon remembers it.
type restarter struct {
	config Config
	lock   *os.File
	// once is the function once.
	once  func(context.Context, Config, *os.File, *statedir.Ended, func(Ready) error) error
	ready func(Ready) error

	pause time.Duration
	again *statedir.Ended // the end of the previous start; nil for the first
}

func (r *restarter) runAndRestart(ctx context.Context) error {
	for {
		var up time.Time
		err := r.once(ctx, r.config, r.lock, r.again, func(now Ready) error {
			up = time.Now()
			if r.again != nil {
				r.config.State.ForgetEnded()
				return nil
			}
			r.config.Port = now.Up.Port // clients use it already
			return r.ready(now)
		})
		// A requested end must not look like a failure to status and doctor.
		if err == nil || ctx.Err() != nil {
			r.config.State.ForgetEnded()
			return err
		}
		if up.IsZero() && r.again == nil {
			return err // it never started: the caller reports the error
		}
		ended := statedir.Ended{At: time.Now().UTC(), Reason: err.Error()}
		// Without the lock, another supervisor may already run on the state directory.
		if !r.config.Restart || !r.config.State.IsHeldBy(r.lock) {
			r.recordFailure(ended)
			return err
		}
		r.pause = nextPause(r.pause, up)
		ended.Next = ended.At.Add(r.pause)
		r.recordFailure(ended)
		r.again = &statedir.Ended{At: ended.At, Reason: ended.Reason}
		if !timing.WaitFor(ctx, r.pause) {
			r.config.State.ForgetEnded()
			return nil
		}
	}
}

// nextPause returns the pause after a failure. up is the time at which all parts were ready; zero: never.
func nextPause(last time.Duration, up time.Time) time.Duration {
	if last == 0 || !up.IsZero() && time.Since(up) > settled {
		return firstPause
	}
	return min(2*last, lastPause)
}

// recordFailure stores the failure for status and doctor, and logs it.
func (r *restarter) recordFailure(e statedir.Ended) {
	if err := r.config.State.WriteEnded(e); err != nil {
		fmt.Fprintf(r.config.Stderr, "codeforge: %v\n", err)
	}
	file, err := openLogFile(r.config.State.Join("log", "codeforge.log"), 0)
	if err != nil {
		return
	}
	defer file.Close()
	log := logline.New(file, r.config.Settings.LogFormat, nil)
	log.Error("a part of CodeForge ended by itself", logline.Tag("supervisor"), slog.String("reason", e.Reason),
		slog.Bool("restart", !e.Next.IsZero()))
}
