// Package journal is the record of what the proxy did, exchanges.ndjson in a folder: one controlapi.Event per line,
// exchanges as they end and the receipt of every run. The supervisor of embedded mode writes it from the proxy's event
// stream, and mcp-server in Docker; codeforge logs and codeforge receipt show it. Like the events, it holds no
// credential and no redacted string.
package journal

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logfile"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// Name is the file's name. A full one is renamed to Name.1.
const Name = "exchanges.ndjson"

const (
	// reconnectPause is how long Record waits after the stream of events ended.
	reconnectPause = 200 * time.Millisecond
	// pollInterval is how often Show looks for new events.
	pollInterval = 200 * time.Millisecond
	// maxLine bounds one event.
	maxLine = 4 << 20
)

// Record writes events to the folder until ctx ends.
func Record(ctx context.Context, dir string, client *controlapi.Client) error {
	f, err := logfile.Open(filepath.Join(dir, Name), 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for ctx.Err() == nil {
		// An error ends the stream: the proxy stopped, or this reader was too slow. The next stream continues.
		if events, err := client.Subscribe(ctx, controlapi.RequestEvents); err == nil {
			_ = events.Lines(func(line []byte) { _, _ = f.Write(line) })
		}
		select {
		case <-ctx.Done():
		case <-time.After(reconnectPause):
		}
	}
	return nil
}

// Query says which exchanges Show shows.
type Query struct {
	// Run is the id of a run, or a prefix of it. Empty: every exchange.
	Run string
	// Since leaves out earlier exchanges, unless it is zero.
	Since time.Time
	// Last is how many recorded exchanges are shown at most: the latest ones. 0: all.
	Last int
	// Follow goes on with new exchanges until the context ends.
	Follow bool
}

func (q Query) match(e controlapi.Event) bool {
	return e.Exchange != nil && strings.HasPrefix(e.Exchange.Run, q.Run) && !e.Exchange.At.Before(q.Since)
}

// Show calls on for the exchanges in dir that the query asks for, oldest first, and returns how many there were.
func Show(ctx context.Context, dir string, q Query, on func(controlapi.Event)) (int, error) {
	shown, live := 0, false
	var kept []controlapi.Event // the latest ones, while the record is read
	each := func(e controlapi.Event) {
		if !q.match(e) {
			return
		}
		shown++
		if live || q.Last <= 0 {
			on(e)
			return
		}
		if kept = append(kept, e); len(kept) >= 2*q.Last {
			kept = slices.Clone(kept[len(kept)-q.Last:])
		}
	}
	path := filepath.Join(dir, Name)
	if err := readFile(path+".1", each); err != nil {
		return shown, err
	}
	t := tail{path: path}
	defer t.close()
	if err := t.read(each); err != nil {
		return shown, err
	}
	live = true
	for _, e := range kept[max(0, len(kept)-q.Last):] {
		on(e)
	}
	for q.Follow {
		select {
		case <-ctx.Done():
			return shown, nil
		case <-time.After(pollInterval):
		}
		if err := t.read(each); err != nil {
			return shown, err
		}
	}
	return shown, nil
}

// Read calls on for every recorded event, oldest first.
func Read(dir string, on func(controlapi.Event)) error {
	path := filepath.Join(dir, Name)
	for _, p := range []string{path + ".1", path} {
		if err := readFile(p, on); err != nil {
			return err
		}
	}
	return nil
}

// readFile reads one file, which need not exist.
func readFile(path string, on func(controlapi.Event)) error {
	t := tail{path: path}
	defer t.close()
	return t.read(on)
}

// tail reads a file to its end, and on from there when it has grown or was replaced.
type tail struct {
	path string
	f    *os.File
	at   int64
}

// read calls on for the events that it has not read yet.
func (t *tail) read(on func(controlapi.Event)) error {
	for {
		if t.f == nil {
			f, err := os.Open(t.path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("reading the journal: %w", err)
			}
			t.f, t.at = f, 0
		}
		replaced := rotated(t.f, t.path) // before it is read: whatever was written to it is there now
		n, err := scan(io.NewSectionReader(t.f, t.at, 1<<62), on)
		if err != nil {
			return fmt.Errorf("reading %s: %w", t.path, err)
		}
		if t.at += n; !replaced {
			return nil
		}
		t.close()
	}
}

func (t *tail) close() {
	if t.f != nil {
		_ = t.f.Close()
		t.f = nil
	}
}

// scan decodes whole lines, skipping those that are not events, and returns their length in bytes.
func scan(r io.Reader, on func(controlapi.Event)) (int64, error) {
	var done int64
	b := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := b.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return done, nil // a line that is still being written is read later
		}
		if err != nil {
			return done, err
		}
		done += int64(len(line))
		var e controlapi.Event
		if len(line) <= maxLine && json.Unmarshal(line, &e) == nil {
			on(e)
		}
	}
}

// rotated reports whether path is now another file.
func rotated(f *os.File, path string) bool {
	now, err := os.Stat(path)
	if err != nil {
		return false
	}
	then, err := f.Stat()
	return err == nil && !os.SameFile(now, then)
}

// Receipt is the receipt of a run, by its id or a prefix of it; empty means the last run. While the run is under way,
// or when its receipt is no longer kept, it is assembled from the exchanges. What the run's calls made MCP servers send
// stands below the calls. The bool says whether there is a receipt.
func Receipt(dir, run string) (controlapi.Receipt, bool, error) {
	var whole *controlapi.Receipt
	var parts controlapi.Receipt
	caused := map[string][]controlapi.Caused{} // by run
	matches := func(have string) bool { return strings.HasPrefix(have, run) && (run != "" || controlapi.OfRun(have)) }
	err := Read(dir, func(e controlapi.Event) {
		switch {
		case e.Receipt != nil && matches(e.Receipt.Run):
			whole = e.Receipt
		case e.Exchange != nil && e.Exchange.Run != "" && matches(e.Exchange.Run):
			if e.Exchange.Run != parts.Run {
				parts = controlapi.Receipt{Run: e.Exchange.Run}
			}
			parts.Exchanges = append(parts.Exchanges, *e.Exchange)
			parts.Count.Add(*e.Exchange)
		case e.Caused != nil && matches(e.Caused.Run):
			caused[e.Caused.Run] = append(caused[e.Caused.Run], *e.Caused)
		}
	})
	if err != nil {
		return controlapi.Receipt{}, false, err
	}
	found := &parts
	if whole != nil { // even if exchanges of a later run follow it
		found = whole
	}
	found.AddCaused(caused[found.Run])
	return *found, found.Run != "", nil
}
