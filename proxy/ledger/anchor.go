//go:build unix

package ledger

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/logline"
)

const (
	// anchorQueue is how many checkpoints may wait for a slow anchor.
	anchorQueue = 256
	// anchorTime is how long Close waits for the anchor.
	anchorTime = 2 * time.Second
)

// anchor is a file or a named pipe outside the ledger that gets the short form of every checkpoint. A separate
// goroutine writes to it, because its disk may stall. The anchor misses the checkpoints that it cannot take; the ledger
// has every checkpoint.
type anchor struct {
	path  string
	log   *slog.Logger
	lines chan string
	done  chan struct{}
}

// newAnchor starts a goroutine that writes to a path.
func newAnchor(path string, log *slog.Logger) *anchor {
	a := &anchor{path: path, log: log, lines: make(chan string, anchorQueue), done: make(chan struct{})}
	go a.writeLines()
	return a
}

// addLine queues a line. It never blocks.
func (a *anchor) addLine(line string) {
	// The caller holds the ledger's lock: a stalled anchor must not stall the ledger.
	select {
	case a.lines <- line:
	default:
		a.logLost(errors.New("it is too slow"))
	}
}

func (a *anchor) logLost(err error) {
	a.log.Warn("AUDIT_ANCHOR did not get a checkpoint", logline.Tag("audit"), slog.String("error", err.Error()))
}

// writeLines writes queued lines until close.
func (a *anchor) writeLines() {
	defer close(a.done)
	for line := range a.lines {
		if err := appendLine(a.path, line); err != nil {
			a.logLost(err)
		}
	}
}

// appendLine opens the file for each line, because it may have been moved away, or a pipe may have got a reader.
// O_NONBLOCK makes a pipe without a reader an error.
func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// close writes the queued lines, if the anchor takes them in time. The caller must not call add afterwards.
func (a *anchor) close() {
	close(a.lines)
	select {
	case <-a.done:
	case <-time.After(anchorTime):
	}
}
