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
	"log/slog"
	"os"
	"path"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/disarm"
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

// Check reports whether the run exceeds a bound: a reason and a sentence, or "". Call it a last time before End, when
// no process of the run is left: a fast run can fill a directory between two calls. unnamed returns how many bytes the
// run's processes hold in files of a device that are open but have been removed; it is called only when the file system
// has grown.
func (r *Run) Check(unnamed func(device uint64) int64) (runapi.Reason, string) {
	shared := r.shared()
	for i, root := range r.meter.roots {
		d := &r.meter.cfg.Dirs[i]
		if r.grown(i) && unnamed(d.device()) > d.Bytes && !disarm.Off("unnamed") {
			r.over = d
			return runapi.OutputLimit, fmt.Sprintf("The run held more than %d MiB in files of %s that it had removed, which is "+
				"too much. Close them, or keep less at a time.", d.Bytes>>20, d.Name)
		}
		if shared || r.withinBounds(i) {
			continue
		}
		bytes, files := r.measure(root, d.Files)
		switch {
		case bytes > d.Bytes:
			r.over = d
			return runapi.OutputLimit, fmt.Sprintf("The run wrote more than %d MiB to %s, which is too much; what it wrote "+
				"there was removed. Keep less at a time.", d.Bytes>>20, d.Name)
		case files > d.Files:
			r.over = d
			return runapi.OutputLimit, fmt.Sprintf("The run made more than %d files in %s, which is too many; they were "+
				"removed. Put data into fewer files.", d.Files, d.Name)
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
		if d.MakeRoom {
			m.makeRoom(i)
		}
	}
	return errors.Join(errs...)
}

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

// maxDepth bounds the walk. Files below it are neither counted nor removed.
const maxDepth = 64

// each calls f for every entry below a directory. It descends into a directory if f returns true for it.
func each(root *os.Root, dir string, depth int, f func(name string, st *unix.Statx_t) (enter bool)) {
	if depth > maxDepth {
		return
	}
	d, err := root.Open(dir)
	if err != nil {
		return // an unreadable directory counts as one file
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
			if f(at, &st) && st.Mode&unix.S_IFMT == unix.S_IFDIR {
				each(root, at, depth+1, f)
			}
		}
		if err != nil {
			return
		}
	}
}

// mine reports whether a file belongs to the slot and was created since the run began.
func (r *Run) mine(st *unix.Statx_t) bool {
	at := st.Btime
	if st.Mask&unix.STATX_BTIME == 0 {
		at = st.Ctime
	}
	return r.owns(st) && !instant(at).Before(r.since)
}

func instant(t unix.StatxTimestamp) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

func (r *Run) owns(st *unix.Statx_t) bool {
	return !r.meter.cfg.OwnUsers || int(st.Uid) == r.slot.UID()
}

// measure adds up the files that the run created, and older files of the slot that it wrote to.
func (r *Run) measure(root *os.Root, maxFiles int64) (bytes, files int64) {
	seen := map[uint64]bool{}
	each(root, ".", 0, func(_ string, st *unix.Statx_t) bool {
		mine := r.mine(st)
		written := mine || r.owns(st) && !instant(st.Mtime).Before(r.since)
		if !written || seen[st.Ino] {
			return files <= maxFiles
		}
		seen[st.Ino] = true
		if mine {
			files++
		}
		if mine || st.Mode&unix.S_IFMT == unix.S_IFREG {
			bytes += int64(st.Blocks) * 512
		}
		return files <= maxFiles
	})
	return bytes, files
}

// remove removes the files that the run created.
func (r *Run) remove(i int) error {
	var errs []error
	each(r.meter.roots[i], ".", 0, func(name string, st *unix.Statx_t) bool {
		if !r.mine(st) {
			return true
		}
		errs = append(errs, r.meter.discard(i, name, st.Uid))
		return false
	})
	return errors.Join(errs...)
}
