// Package quota bounds what one run leaves in the directories that runs share.
//
// They have no quota of the kernel's that would work everywhere, so each is looked at while runs go on: how much there
// is that has come since the run began and belongs to its slot. Slots of an ordinary user share the user's uid; there
// a run is held responsible only while no other one is under way, and the size of the directory itself is the bound.
package quota

import (
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/catalog/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// Dir is one shared directory.
type Dir struct {
	// Path is sandboxd's, Name the sandbox's.
	Path, Name string
	// Bytes and Files are what one run may add.
	Bytes, Files int64
}

// Config configures a Meter.
type Config struct {
	Dirs []Dir
	// OwnUsers: every slot has a uid of its own.
	OwnUsers bool
}

// Meter watches the shared directories. It is safe for concurrent use.
type Meter struct {
	cfg   Config
	roots []*os.Root

	mu   sync.Mutex
	busy map[slot.ID]bool
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

// Run is one run under watch.
type Run struct {
	meter *Meter
	slot  slot.ID
	since time.Time
	over  *Dir
	// before is how full the directories were.
	before []space
}

// Begin starts to watch a run.
func (m *Meter) Begin(id slot.ID) *Run {
	m.mu.Lock()
	m.busy[id] = true
	m.mu.Unlock()
	// File systems stamp files with the time of the last tick.
	r := &Run{meter: m, slot: id, since: time.Now().Add(-20 * time.Millisecond)}
	for _, root := range m.roots {
		s, _ := used(root)
		r.before = append(r.before, s)
	}
	return r
}

// Check looks whether the run is over a bound: a reason, and a sentence about it.
func (r *Run) Check() (runapi.Reason, string) {
	if r.shared() {
		return "", ""
	}
	for i, root := range r.meter.roots {
		if r.quiet(i) {
			continue
		}
		d := &r.meter.cfg.Dirs[i]
		bytes, files := r.measure(root, d.Files)
		switch {
		case bytes > d.Bytes:
			r.over = d
			return runapi.OutputLimit, fmt.Sprintf("The run wrote more than %d MiB to %s and was ended; what it wrote there "+
				"was removed. Keep less at a time.", d.Bytes>>20, d.Name)
		case files > d.Files:
			r.over = d
			return runapi.OutputLimit, fmt.Sprintf("The run made more than %d files in %s and was ended; they were removed. "+
				"Put data into fewer files.", d.Files, d.Name)
		}
	}
	return "", ""
}

// shared reports whether what is found could be another run's.
func (r *Run) shared() bool {
	r.meter.mu.Lock()
	defer r.meter.mu.Unlock()
	return !r.meter.cfg.OwnUsers && len(r.meter.busy) > 1
}

// End stops watching. Where the run was over a bound, what it made is removed: nothing of it may run any more.
func (r *Run) End() error {
	var errs []error
	if r.over != nil && !r.shared() {
		for _, root := range r.meter.roots {
			errs = append(errs, r.remove(root))
		}
	}
	r.meter.mu.Lock()
	defer r.meter.mu.Unlock()
	delete(r.meter.busy, r.slot)
	return errors.Join(errs...)
}

// space is how full a file system is.
type space struct{ bytes, files int64 }

// used tells how full the file system of a directory is, and whether it is a tmpfs, which holds nothing else.
func used(root *os.Root) (s space, own bool) {
	dir, err := root.Open(".")
	if err != nil {
		return s, false
	}
	defer dir.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return s, false
	}
	return space{int64(st.Blocks-st.Bfree) * st.Bsize, int64(st.Files - st.Ffree)}, st.Type == unix.TMPFS_MAGIC
}

// quiet reports that a directory cannot have grown beyond a bound, without looking at its files.
func (r *Run) quiet(i int) bool {
	now, own := used(r.meter.roots[i])
	d := r.meter.cfg.Dirs[i]
	return own && now.bytes-r.before[i].bytes <= d.Bytes && now.files-r.before[i].files <= d.Files
}

// maxDepth bounds the walk. Nothing deeper is counted or removed.
const maxDepth = 64

// each calls f for everything in a directory. Whether it goes into a directory is f's answer.
func (r *Run) each(root *os.Root, dir string, depth int, f func(name string, st *unix.Statx_t) (enter bool)) {
	if depth > maxDepth {
		return
	}
	d, err := root.Open(dir)
	if err != nil {
		return // a closed directory counts as one file
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
				r.each(root, at, depth+1, f)
			}
		}
		if err != nil {
			return
		}
	}
}

// mine reports whether a file is the slot's, and born since the run began.
func (r *Run) mine(st *unix.Statx_t) bool {
	at := st.Btime
	if st.Mask&unix.STATX_BTIME == 0 {
		at = st.Ctime
	}
	return r.owns(st) && r.since.Before(time.Unix(at.Sec, int64(at.Nsec)))
}

func (r *Run) owns(st *unix.Statx_t) bool {
	return !r.meter.cfg.OwnUsers || int(st.Uid) == r.slot.UID()
}

// measure adds up what the run made, and the older files of the slot that it wrote to.
func (r *Run) measure(root *os.Root, maxFiles int64) (bytes, files int64) {
	seen := map[uint64]bool{}
	r.each(root, ".", 0, func(_ string, st *unix.Statx_t) bool {
		mine := r.mine(st)
		written := mine || r.owns(st) && r.since.Before(time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec)))
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

// remove removes what the run made.
func (r *Run) remove(root *os.Root) error {
	var errs []error
	r.each(root, ".", 0, func(name string, st *unix.Statx_t) bool {
		if !r.mine(st) {
			return true
		}
		errs = append(errs, root.RemoveAll(name))
		return false
	})
	return errors.Join(errs...)
}
