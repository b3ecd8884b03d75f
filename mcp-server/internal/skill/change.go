package skill

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/codeforge-mcp/codeforge/internal/logline"
)

// Snapshot is the state of the directory at one moment, for finding later changes. The zero Snapshot is empty.
type Snapshot struct {
	skills map[string]Skill
	strays map[string]string // files that are not skills, with the reason
	hidden map[string]Skill  // files that a pinned source replaces
}

// TakeSnapshot returns the present state. It opens no file.
func (s *Store) TakeSnapshot() Snapshot {
	l, err := s.scanSkills()
	if err != nil {
		return Snapshot{}
	}
	return Snapshot{skills: indexByName(l.Skills), strays: l.strays, hidden: indexByName(l.hidden)}
}

// Names returns the skills, sorted.
func (now Snapshot) Names() []string { return slices.Sorted(maps.Keys(now.skills)) }

// SkillChange is the change of one skill.
type SkillChange struct{ Name, What string }

// Kinds of changes.
const (
	New     = "new"
	Altered = "changed"
	Deleted = "deleted"
)

func indexByName(list []Skill) map[string]Skill {
	index := make(map[string]Skill, len(list))
	for _, k := range list {
		index[k.Name] = k
	}
	return index
}

// ChangesSince lists the changes since an earlier snapshot, sorted by name.
func (now Snapshot) ChangesSince(before Snapshot) []SkillChange {
	return compareSkills(now.skills, before.skills)
}

// HiddenSince lists the changed files that have no effect because of a pin, sorted by name.
func (now Snapshot) HiddenSince(before Snapshot) []SkillChange {
	return compareSkills(now.hidden, before.hidden)
}

func compareSkills(now, before map[string]Skill) []SkillChange {
	var out []SkillChange
	for name, k := range now {
		old, was := before[name]
		switch {
		case !was:
			out = append(out, SkillChange{name, New})
		// The inode too: code can replace a file and set its old time and size.
		case old.inode != k.inode || old.Size != k.Size || !old.Modified.Equal(k.Modified):
			out = append(out, SkillChange{name, Altered})
		}
	}
	for name := range before {
		if _, is := now[name]; !is {
			out = append(out, SkillChange{name, Deleted})
		}
	}
	return sortChanges(out)
}

// StraysSince lists the files that were added since an earlier snapshot and are not skills, sorted by name. The field
// What is the reason. Code chose the names.
func (now Snapshot) StraysSince(before Snapshot) []SkillChange {
	var out []SkillChange
	for name, why := range now.strays {
		if before.strays[name] != why {
			out = append(out, SkillChange{name, why})
		}
	}
	return sortChanges(out)
}

func sortChanges(list []SkillChange) []SkillChange {
	slices.SortFunc(list, func(a, b SkillChange) int { return strings.Compare(a.Name, b.Name) })
	return list
}

const (
	// settle is how long the directory must be quiet before a change is reported, so that many changes give one report.
	settle = 200 * time.Millisecond
	// unsettled bounds the delay of a report if the directory never becomes quiet.
	unsettled = 2 * time.Second
)

// WatchChanges calls changed after every change of the directory, or of shared skills, until ctx ends. If it cannot
// watch the directories, it polls every two seconds.
func (s *Store) WatchChanges(ctx context.Context, log *slog.Logger, changed func()) {
	var events chan fsnotify.Event
	var errs chan error
	w, err := fsnotify.NewWatcher()
	if err == nil {
		defer w.Close()
		err = w.Add(s.dir)
		if err == nil && s.shared != nil {
			err = w.Add(s.shared.dir)
		}
		events, errs = w.Events, w.Errors
	}
	poll := make(<-chan time.Time)
	if err != nil {
		log.Warn("skills cannot be watched, polling every two seconds",
			logline.Tag("skill"), slog.String("error", err.Error()))
		tick := time.NewTicker(unsettled)
		defer tick.Stop()
		poll = tick.C
	}
	last := s.TakeSnapshot()
	// An event may not change a skill, such as the creation of a draft.
	tell := func() {
		now := s.TakeSnapshot()
		if len(now.ChangesSince(last)) > 0 {
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
		case err := <-errs: // events were lost; the snapshot shows the changes
			log.Warn("watching the skills", logline.Tag("skill"), slog.String("error", err.Error()))
			quiet.Reset(settle)
		case <-events:
			if first.IsZero() {
				first = time.Now()
			}
			// The wait ends at unsettled even if changes go on.
			quiet.Reset(max(0, min(settle, unsettled-time.Since(first))))
		case <-quiet.C:
			first = time.Time{}
			tell()
		}
	}
}
