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
	// anchorQueue is how many checkpoints wait for a slow anchor.
	anchorQueue = 256
	// anchorTime is how long Close waits for it.
	anchorTime = 2 * time.Second
)

// anchor is a file or a named pipe elsewhere that gets the short form of every checkpoint, in a goroutine of its own:
// it may be on a disk that does not answer. What it cannot take is lost to it; the ledger has every checkpoint.
type anchor struct {
	path  string
	log   *slog.Logger
	lines chan string
	done  chan struct{}
}

// newAnchor begins to write to a path.
func newAnchor(path string, log *slog.Logger) *anchor {
	a := &anchor{path: path, log: log, lines: make(chan string, anchorQueue), done: make(chan struct{})}
	go a.write()
	return a
}

// add queues a line. It never waits.
func (a *anchor) add(line string) {
	select {
	case a.lines <- line:
	default:
		a.lost(errors.New("it is too slow"))
	}
}

func (a *anchor) lost(err error) {
	a.log.Warn("AUDIT_ANCHOR did not get a checkpoint", logline.Tag("audit"), slog.String("error", err.Error()))
}

// write writes what is queued until close.
func (a *anchor) write() {
	defer close(a.done)
	for line := range a.lines {
		if err := appendLine(a.path, line); err != nil {
			a.lost(err)
		}
	}
}

// appendLine opens the file for each line: it may have been moved away, and a pipe's reader may have come.
// Non-blocking: a pipe without a reader is an error.
func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// close writes what is queued, if the anchor takes it in time. Nothing is added afterwards.
func (a *anchor) close() {
	close(a.lines)
	select {
	case <-a.done:
	case <-time.After(anchorTime):
	}
}
