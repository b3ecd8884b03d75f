package quota

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// removableEntry is a file or directory that may be removed.
type removableEntry struct {
	name string
	uid  uint32
	// changed is when the content or attributes last changed (ctime). Code cannot set it.
	changed time.Time
	// closed means that the entry is a directory that sandboxd cannot read, or that is too deep.
	closed bool
	// own means that the ending run has created the file.
	own bool
}

// canOpen reports whether sandboxd can read a directory.
func canOpen(root *os.Root, dir string) bool {
	f, err := root.Open(dir)
	return err == nil && f.Close() == nil
}

// makeRoom removes the oldest files of a directory until it is at most half full. It keeps files of slots with a run in
// progress. It returns the number of removed files for which mine is true.
func (m *Meter) makeRoom(i int, mine func(*unix.Statx_t) bool) (own int) {
	m.room.Lock()
	defer m.room.Unlock()
	root := m.roots[i]
	if !m.isCrowded(i) {
		return 0
	}
	var leaves, dirs []removableEntry
	owner := map[string]uint32{} // of directories, by name
	busy := map[string]bool{}    // directories with files of a slot that has a run in progress
	walkEntries(root, ".", func(name string, st *unix.Statx_t) bool {
		// Code can set the mtime to any time with utimensat(2), but not the ctime.
		e := removableEntry{name: name, uid: st.Uid, changed: timeOf(st.Ctime), own: mine(st)}
		if !m.isIdle(e.uid) {
			for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
				busy[dir] = true
			}
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			owner[name] = e.uid
			if e.closed = isTooDeep(name) || !canOpen(root, name); !e.closed {
				dirs = append(dirs, e)
				return true
			}
		}
		leaves = append(leaves, e)
		return false
	}, nil)
	slices.SortFunc(leaves, func(a, b removableEntry) int { return a.changed.Compare(b.changed) })
	slices.Reverse(dirs) // children before their parents
	removed := 0
	for _, e := range append(leaves, dirs...) {
		if !m.isCrowded(i) {
			break
		}
		if !m.isIdle(e.uid) {
			continue
		}
		err := root.Remove(e.name) // removes a directory only if it is empty
		if dir := path.Dir(e.name); errors.Is(err, fs.ErrPermission) && dir != "." && !busy[dir] && m.isIdle(owner[dir]) {
			e.name, e.uid, e.closed = dir, owner[dir], true // the directory is not writable, so remove all of it
		}
		if e.closed {
			err = m.discardTree(i, e.name, e.uid)
		}
		if err == nil {
			removed++
			if e.own {
				own++
			}
		}
	}
	m.cfg.Log.Warn("removed the oldest files of a directory that was more than half full",
		"directory", m.cfg.Dirs[i].Name, "removed", removed)
	return own
}

// isCrowded reports whether a directory is a tmpfs and more than half full.
func (m *Meter) isCrowded(i int) bool {
	f := m.cfg.Dirs[i].measureFill()
	return f.own && (2*f.used.bytes > f.total.bytes || 2*f.used.files > f.total.files)
}

// isIdle reports whether no run is in progress whose files belong to uid.
func (m *Meter) isIdle(uid uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.cfg.OwnUsers {
		return len(m.busy) == 0
	}
	id, ok := slotOf(uid)
	return ok && !m.busy[id]
}

// slotOf returns the slot whose user is uid.
func slotOf(uid uint32) (slot.ID, bool) {
	id := slot.ID(int(uid) - slot.BaseUID)
	return id, id >= 0 && id < slot.Max
}

// discardTree removes a file or directory tree. If its owner has closed it, discard first empties it as that user.
func (m *Meter) discardTree(i int, name string, uid uint32) error {
	err := m.roots[i].RemoveAll(name)
	id, ok := slotOf(uid)
	if !errors.Is(err, fs.ErrPermission) || m.cfg.Wipe == nil || !ok {
		return err
	}
	if err := m.cfg.Wipe(id, m.cfg.Dirs[i].Path, name); err != nil {
		return err
	}
	return m.roots[i].RemoveAll(name)
}
