// Package quota bounds what one run leaves in the directories that runs share.
//
// No kernel quota works for them everywhere. So each directory is measured while a run is in progress and once more
// when it has ended: what counts is everything that was created since the run began and belongs to its slot. The slots
// of an ordinary user share one uid; there a run is charged only while no other run is in progress, and otherwise the
// size of the directory itself is the bound.
//
// What runs leave within their bounds adds up, and one slot cannot remove the files of another. So where a directory is
// a file system of its own, the oldest files are removed when it is more than half full.
package quota

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// Dir is one shared directory.
type Dir struct {
	// Path is the directory as sandboxd sees it, Name as code sees it.
	Path, Name string
	// Bytes and Files are what one run may add.
	Bytes, Files int64
	// MakeRoom removes the oldest files at the end of a run when the directory is a tmpfs more than half full.
	MakeRoom bool
}

// Config configures a Meter.
type Config struct {
	Dirs []Dir
	// OwnUsers means that every slot has a uid of its own.
	OwnUsers bool
	// Wipe empties the directory name below dir as the slot's user, for directories that the user has closed to
	// sandboxd. Nil means that sandboxd can remove everything itself.
	Wipe func(id slot.ID, dir, name string) error
	Log  *slog.Logger
}

// Meter measures the shared directories. It is safe for concurrent use.
type Meter struct {
	cfg   Config
	roots []*os.Root

	mu   sync.Mutex
	busy map[slot.ID]bool

	room sync.Mutex // serialises makeRoom
}

// New opens the directories.
func New(cfg Config) (*Meter, error) {
	m := &Meter{cfg: cfg, busy: map[slot.ID]bool{}}
	for _, d := range cfg.Dirs {
		root, err := os.OpenRoot(d.Path)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening %s: %w", d.Name, err), m.Close())
		}
		m.roots = append(m.roots, root)
	}
	return m, nil
}

// Close closes the directories.
func (m *Meter) Close() error {
	var errs []error
	for _, r := range m.roots {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// Run is one run whose files are being measured.
type Run struct {
	meter *Meter
	slot  slot.ID
	since time.Time
	over  *Dir
	// before is how full the directories were.
	before []space
	// unkept has a sentence for each disk on which End removed files of the run to make room.
	unkept []string
}

// Begin starts to measure a run.
func (m *Meter) Begin(id slot.ID) *Run {
	m.mu.Lock()
	m.busy[id] = true
	m.mu.Unlock()
	r := &Run{meter: m, slot: id, since: fileTime()}
	for i := range m.cfg.Dirs {
		r.before = append(r.before, m.cfg.Dirs[i].fill().used)
	}
	return r
}

// fileTime is the timestamp that a file created now would get: the time of the kernel's last tick.
func fileTime() time.Time {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &t); err != nil {
		return time.Now().Add(-20 * time.Millisecond)
	}
	return time.Unix(t.Unix())
}

// Probe looks at what sandboxd cannot see of a run.
type Probe struct {
	// Unnamed returns how many bytes the run's processes hold in files of a device that are open but have been removed. It
	// is called only when the file system has grown.
	Unnamed func(device uint64) int64
	// Written is the function Written, as the slot's user. It is called only when the run has closed a directory.
	Written func(dir string, since time.Time, enough int64) Count
}

// Check reports whether the run exceeds a bound: a reason and a sentence, or "". Call it a last time before End, when
// no process of the run is left: a fast run can fill a directory between two calls.
func (r *Run) Check(p Probe) (runapi.Reason, string) {
	shared := r.shared()
	for i := range r.meter.roots {
		d := &r.meter.cfg.Dirs[i]
		//defence:unnamed
		if r.grown(i) && p.Unnamed(d.device()) > d.Bytes {
			r.over = d
			return runapi.OutputLimit, fmt.Sprintf("The run held more than %d MiB in files of %s that it had removed, which is "+
				"too much. Close them, or keep less at a time.", d.Bytes>>20, d.Name)
		}
		if shared || r.withinBounds(i) {
			continue
		}
		c := r.measure(i, p)
		switch {
		case c.Bytes > d.Bytes:
			r.over = d
			return runapi.OutputLimit, fmt.Sprintf("The run wrote more than %d MiB to %s, which is too much; what it wrote "+
				"there was removed. Keep less at a time.", d.Bytes>>20, d.Name)
		case c.Files > d.Files:
			r.over = d
			return runapi.OutputLimit, fmt.Sprintf("The run made more than %d files in %s, which is too many; they were "+
				"removed. Put data into fewer files.", d.Files, d.Name)
		case c.Hidden:
			r.over = d
			return runapi.OutputLimit, fmt.Sprintf("The run closed directories in %s, or made some more than %d deep, so that "+
				"what they hold cannot be counted; what it wrote there was removed.", d.Name, maxDepth)
		}
	}
	return "", ""
}

// shared reports whether the files found could belong to another run.
func (r *Run) shared() bool {
	r.meter.mu.Lock()
	defer r.meter.mu.Unlock()
	return !r.meter.cfg.OwnUsers && len(r.meter.busy) > 1
}

// End stops measuring. If the run exceeded a bound, the files that it created are removed; no process of it may be
// left. If all runs together have left too much, the oldest files are removed.
func (r *Run) End() error {
	m := r.meter
	var errs []error
	if r.over != nil && !r.shared() {
		for i := range m.roots {
			errs = append(errs, r.remove(i))
		}
	}
	m.mu.Lock()
	delete(m.busy, r.slot)
	m.mu.Unlock()
	for i, d := range m.cfg.Dirs {
		if !d.MakeRoom {
			continue
		}
		if own := m.makeRoom(i, r.mine); own > 0 {
			r.unkept = append(r.unkept, fmt.Sprintf("%d files that the run wrote to %s were removed at its end, because the "+
				"disk of %s was more than half full.", own, d.Name, d.Name))
		}
	}
	return errors.Join(errs...)
}

// Unkept returns how many files of the run End has removed to make room, in sentences. Empty: End removed none.
func (r *Run) Unkept() string { return strings.Join(r.unkept, " ") }

// space is an amount of bytes and files.
type space struct{ bytes, files int64 }

// fill is how full a file system is.
type fill struct {
	used, total space
	// own means that it is a tmpfs, which holds nothing but the directory.
	own bool
}

// fill returns how full the directory's file system is, or the zero fill if the kernel does not tell.
func (d *Dir) fill() fill {
	var st unix.Statfs_t
	if err := unix.Statfs(d.Path, &st); err != nil {
		return fill{}
	}
	return fill{
		used:  space{int64(st.Blocks-st.Bfree) * st.Bsize, int64(st.Files - st.Ffree)},
		total: space{int64(st.Blocks) * st.Bsize, int64(st.Files)},
		own:   st.Type == unix.TMPFS_MAGIC,
	}
}

// grown reports whether the directory's file system has grown by more than a run may add since the run began. Others
// may have written that.
func (r *Run) grown(i int) bool {
	d := &r.meter.cfg.Dirs[i]
	return d.fill().used.bytes-r.before[i].bytes > d.Bytes
}

// device is the device number of the directory's file system, 0 if it cannot be read.
func (d *Dir) device() uint64 {
	var st unix.Stat_t
	if err := unix.Stat(d.Path, &st); err != nil {
		return 0
	}
	return st.Dev
}

// withinBounds reports that the run cannot have exceeded a bound of a directory, without reading its files.
func (r *Run) withinBounds(i int) bool {
	d := &r.meter.cfg.Dirs[i]
	now := d.fill()
	return now.own && now.used.bytes-r.before[i].bytes <= d.Bytes && now.used.files-r.before[i].files <= d.Files
}

// maxDepth bounds the walk. Nothing below it is looked at.
const maxDepth = 64

// deepest reports whether nothing below an entry is looked at.
func deepest(name string) bool { return strings.Count(name, "/") == maxDepth }

// each calls f for every entry below a directory. It descends into a directory if f returns true for it; if it cannot,
// it calls hidden, unless that is nil. It returns false if it could not read the directory itself.
func each(
	root *os.Root, dir string, f func(name string, st *unix.Statx_t) (enter bool), hidden func(string, *unix.Statx_t),
) bool {
	d, err := root.Open(dir)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1000)
		for _, name := range names {
			var st unix.Statx_t
			const mask = unix.STATX_BASIC_STATS | unix.STATX_BTIME
			if unix.Statx(int(d.Fd()), name, unix.AT_SYMLINK_NOFOLLOW, mask, &st) != nil {
				continue
			}
			at := path.Join(dir, name)
			if !f(at, &st) || st.Mode&unix.S_IFMT != unix.S_IFDIR {
				continue
			}
			if (deepest(at) || !each(root, at, f, hidden)) && hidden != nil {
				hidden(at, &st)
			}
		}
		if err != nil {
			return true
		}
	}
}

// mine reports whether a file belongs to the slot and was created since the run began.
func (r *Run) mine(st *unix.Statx_t) bool { return r.owns(st.Uid) && !born(st).Before(r.since) }

// born is when a file was created, or if that is not known, when it last changed: code can set neither.
func born(st *unix.Statx_t) time.Time {
	if st.Mask&unix.STATX_BTIME == 0 {
		return instant(st.Ctime)
	}
	return instant(st.Btime)
}

func instant(t unix.StatxTimestamp) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

func (r *Run) owns(uid uint32) bool {
	return !r.meter.cfg.OwnUsers || int(uid) == r.slot.UID()
}

// measure adds up the files that the run created in a directory, and older files of the slot that it wrote to.
func (r *Run) measure(i int, p Probe) Count {
	d, own := &r.meter.cfg.Dirs[i], r.meter.cfg.OwnUsers
	c := written(r.meter.roots[i], r.owns, r.since, d.Files, !own)
	if c.Hidden && c.Bytes <= d.Bytes && c.Files <= d.Files && own {
		return p.Written(d.Path, r.since, d.Files)
	}
	return c
}

// remove removes the files that the run created, and what it has hidden.
func (r *Run) remove(i int) error {
	var errs []error
	discard := func(name string, st *unix.Statx_t) { errs = append(errs, r.meter.discard(i, name, st.Uid)) }
	each(r.meter.roots[i], ".", func(name string, st *unix.Statx_t) bool {
		if !r.mine(st) {
			return true
		}
		discard(name, st)
		return false
	}, func(name string, st *unix.Statx_t) {
		if r.owns(st.Uid) {
			discard(name, st)
		}
	})
	return errors.Join(errs...)
}
