// Package journal is the record of what the proxy did, log/exchanges.ndjson in the state directory: one
// controlapi.Event per line, exchanges as they end, the receipt of every run, and what its calls made MCP servers send. The supervisor writes it from the
// proxy's event stream; codeforge logs and codeforge receipt read it. Like the events, it holds no credential and no
// redacted string.
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
	"time"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/logfile"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// Name is the file's path in the state directory.
const Name = "log/exchanges.ndjson"

const (
	// reconnectPause is how long Record waits after the stream of events ended.
	reconnectPause = 200 * time.Millisecond
	// pollInterval is how often Follow looks for new events.
	pollInterval = 200 * time.Millisecond
	// maxLine bounds one event.
	maxLine = 4 << 20
)

// Record writes events to the state directory until ctx ends.
func Record(ctx context.Context, state string, client *controlapi.Client) error {
	f, err := logfile.Open(filepath.Join(state, Name), 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for ctx.Err() == nil {
		// An error ends the stream: the proxy stopped, or this reader was too slow. The next stream continues.
		if events, err := client.Subscribe(ctx); err == nil {
			_ = events.Each(func(e controlapi.Event) { write(f, e) })
		}
		select {
		case <-ctx.Done():
		case <-time.After(reconnectPause):
		}
	}
	return nil
}

func write(w io.Writer, e controlapi.Event) {
	if e.Exchange == nil && e.Receipt == nil && e.Caused == nil {
		return
	}
	if line, err := json.Marshal(e); err == nil {
		_, _ = w.Write(append(line, '\n'))
	}
}

// Read calls on for every recorded event, oldest first.
func Read(state string, on func(controlapi.Event)) error {
	path := filepath.Join(state, Name)
	for _, p := range []string{path + ".1", path} {
		f, err := os.Open(p) //nolint:gosec // in the state directory
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading the journal: %w", err)
		}
		_, err = scan(f, on)
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("reading %s: %w", p, err)
		}
	}
	return nil
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

// Follow calls on for every event from now on, until ctx ends.
func Follow(ctx context.Context, state string, on func(controlapi.Event)) error {
	path := filepath.Join(state, Name)
	var f *os.File
	defer func() {
		if f != nil {
			_ = f.Close()
		}
	}()
	var at int64
	for first := true; ; first = false {
		if f == nil {
			if opened, err := os.Open(path); err == nil { //nolint:gosec // in the state directory
				f, at = opened, 0
				if first {
					at, _ = f.Seek(0, io.SeekEnd)
				}
			}
		}
		if f != nil {
			n, err := scan(io.NewSectionReader(f, at, 1<<62), on)
			if err != nil {
				return fmt.Errorf("reading %s: %w", path, err)
			}
			if at += n; n == 0 && rotated(f, path) {
				_ = f.Close()
				f = nil
				continue
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pollInterval):
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

// Receipt is the receipt of a run, by its id or a prefix of it; empty means the last run. What its calls made MCP servers
// send stands below the calls. While the run is under way,
// or when its receipt is no longer kept, it is assembled from the exchanges. The bool says whether there is one.
func Receipt(state, run string) (controlapi.Receipt, bool, error) {
	var whole *controlapi.Receipt
	var parts controlapi.Receipt
	caused := map[string][]controlapi.Caused{} // by run
	err := Read(state, func(e controlapi.Event) {
		switch {
		case e.Receipt != nil && matches(e.Receipt.Run, run):
			whole = e.Receipt
		case e.Exchange != nil && e.Exchange.Run != "" && matches(e.Exchange.Run, run):
			if e.Exchange.Run != parts.Run {
				parts = controlapi.Receipt{Run: e.Exchange.Run}
			}
			parts.Exchanges = append(parts.Exchanges, *e.Exchange)
			parts.Count.Add(*e.Exchange)
		case e.Caused != nil && matches(e.Caused.Run, run):
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

func matches(have, want string) bool {
	return want == "" && controlapi.OfRun(have) || want != "" && len(have) >= len(want) && have[:len(want)] == want
}
