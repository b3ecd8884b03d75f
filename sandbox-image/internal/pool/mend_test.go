package pool

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
)

// TestMend: a slot whose files could not be removed is out of use until they can be, and one of which a process is left
// for good.
func TestMend(t *testing.T) {
	for name, c := range map[string]struct {
		leftover error
		mended   bool
	}{"files": {nil, true}, "a process": {errors.New("it does not end"), false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, s := &Pool{cfg: Config{Log: slog.New(slog.DiscardHandler)}, stop: make(chan struct{})}, &slotState{}
				p.slots = []*slotState{s}
				var room atomic.Bool
				err := jail.ClearSlot(c.leftover, func() error {
					if room.Load() {
						return nil
					}
					return errors.New("no space left on device")
				})
				usable := func() bool {
					p.mu.Lock()
					defer p.mu.Unlock()
					return s.isVacant()
				}
				p.mu.Lock()
				p.vacateSlot(s, make(chan struct{}), err)
				p.mu.Unlock()
				time.Sleep(8 * time.Hour)
				if usable() {
					t.Error("it is in use with the files of the last run")
				}
				room.Store(true)
				time.Sleep(time.Minute)
				if usable() != c.mended {
					t.Errorf("with room again: usable %v", usable())
				}
				close(p.stop)
				p.work.Wait()
			})
		})
	}
}
