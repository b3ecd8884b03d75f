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

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
)

const (
	// refreshTimeout bounds a read of the database. firstTimeout bounds the first read, for which the start waits.
	refreshTimeout = 5 * time.Second
	firstTimeout   = 4 * time.Second
	// mirrored is the folder of the copy. Files beside this folder stay unchanged.
	mirrored = ".shared"
)

// ErrUnavailable refuses a change that the database has not confirmed.
var ErrUnavailable = errors.New("the skills' database does not answer")

// folderMirror keeps a directory identical to a folder of documents. Other replicas also write the documents, but only
// the mirror writes the directory.
type folderMirror struct {
	of   database.Documents
	root *os.Root
	log  *slog.Logger

	// busy is held during writes of the directory and during changes. Readers never wait for it.
	busy sync.Mutex

	mu    sync.Mutex
	files map[string]fileVersion // by file name
	last  pullResult
}

// fileVersion is the version of the document that a file copies. 0 means none.
type fileVersion struct {
	tag  int64
	file Skill // inode, size and time
}

// pullResult is the result of the last complete read of the database: the documents that are not in the directory.
// problem is the error of a later read.
type pullResult struct {
	skipped map[string]int
	strays  map[string]string
	problem error
	asOf    time.Time
}

// OpenMirror opens a copy of skills in a database, in a folder of the directory. Changes go to the database first. It
// waits firstTimeout for the database. Until the database answers, the copy has the state of an earlier process. Follow
// keeps it up to date.
func OpenMirror(
	ctx context.Context, dir string, of database.Documents, readOnly bool, log *slog.Logger,
) (*Store, error) {
	dir = filepath.Join(dir, mirrored)
	// 0700, because slots must not read or write the copy.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("opening the skills directory: %w", err)
	}
	s, err := OpenStore(dir, readOnly)
	if err != nil {
		return nil, err
	}
	s.mirror = &folderMirror{of: of, root: s.root, log: log, files: map[string]fileVersion{}}
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	s.mirror.copyChanged(ctx)
	return s, nil
}

// IsMirrored reports whether skills are stored in a database, so that code neither reads nor writes the directory.
func (s *Store) IsMirrored() bool { return s.mirror != nil }

// DatabaseProblem reports since when the database could not be read, for a person, or "".
func (s *Store) DatabaseProblem() string {
	if s.mirror == nil {
		return ""
	}
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	if s.mirror.last.problem == nil {
		return ""
	}
	if s.mirror.last.asOf.IsZero() {
		return "the skills' database has not been read yet"
	}
	return "the skills' database has not been read since " + s.mirror.last.asOf.UTC().Format("15:04:05") + " UTC"
}

// DatabaseError returns the error of the last read of the database, for the operator, or nil.
func (s *Store) DatabaseError() error {
	if s.mirror == nil {
		return nil
	}
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	return s.mirror.last.problem
}

// PinInDatabase is PinIn for a store whose pins are also in its database.
func (s *Store) PinInDatabase(ctx context.Context, dir, folder string) (err error) {
	of := database.Documents{DB: s.mirror.of.DB, Folder: folder}
	if s.pins, err = OpenMirror(ctx, dir, of, false, s.mirror.log); err != nil {
		return fmt.Errorf("opening the folder of pins: %w", err)
	}
	return nil
}

// Follow keeps the directory up to date until ctx ends.
func (s *Store) Follow(ctx context.Context) {
	if s.mirror == nil {
		return
	}
	s.mirror.of.DB.Listen(ctx, make(database.WakeSignal, 1), func() {
		s.mirror.copyChanged(ctx)
		if s.pins != nil {
			s.pins.mirror.copyChanged(ctx)
		}
	})
}

// copyChanged copies the changed documents. It logs a problem once at its start and once at its end.
func (m *folderMirror) copyChanged(ctx context.Context) {
	short, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	now := pullResult{asOf: time.Now()}
	err := database.HideAddress(m.pullDocuments(short, &now))
	// A store that is closing has no problem to report.
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
		m.log.Error("the skills' database cannot be read; the copy stays in use", logline.Tag("skill"),
			slog.String("error", err.Error()))
	case err == nil && was != nil:
		m.log.Info("the skills' database can be read again", logline.Tag("skill"))
	}
}

// pullDocuments makes the directory identical to the documents.
func (m *folderMirror) pullDocuments(ctx context.Context, now *pullResult) error {
	m.busy.Lock()
	defer m.busy.Unlock()
	list, err := m.of.List(ctx)
	if err != nil {
		return err
	}
	wanted := now.chooseSkills(list)
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if m.versionOf(name).tag == wanted[name].Version {
			continue
		}
		data, tag, err := m.of.Read(ctx, name)
		if errors.Is(err, database.ErrNotFound) {
			continue // removed meanwhile: the next pull notices it
		}
		if err == nil {
			err = m.placeFile(name, data, tag)
		}
		if err != nil {
			return err
		}
	}
	return m.removeUnwanted(wanted)
}

func (r *pullResult) skipDocument(name, reason string) {
	r.skipped[reason]++
	r.strays[name] = reason
}

// chooseSkills returns the documents that are skills, by file name. It applies the same rules as scan.
func (r *pullResult) chooseSkills(list []database.SharedDocument) map[string]database.SharedDocument {
	r.skipped, r.strays = map[string]int{}, map[string]string{}
	wanted := map[string]database.SharedDocument{}
	for _, o := range list {
		name := strings.TrimSuffix(o.Name, extension)
		switch {
		case strings.HasPrefix(o.Name, "."): // CodeForge's markers
		case !IsValidName(name) || FileName(name) != o.Name:
			r.skipDocument(o.Name, "not a skill name")
		// The size is known from the list, so a large document is never read.
		case o.Size > MaxSize:
			r.skipDocument(o.Name, "too large")
		case len(wanted) == MaxCount:
			r.skipDocument(o.Name, "too many skills")
		default:
			wanted[o.Name] = o
		}
	}
	return wanted
}

// addSkipped adds the skipped documents to a listing of the directory. A nil mirror adds none.
func (m *folderMirror) addSkipped(l *Listing) {
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

// removeUnwanted removes the files whose documents were removed. The caller holds busy.
func (m *folderMirror) removeUnwanted(wanted map[string]database.SharedDocument) error {
	dir, err := m.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for _, e := range entries {
		if _, is := wanted[e.Name()]; is {
			continue
		}
		if err := m.removeFile(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

func (m *folderMirror) versionOf(name string) fileVersion {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files[name]
}

func (v fileVersion) isVersionOf(read Skill) bool {
	return v.tag != 0 && v.file.inode == read.inode && v.file.Size == read.Size && v.file.Modified.Equal(read.Modified)
}

// placeFile writes a version of a document to its file. Readers see the old file or the new one. The caller holds busy.
func (m *folderMirror) placeFile(name string, data []byte, tag int64) error {
	tmp, err := writeTemporary(m.root, string(data))
	if err != nil {
		return err
	}
	// A rename replaces the file at once, so that readers see no part.
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
	m.files[name] = fileVersion{tag, Skill{Size: info.Size(), Modified: info.ModTime(), inode: inodeOf(info)}}
	return nil
}

// removeFile removes a file. The caller holds busy.
func (m *folderMirror) removeFile(name string) error {
	m.mu.Lock()
	delete(m.files, name)
	m.mu.Unlock()
	if err := m.root.RemoveAll(name); err != nil {
		return fmt.Errorf("deleting the skill: %w", err)
	}
	return nil
}

// putDocument changes a document and then its file. of returns the version that may be replaced, given the file's
// version. A conflict gives ErrChanged after the directory was updated.
func (m *folderMirror) putDocument(name string, data []byte, of func(fileVersion) (int64, bool)) error {
	return m.changeDocument(name, of, func(ctx context.Context, tag int64) error {
		tag, err := m.of.Write(ctx, name, data, tag)
		if err != nil {
			return err
		}
		return m.placeFile(name, data, tag)
	})
}

func (m *folderMirror) removeDocument(name string, of func(fileVersion) (int64, bool)) error {
	return m.changeDocument(name, of, func(ctx context.Context, tag int64) error {
		if err := m.of.Remove(ctx, name, tag); err != nil {
			return err
		}
		return m.removeFile(name)
	})
}

// changeDocument makes one change to the version that of returns.
func (m *folderMirror) changeDocument(
	name string, of func(fileVersion) (int64, bool), do func(ctx context.Context, tag int64) error,
) error {
	// Not the caller's context: a change must not stop between the document and its file.
	ctx, cancel := context.WithTimeout(context.Background(), refreshTimeout)
	defer cancel()
	m.busy.Lock()
	// The version is read under busy, so that no other change comes in between.
	tag, ok := of(m.versionOf(name))
	err := error(ErrChanged)
	if ok {
		err = do(ctx, tag)
	}
	m.busy.Unlock()
	switch {
	case errors.Is(err, database.ErrConflict), errors.Is(err, ErrChanged):
		// The copy is out of date, so the caller would fail again without a refresh.
		m.copyChanged(ctx)
		return ErrChanged
	case err != nil:
		err = database.HideAddress(err)
		m.log.Error("a skill could not be changed in the database", logline.Tag("skill"), slog.String("file", name),
			slog.String("error", err.Error()))
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// requireAbsent and acceptAnyVersion are the versions that a change may replace.
func requireAbsent(fileVersion) (int64, bool)    { return database.Absent, true }
func acceptAnyVersion(fileVersion) (int64, bool) { return database.Any, true }
func requireVersionOf(read Skill) func(fileVersion) (int64, bool) {
	return func(v fileVersion) (int64, bool) { return v.tag, v.isVersionOf(read) }
}
func requireUnchanged(v fileVersion) (int64, bool) { return v.tag, v.tag != 0 }
