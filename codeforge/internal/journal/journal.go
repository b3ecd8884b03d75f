// Package journal is what the proxy did, kept in the state directory: log/exchanges.ndjson, one controlapi.Event per
// line, exchanges as they end and the receipt of every run. The supervisor writes it from the proxy's event stream;
// codeforge logs and codeforge receipt read it. It holds what events hold: no credential and no redacted string.
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
	// reconnect is how long Record waits when the stream of events broke.
	reconnect = 200 * time.Millisecond
	// poll is how often Follow looks for more.
	poll = 200 * time.Millisecond
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
		// An error is the end of a stream: the proxy stops, or was too slow to be read. The next one takes over.
		_ = client.Events(ctx, func(e controlapi.Event) {
			if e.Exchange == nil && e.Receipt == nil {
				return
			}
			if line, err := json.Marshal(e); err == nil {
				_, _ = f.Write(append(line, '\n'))
			}
		})
		select {
		case <-ctx.Done():
		case <-time.After(reconnect):
		}
	}
	return nil
}

// Read calls on for every event kept, oldest first.
func Read(state string, on func(controlapi.Event)) error {
	path := filepath.Join(state, Name)
	for _, p := range []string{path + ".1", path} {
		f, err := os.Open(p) //nolint:gosec // in the state directory
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading what the proxy did: %w", err)
		}
		_, err = scan(f, on)
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("reading %s: %w", p, err)
		}
	}
	return nil
}

// scan decodes whole lines, passing over what is no event, and says how many bytes they were.
func scan(r io.Reader, on func(controlapi.Event)) (int64, error) {
	var done int64
	b := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := b.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return done, nil // what is half written is for later
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
			if at += n; n == 0 && turnedOver(f, path) {
				_ = f.Close()
				f = nil
				continue
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(poll):
		}
	}
}

// turnedOver reports whether path is another file by now.
func turnedOver(f *os.File, path string) bool {
	now, err := os.Stat(path)
	if err != nil {
		return false
	}
	then, err := f.Stat()
	return err == nil && !os.SameFile(now, then)
}

// Receipt is the receipt of a run, by its id or the beginning of it; empty means the last run. It is put together from
// the exchanges while the run goes on, or when its receipt is not kept any more. The bool says whether there is one.
func Receipt(state, run string) (controlapi.Receipt, bool, error) {
	var whole *controlapi.Receipt
	var parts controlapi.Receipt
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
		}
	})
	switch {
	case err != nil:
		return controlapi.Receipt{}, false, err
	case whole != nil: // also when exchanges of a run that goes on came after it
		return *whole, true, nil
	}
	return parts, parts.Run != "", nil
}

func matches(have, want string) bool {
	return want == "" || len(have) >= len(want) && have[:len(want)] == want
}
