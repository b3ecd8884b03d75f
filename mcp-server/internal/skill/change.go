package skill

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/codeforge-mcp/codeforge/internal/logline"
)

// Snapshot is the state of all skills at one moment, to find out later what changed.
type Snapshot map[string]Skill

// Snapshot takes one. It opens no file.
func (s *Store) Snapshot() Snapshot {
	l, err := s.scan()
	if err != nil {
		return nil
	}
	snap := make(Snapshot, len(l.Skills))
	for _, k := range l.Skills {
		snap[k.Name] = k
	}
	return snap
}

// Change says what happened to one skill.
type Change struct{ Name, What string }

// Since lists what has changed since an earlier snapshot, sorted by name.
func (now Snapshot) Since(before Snapshot) []Change {
	var out []Change
	for name, k := range now {
		old, was := before[name]
		switch {
		case !was:
			out = append(out, Change{name, "new"})
		case old.inode != k.inode || old.Size != k.Size || !old.Modified.Equal(k.Modified):
			out = append(out, Change{name, "changed"})
		}
	}
	for name := range before {
		if _, is := now[name]; !is {
			out = append(out, Change{name, "deleted"})
		}
	}
	slices.SortFunc(out, func(a, b Change) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

const (
	// settle is how long the directory must be quiet before a change is reported, so that a burst is reported once.
	settle = 200 * time.Millisecond
	// unsettled is how long a directory that never becomes quiet can delay a report.
	unsettled = 2 * time.Second
)

// Watch calls changed after every change of the directory until ctx ends. If the directory cannot be
// watched, it looks every two seconds.
func (s *Store) Watch(ctx context.Context, log *slog.Logger, changed func()) {
	var events chan fsnotify.Event
	var errs chan error
	w, err := fsnotify.NewWatcher()
	if err == nil {
		defer w.Close()
		err = w.Add(s.dir)
		events, errs = w.Events, w.Errors
	}
	poll := make(<-chan time.Time)
	if err != nil {
		log.Warn("skills cannot be watched, looking every two seconds",
			logline.Tag("skill"), slog.String("error", err.Error()))
		tick := time.NewTicker(unsettled)
		defer tick.Stop()
		poll = tick.C
	}
	last := s.Snapshot()
	tell := func() {
		now := s.Snapshot()
		if len(now.Since(last)) > 0 {
			last = now
			changed()
		}
	}
	quiet := time.NewTimer(time.Hour)
	defer quiet.Stop()
	var first time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll:
			tell()
		case err := <-errs: // events were lost; the snapshot shows what changed
			log.Warn("watching the skills", logline.Tag("skill"), slog.String("error", err.Error()))
			quiet.Reset(settle)
		case <-events:
			if first.IsZero() {
				first = time.Now()
			}
			quiet.Reset(max(0, min(settle, unsettled-time.Since(first))))
		case <-quiet.C:
			first = time.Time{}
			tell()
		}
	}
}
