package quota

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/catalog/slot"
)

// entry is a file or directory that may have to go.
type entry struct {
	name string
	uid  uint32
	// changed is when its content or attributes last changed; code cannot set it.
	changed time.Time
}

// makeRoom removes the oldest files of a directory that is more than half full, until it no longer is. What belongs to a
// slot with a run under way stays.
func (m *Meter) makeRoom(i int) {
	m.room.Lock()
	defer m.room.Unlock()
	root := m.roots[i]
	if !m.crowded(i) {
		return
	}
	var files, dirs []entry
	busy := map[string]bool{} // top-level directories in which a run may be at work
	each(root, ".", 0, func(name string, st *unix.Statx_t) bool {
		e := entry{name, st.Uid, instant(st.Ctime)}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			dirs = append(dirs, e)
		} else {
			files = append(files, e)
		}
		if !m.idle(e.uid) {
			top, _, _ := strings.Cut(name, "/")
			busy[top] = true
		}
		return true
	})
	age := func(a, b entry) int { return a.changed.Compare(b.changed) }
	slices.SortFunc(files, age)
	slices.Reverse(dirs) // what is in a directory comes before it
	removed := 0
	for _, e := range append(files, dirs...) {
		// Of a directory that is not empty only what is in it goes.
		if m.crowded(i) && m.idle(e.uid) && root.Remove(e.name) == nil {
			removed++
		}
	}
	// What still takes the room is in directories that are closed to us.
	slices.SortFunc(dirs, age)
	for _, e := range dirs {
		if m.crowded(i) && !strings.Contains(e.name, "/") && !busy[e.name] && m.idle(e.uid) && m.discard(i, e.name, e.uid) == nil {
			removed++
		}
	}
	m.cfg.Log.Warn("the oldest files were removed: more than half of the room was taken", "from", m.cfg.Dirs[i].Name, "removed", removed)
}

// crowded reports whether more than half of a directory's room is taken.
func (m *Meter) crowded(i int) bool {
	f := look(m.roots[i])
	return f.own && (2*f.used.bytes > f.total.bytes || 2*f.used.files > f.total.files)
}

// idle reports whether what belongs to uid is no running code's.
func (m *Meter) idle(uid uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.cfg.OwnUsers {
		return len(m.busy) == 0
	}
	id, ok := slotOf(uid)
	return ok && !m.busy[id]
}

// slotOf is the slot whose user uid is.
func slotOf(uid uint32) (slot.ID, bool) {
	id := slot.ID(int(uid) - slot.BaseUID)
	return id, id >= 0 && id < slot.Max
}

// discard removes a file, or a directory with all that is in it. What its owner has closed is emptied as its owner.
func (m *Meter) discard(i int, name string, uid uint32) error {
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
