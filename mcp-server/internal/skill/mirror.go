package skill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bucket"
)

const (
	// refreshTime is the time between two polls of a bucket.
	refreshTime = 3 * time.Second
	// refreshTimeout bounds a poll, firstTimeout the first one, for which the start waits.
	refreshTimeout = 30 * time.Second
	firstTimeout   = 5 * time.Second
	// mirrored is the folder of the copy. Files beside it are left alone.
	mirrored = ".bucket"
	// fetches is how many skills are fetched at a time.
	fetches = 8
)

// ErrUnavailable refuses a change that the bucket has not confirmed.
var ErrUnavailable = errors.New("the skills' bucket cannot be reached")

// mirror keeps a directory identical to a bucket. Others write to the bucket, but nobody else to the directory.
type mirror struct {
	of   *bucket.Bucket
	root *os.Root
	log  *slog.Logger

	// busy is held while the directory is written and while a change is under way. Readers never wait for it.
	busy sync.Mutex

	mu    sync.Mutex
	files map[string]version // by file name
	last  outcome
}

// version is the version of an object that a file is a copy of.
type version struct {
	tag  string
	file Skill // inode, size and time
}

// outcome is what the last complete poll of the bucket left out of the directory, and the error of a later one.
type outcome struct {
	skipped map[string]int
	strays  map[string]string
	problem error
	asOf    time.Time
}

// OpenMirror opens a copy of a bucket, in a folder of the directory: changes are made in the bucket first. It waits
// some seconds for the bucket; until that answers, the copy is as an earlier process left it. Follow keeps it up to
// date.
func OpenMirror(ctx context.Context, dir string, of *bucket.Bucket, readOnly bool, log *slog.Logger) (*Store, error) {
	dir = filepath.Join(dir, mirrored)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("opening the skills directory: %w", err)
	}
	s, err := Open(dir, readOnly)
	if err != nil {
		return nil, err
	}
	s.mirror = &mirror{of: of, root: s.root, log: log, files: map[string]version{}}
	s.mirror.first(ctx)
	return s, nil
}

// Mirrored reports whether skills are kept in a bucket, so that no code reads or writes the directory.
func (s *Store) Mirrored() bool { return s.mirror != nil }

// Problem says, for a person, since when the bucket has not been read. It is empty if there is no problem.
func (s *Store) Problem() string {
	if s.mirror == nil {
		return ""
	}
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	if s.mirror.last.problem == nil {
		return ""
	}
	if s.mirror.last.asOf.IsZero() {
		return "the skills' bucket has not been read yet"
	}
	return "the skills' bucket has not been read since " + s.mirror.last.asOf.UTC().Format("15:04:05") + " UTC"
}

// Cause is why the bucket was not read the last time, for the operator, or nil.
func (s *Store) Cause() error {
	if s.mirror == nil {
		return nil
	}
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	return s.mirror.last.problem
}

// PinInBucket is PinIn for a store whose pins are in its bucket too.
func (s *Store) PinInBucket(ctx context.Context, dir string) (err error) {
	if s.pins, err = OpenMirror(ctx, dir, s.mirror.of.Under("pins"), false, s.mirror.log); err != nil {
		return fmt.Errorf("opening the folder of pins: %w", err)
	}
	return nil
}

// Follow keeps the directory up to date until ctx ends.
func (s *Store) Follow(ctx context.Context) {
	if s.mirror == nil {
		return
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { s.mirror.follow(ctx) })
	if s.pins != nil {
		parts.Go(func() { s.pins.mirror.follow(ctx) })
	}
}

func (m *mirror) follow(ctx context.Context) {
	tick := time.NewTicker(refreshTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.refresh(ctx)
		}
	}
}

func (m *mirror) first(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	m.refresh(ctx)
}

// refresh polls the bucket once. A problem is logged once when it begins and once when it is over.
func (m *mirror) refresh(ctx context.Context) {
	short, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	now := outcome{asOf: time.Now()}
	err := m.pull(short, &now)
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	m.mu.Lock()
	was := m.last.problem
	if err == nil {
		m.last = now
	} else {
		m.last.problem = err
	}
	m.mu.Unlock()
	switch {
	case err != nil && was == nil:
		m.log.Error("the skills' bucket cannot be read; the copy stays in use", logline.Tag("skill"),
			slog.String("error", err.Error()))
	case err == nil && was != nil:
		m.log.Info("the skills' bucket can be read again", logline.Tag("skill"))
	}
}

// pull makes the directory identical to the bucket.
func (m *mirror) pull(ctx context.Context, now *outcome) error {
	before := m.known()
	list, err := m.of.List(ctx, maxEntries)
	if err != nil {
		return err
	}
	wanted := now.choose(list)
	unread, err := m.fetch(ctx, wanted, before)
	if err != nil {
		return err
	}
	for _, name := range unread { // its older version stays
		now.skip(name, "cannot be read")
	}
	return m.sweep(wanted, before)
}

// known are the versions of the files.
func (m *mirror) known() map[string]version {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.files)
}

func (r *outcome) skip(name, reason string) {
	r.skipped[reason]++
	r.strays[name] = reason
}

// choose picks the objects that are skills, by file name, with the rules that scan has for files.
func (r *outcome) choose(list []bucket.Object) map[string]bucket.Object {
	r.skipped, r.strays = map[string]int{}, map[string]string{}
	if len(list) == maxEntries {
		r.skipped["too many files"]++
	}
	wanted := map[string]bucket.Object{}
	for _, o := range list {
		name := strings.TrimSuffix(o.Name, extension)
		folder := strings.HasSuffix(o.Name, "/")
		switch {
		case folder && (o.Name == "tenants/" || o.Name == "pins/" || o.Name == "history/"), o.Name == "":
		case folder, strings.Contains(o.Name, "/"):
			r.skip(o.Name, "not a regular file")
		case strings.HasPrefix(o.Name, "."): // our own markers
		case name == o.Name && !IsPython(name):
			r.strays[o.Name] = "its name ends neither in " + extension + " nor in " + python
		case !ValidName(name) || File(name) != o.Name:
			r.skip(o.Name, "not a skill name")
		case o.Size > MaxSize:
			r.skip(o.Name, "too large")
		case o.Version == "":
			r.skip(o.Name, "no ETag")
		case len(wanted) == MaxCount:
			r.skip(o.Name, "too many skills")
		default:
			wanted[o.Name] = o
		}
	}
	return wanted
}

// addSkipped adds to a listing of the directory what was left out of it. The nil mirror adds nothing.
func (m *mirror) addSkipped(l *Listing) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for reason, n := range m.last.skipped {
		l.Skipped[reason] += n
	}
	maps.Copy(l.strays, m.last.strays)
}

// fetch writes the objects whose versions differ from those of the files. It returns the names of those that cannot be
// read: they do not stop the others.
func (m *mirror) fetch(
	ctx context.Context, wanted map[string]bucket.Object, before map[string]version,
) (unread []string, err error) {
	var parts errgroup.Group
	parts.SetLimit(fetches)
	var mu sync.Mutex
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if before[name].tag == wanted[name].Version {
			continue
		}
		parts.Go(func() error {
			problem := ctx.Err()
			if problem == nil {
				problem = m.fetchOne(ctx, name, before[name].tag)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case problem == nil:
			case ctx.Err() != nil, errors.Is(problem, errPlace):
				err = problem
			default:
				unread = append(unread, name)
			}
			return nil
		})
	}
	_ = parts.Wait()
	return unread, err
}

// fetchOne writes one object, unless it was changed here since the bucket was listed.
func (m *mirror) fetchOne(ctx context.Context, name, before string) error {
	data, tag, err := m.of.Get(ctx, name, MaxSize)
	if errors.Is(err, bucket.ErrNotFound) {
		return nil // removed in the meantime: the next poll notices it
	}
	if err != nil {
		return err
	}
	m.busy.Lock()
	defer m.busy.Unlock()
	if m.version(name).tag != before {
		return nil
	}
	if err := m.place(name, data, tag); err != nil {
		return fmt.Errorf("%w: %w", errPlace, err)
	}
	return nil
}

// errPlace is for a directory that cannot be written.
var errPlace = errors.New("copying a skill")

// sweep removes the files whose objects were removed, unless the files are newer than the listing of the bucket.
func (m *mirror) sweep(wanted map[string]bucket.Object, before map[string]version) error {
	dir, err := m.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	m.busy.Lock()
	defer m.busy.Unlock()
	for _, e := range entries {
		name := e.Name()
		if _, is := wanted[name]; is || m.version(name).tag != before[name].tag {
			continue
		}
		if err := m.removeFile(name); err != nil {
			return err
		}
	}
	return nil
}

// version is the version of a file, or the zero one if it is not known.
func (m *mirror) version(name string) version {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files[name]
}

// is reports whether a skill that was read is of this version.
func (v version) is(read Skill) bool {
	return v.tag != "" && v.file.inode == read.inode && v.file.Size == read.Size && v.file.Modified.Equal(read.Modified)
}

// place writes a version of an object to its file. The caller holds busy. Readers see the old file or the new one.
func (m *mirror) place(name string, data []byte, tag string) error {
	tmp, err := writeTemporary(m.root, string(data))
	if err != nil {
		return err
	}
	if err := m.root.Rename(tmp, name); err != nil {
		_ = m.root.Remove(tmp)
		return fmt.Errorf("writing the skill: %w", err)
	}
	info, err := m.root.Lstat(name)
	if err != nil {
		return fmt.Errorf("writing the skill: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = version{tag, Skill{Size: info.Size(), Modified: info.ModTime(), inode: inode(info)}}
	return nil
}

// removeFile removes a file. The caller holds busy.
func (m *mirror) removeFile(name string) error {
	m.mu.Lock()
	delete(m.files, name)
	m.mu.Unlock()
	if err := m.root.RemoveAll(name); err != nil {
		return fmt.Errorf("deleting the skill: %w", err)
	}
	return nil
}

// put changes an object and then its file. of names the version that may be replaced, given that of the file. A
// conflict is ErrChanged; the directory is up to date then.
func (m *mirror) put(name string, data []byte, of func(version) (string, bool)) error {
	return m.change(name, of, func(ctx context.Context, tag string) error {
		tag, err := m.of.Put(ctx, name, data, tag)
		if err != nil {
			return err
		}
		return m.place(name, data, tag)
	})
}

// remove removes an object and then its file.
func (m *mirror) remove(name string, of func(version) (string, bool)) error {
	return m.change(name, of, func(ctx context.Context, tag string) error {
		if err := m.of.Remove(ctx, name, tag); err != nil && !errors.Is(err, bucket.ErrNotFound) {
			return err
		}
		return m.removeFile(name)
	})
}

// change makes one change to the version that of names.
func (m *mirror) change(
	name string, of func(version) (string, bool), do func(ctx context.Context, tag string) error,
) error {
	ctx, cancel := context.WithTimeout(context.Background(), refreshTimeout)
	defer cancel()
	m.busy.Lock()
	tag, ok := of(m.version(name))
	err := error(ErrChanged)
	if ok {
		err = do(ctx, tag)
	}
	m.busy.Unlock()
	switch {
	case errors.Is(err, bucket.ErrConflict), errors.Is(err, ErrChanged):
		m.refresh(ctx)
		return ErrChanged
	case err != nil:
		m.log.Error("a skill could not be changed in the bucket", logline.Tag("skill"), slog.String("file", name),
			slog.String("error", err.Error()))
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// The versions that a change may replace.
func absent(version) (string, bool)   { return bucket.Absent, true }
func whatever(version) (string, bool) { return bucket.Any, true }
func thatOf(read Skill) func(version) (string, bool) {
	return func(v version) (string, bool) { return v.tag, v.is(read) }
}
func present(v version) (string, bool) { return v.tag, v.tag != "" }
