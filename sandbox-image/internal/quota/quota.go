// Package quota bounds the files that one run leaves in shared directories.
//
// No kernel quota works in every installation. So a Meter measures each directory while a run is in progress, and once
// more when the run has ended. It counts all files that belong to the slot and were created since the run began. The
// slots of an ordinary user share one uid. There a Meter charges a run only while no other run is in progress;
// otherwise only the size of the directory's file system is a bound.
//
// Files that runs leave within their bounds add up, and one slot cannot remove the files of another. So if a directory
// is a separate file system, the Meter removes the oldest files when it is more than half full.
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

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// SharedDir is one shared directory.
type SharedDir struct {
	// Path is the directory as sandboxd sees it, Name the directory as code sees it.
	Path, Name string
	// Bytes and Files are the most that one run may add.
	Bytes, Files int64
	// MakeRoom removes the oldest files at the end of a run if the directory is a tmpfs and more than half full.
	MakeRoom bool
}

// Config configures a Meter.
type Config struct {
	Dirs []SharedDir
	// OwnUsers means that every slot has a separate uid.
	OwnUsers bool
	// Wipe empties the directory name below dir as the slot's user, for directories that the user has closed to sandboxd.
	// Nil means that sandboxd can remove all files without it.
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
	errs := convert.Each(m.roots, (*os.Root).Close)
	return errors.Join(errs...)
}

// Run is one run whose files are being measured.
type Run struct {
	meter *Meter
	slot  slot.ID
	since time.Time
	over  *SharedDir
	// before is the used space of each file system when the run began.
	before []diskSpace
	// unkept has a sentence for each disk on which EndAndClean removed files of the run to make room.
	unkept []string
}

// BeginRun starts to measure a run.
func (m *Meter) BeginRun(id slot.ID) *Run {
	m.mu.Lock()
	m.busy[id] = true
	m.mu.Unlock()
	r := &Run{meter: m, slot: id, since: fileTime()}
	for i := range m.cfg.Dirs {
		r.before = append(r.before, m.cfg.Dirs[i].measureFill().used)
	}
	return r
}

// fileTime returns the timestamp that a file created now would get: the time of the kernel's last tick.
func fileTime() time.Time {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &t); err != nil {
		// The margin is more than one tick: a file of the run must not look older than the run.
		return time.Now().Add(-20 * time.Millisecond)
	}
	return time.Unix(t.Unix())
}

// Probe measures files of a run that sandboxd cannot see.
type Probe struct {
	// Unnamed returns the bytes of removed files that the run's processes still hold on a device. It is called only
	// if the file system has grown.
	Unnamed func(device uint64) int64
	// Written is the function Written, run as the slot's user. It is called only if the run has closed a directory.
	Written func(dir string, since time.Time, enough int64) FileCount
}

// FindExcess reports whether the run exceeds a bound: a reason and a sentence, or "". Call it once more before
// EndAndClean, when no process of the run is left, because a fast run can fill a directory between two calls.
func (r *Run) FindExcess(p Probe) (sandboxapi.Reason, string) {
	shared := r.mayBeShared()
	for i := range r.meter.roots {
		d := &r.meter.cfg.Dirs[i]
		excess := func(format string, args ...any) (sandboxapi.Reason, string) {
			r.over = d
			return sandboxapi.OutputLimit, fmt.Sprintf(format, args...)
		}
		//defence:unnamed
		if r.hasGrown(i) && p.Unnamed(d.deviceNumber()) > d.Bytes {
			return excess("The run held more than %d MiB in files of %s that it had removed, "+
				"which is too much. Close them, or keep less at a time.", d.Bytes>>20, d.Name)
		}
		// If slots share a uid, the files could belong to another run, which must not be punished for them.
		if shared || r.isWithinBounds(i) {
			continue
		}
		c := r.measureDir(i, p)
		switch {
		case c.Bytes > d.Bytes:
			return excess("The run wrote more than %d MiB to %s, which is too much; its files "+
				"there were removed. Keep less at a time.", d.Bytes>>20, d.Name)
		case c.Files > d.Files:
			return excess("The run made more than %d files in %s, which is too many; they were "+
				"removed. Put data into fewer files.", d.Files, d.Name)
		case c.Hidden:
			return excess("The run closed directories in %s, or made some more than %d deep, so "+
				"that their content cannot be counted; its files there were removed.", d.Name, maxDepth)
		}
	}
	return "", ""
}

// mayBeShared reports whether the files found could belong to another run.
func (r *Run) mayBeShared() bool {
	r.meter.mu.Lock()
	defer r.meter.mu.Unlock()
	return !r.meter.cfg.OwnUsers && len(r.meter.busy) > 1
}

// EndAndClean stops measuring. Call it when no process of the run is left. If the run exceeded a bound, EndAndClean
// removes the files that it created. If all runs together have left too much, EndAndClean removes the oldest files.
func (r *Run) EndAndClean() error {
	m := r.meter
	var errs []error
	if r.over != nil && !r.mayBeShared() {
		for i := range m.roots {
			errs = append(errs, r.removeFiles(i))
		}
	}
	// After remove, because makeRoom of another run keeps the files of busy slots.
	m.mu.Lock()
	delete(m.busy, r.slot)
	m.mu.Unlock()
	for i, d := range m.cfg.Dirs {
		if !d.MakeRoom {
			continue
		}
		if own := m.makeRoom(i, r.isOwn); own > 0 {
			r.unkept = append(r.unkept, fmt.Sprintf("%d files that the run wrote to %s were removed at its end, because the "+
				"disk of %s was more than half full.", own, d.Name, d.Name))
		}
	}
	return errors.Join(errs...)
}

// DescribeRemoved returns, in sentences, how many files of the run EndAndClean removed to make room. Empty: End removed
// no file.
func (r *Run) DescribeRemoved() string { return strings.Join(r.unkept, " ") }

type diskSpace struct{ bytes, files int64 }

// fillLevel describes how full a file system is.
type fillLevel struct {
	used, total diskSpace
	// own means that the file system is a tmpfs, which holds only the directory.
	own bool
}

// measureFill returns how full the directory's file system is, or the zero fill if the kernel returns an error.
func (d *SharedDir) measureFill() fillLevel {
	var st unix.Statfs_t
	if err := unix.Statfs(d.Path, &st); err != nil {
		return fillLevel{}
	}
	return fillLevel{
		used:  diskSpace{int64(st.Blocks-st.Bfree) * st.Bsize, int64(st.Files - st.Ffree)},
		total: diskSpace{int64(st.Blocks) * st.Bsize, int64(st.Files)},
		own:   st.Type == unix.TMPFS_MAGIC,
	}
}

// hasGrown reports whether the directory's file system has grown by more than a run may add since the run began. Other
// runs may have caused that.
func (r *Run) hasGrown(i int) bool {
	d := &r.meter.cfg.Dirs[i]
	return d.measureFill().used.bytes-r.before[i].bytes > d.Bytes
}

// deviceNumber returns the device number of the directory's file system, 0 if it cannot be read.
func (d *SharedDir) deviceNumber() uint64 {
	var st unix.Stat_t
	if err := unix.Stat(d.Path, &st); err != nil {
		return 0
	}
	return st.Dev
}

// isWithinBounds reports whether the run cannot have exceeded a bound of a directory, without reading its files.
func (r *Run) isWithinBounds(i int) bool {
	d := &r.meter.cfg.Dirs[i]
	now := d.measureFill()
	return now.own && now.used.bytes-r.before[i].bytes <= d.Bytes && now.used.files-r.before[i].files <= d.Files
}

// maxDepth bounds the walk. Entries deeper than that are not visited.
const maxDepth = 64

// isTooDeep reports whether the entries below name are too deep to visit.
func isTooDeep(name string) bool { return strings.Count(name, "/") == maxDepth }

// walkEntries calls f for every entry below a directory. It descends into a directory if f returns true for it. If it
// cannot descend, it calls hidden, unless hidden is nil. It returns false if it could not read dir itself.
func walkEntries(
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
			// AT_SYMLINK_NOFOLLOW: code can make a link to any path, and its target is not the run's file.
			if unix.Statx(int(d.Fd()), name, unix.AT_SYMLINK_NOFOLLOW, mask, &st) != nil {
				continue
			}
			at := path.Join(dir, name)
			if !f(at, &st) || st.Mode&unix.S_IFMT != unix.S_IFDIR {
				continue
			}
			if (isTooDeep(at) || !walkEntries(root, at, f, hidden)) && hidden != nil {
				hidden(at, &st)
			}
		}
		if err != nil {
			return true
		}
	}
}

// isOwn reports whether a file belongs to the slot and was created since the run began.
func (r *Run) isOwn(st *unix.Statx_t) bool {
	return r.ownsUID(st.Uid) && !birthTime(st).Before(r.since)
}

// birthTime returns when a file was created or, if that is unknown, last changed (ctime). Code can set neither time.
func birthTime(st *unix.Statx_t) time.Time {
	if st.Mask&unix.STATX_BTIME == 0 {
		return timeOf(st.Ctime)
	}
	return timeOf(st.Btime)
}

func timeOf(t unix.StatxTimestamp) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

func (r *Run) ownsUID(uid uint32) bool {
	return !r.meter.cfg.OwnUsers || int(uid) == r.slot.UID()
}

// measureDir adds up the files that the run created in a directory, and older files of the slot that the run changed.
func (r *Run) measureDir(i int, p Probe) FileCount {
	d, own := &r.meter.cfg.Dirs[i], r.meter.cfg.OwnUsers
	c := countWritten(r.meter.roots[i], r.ownsUID, r.since, d.Files, !own)
	// Over a bound without the hidden files, the verdict is clear, and no process of the slot's user is needed.
	if c.Hidden && c.Bytes <= d.Bytes && c.Files <= d.Files && own {
		return p.Written(d.Path, r.since, d.Files)
	}
	return c
}

// removeFiles removes the files that the run created, and the directories that it has closed.
func (r *Run) removeFiles(i int) error {
	var errs []error
	discard := func(name string, st *unix.Statx_t) { errs = append(errs, r.meter.discardTree(i, name, st.Uid)) }
	walkEntries(r.meter.roots[i], ".", func(name string, st *unix.Statx_t) bool {
		if !r.isOwn(st) {
			return true
		}
		discard(name, st)
		return false
	}, func(name string, st *unix.Statx_t) {
		if r.ownsUID(st.Uid) {
			discard(name, st)
		}
	})
	return errors.Join(errs...)
}
