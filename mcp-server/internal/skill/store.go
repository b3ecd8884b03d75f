// Package skill stores skills: modules in one directory, which code sees as /skills/<name>.ts, or those in Python as
// /skills/<name>.py. The name of the latter ends in .py everywhere.
//
// Threat: sandboxed code writes to the directory. A name, a link, a size, a number of files or a description may be an
// attack on this process or on the model. So everything is opened through os.Root, only regular files with one link and
// a plain name count as skills, every number is bounded, and a description is one short line of printable text.
package skill

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// MaxSize is the largest skill, in bytes.
	MaxSize = 256 << 10
	// MaxPatch is the largest patch, in bytes: one that replaces all of the largest skill.
	MaxPatch = 2*MaxSize + 64<<10
	// MaxCount is how many skills are listed, and how many there may be when one is made.
	MaxCount = 200
	// MaxTotal is how many bytes they may have in all.
	MaxTotal = 16 << 20
	// maxEntries is how many directory entries are read.
	maxEntries = 2000
	// headSize is how much of a file is read for its description.
	headSize = 8 << 10
	// The extensions of skills' files. That of Python belongs to the name.
	extension = ".ts"
	python    = ".py"
)

// The errors that callers distinguish.
var (
	ErrNotFound = errors.New("no such skill")
	ErrName     = errors.New("not a skill name")
	ErrReadOnly = errors.New("skills are read-only (SKILLS_READONLY)")
	ErrChanged  = errors.New("the skill was changed in the meantime")
	ErrFull     = fmt.Errorf("there is room for %d skills, of %d MiB in all", MaxCount, MaxTotal>>20)
	// ErrTaken refuses a second skill that Python would import by the same name.
	ErrTaken = errors.New("another skill is imported by this name")
)

// Skill is one skill without its source.
type Skill struct {
	Name        string
	Description string
	Size        int64
	Modified    time.Time
	inode       uint64
}

// Listing is the content of the directory.
type Listing struct {
	// Skills is sorted by name.
	Skills []Skill
	// Skipped counts what is not a skill, by reason.
	Skipped map[string]int
	// strays says why each file that is not a skill is none, by its name.
	strays map[string]string
	// hidden are the directory's files that pinned sources replace.
	hidden []Skill
}

// Store is the skills of one directory. It is safe for concurrent use, even while code changes the directory.
type Store struct {
	root     *os.Root
	making   sync.Mutex // held from room to the end of the write
	dir      string
	readOnly bool
	pins     *Store // of PinIn or PinInDatabase
	shared   *Store // of Share, which may allows
	may      func(name string) bool
	mirror   *mirror // of OpenMirror
}

// Open opens the directory. With readOnly every change is refused with ErrReadOnly.
func Open(dir string, readOnly bool) (*Store, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the skills directory: %w", err)
	}
	s := &Store{root: root, dir: dir, readOnly: readOnly}
	s.removeDrafts()
	return s, nil
}

// Close closes the directory.
func (s *Store) Close() error {
	if s.pins != nil {
		return errors.Join(s.pins.Close(), s.root.Close())
	}
	return s.root.Close()
}

// ReadOnly reports whether changes are refused.
func (s *Store) ReadOnly() bool { return s.readOnly }

// IsPython reports whether a skill of that name is written in Python.
func IsPython(name string) bool { return strings.HasSuffix(name, python) }

// File is the name of a skill's file.
func File(name string) string {
	if IsPython(name) {
		return name
	}
	return name + extension
}

// twin is the other name of a skill in Python by which it is imported, as _ stands for -: open-report.py is imported as
// open_report.py is. It is empty where there is none.
func twin(name string) string {
	dashes, lines := strings.ReplaceAll(name, "_", "-"), strings.ReplaceAll(name, "-", "_")
	switch {
	case !IsPython(name) || dashes == lines:
		return ""
	case name == dashes:
		return lines
	case name == lines:
		return dashes
	}
	return "" // a name with both is no other's
}

// taken is ErrTaken if something has the other name of a skill.
func (s *Store) taken(name string) error {
	other := twin(name)
	if other == "" {
		return nil
	}
	if _, err := s.root.Lstat(other); err != nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrTaken, other)
}

// ValidName reports whether a skill may have the name: at most 64 letters, digits, - and _, of which the first is a
// letter or digit, and .py after them if it is written in Python.
func ValidName(name string) bool { return validBase(strings.TrimSuffix(name, python)) }

func validBase(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for i, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case (c == '-' || c == '_') && i > 0:
		default:
			return false
		}
	}
	return true
}

func notAName(name string) error {
	return fmt.Errorf("%w: %.80q (letters, digits, - and _, at most 64, and .py for Python)", ErrName, name)
}

// List lists the skills with their descriptions.
func (s *Store) List() (Listing, error) {
	l, err := s.scan()
	if err != nil {
		return l, err
	}
	for i := range l.Skills {
		l.Skills[i].Description = s.describe(l.Skills[i].Name)
	}
	return l, nil
}

// Names lists the names of the skills, sorted.
func (s *Store) Names() []string {
	l, err := s.scan()
	if err != nil {
		return nil
	}
	names := make([]string, len(l.Skills))
	for i, k := range l.Skills {
		names[i] = k.Name
	}
	return names
}

// scan lists the skills without opening any: at most MaxCount, with the pinned and the shared ones.
func (s *Store) scan() (Listing, error) {
	l, err := s.own()
	if err != nil {
		return l, err
	}
	pinned, err := s.hidePinned(&l)
	if err != nil {
		return l, err
	}
	if room := max(0, MaxCount-len(pinned)); len(l.Skills) > room {
		l.Skipped["too many skills"] += len(l.Skills) - room
		for _, k := range l.Skills[room:] {
			l.strays[k.Name+extension] = fmt.Sprintf("there are more than %d", MaxCount)
		}
		l.Skills = l.Skills[:room]
	}
	l.Skills = append(l.Skills, pinned...)
	slices.SortFunc(l.Skills, byName)
	s.mirror.addSkipped(&l)
	return s.withShared(l), nil
}

// own lists all skills of the directory without opening any.
func (s *Store) own() (Listing, error) {
	l := Listing{Skipped: map[string]int{}, strays: map[string]string{}}
	dir, err := s.root.Open(".")
	if err != nil {
		return l, fmt.Errorf("reading the skills directory: %w", err)
	}
	defer dir.Close()
	entries, err := dir.ReadDir(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return l, fmt.Errorf("reading the skills directory: %w", err)
	}
	if len(entries) == maxEntries {
		l.Skipped["too many files"]++
	}
	for _, e := range entries {
		base, is := strings.CutSuffix(e.Name(), extension)
		name := base
		if IsPython(e.Name()) {
			base, name, is = strings.TrimSuffix(e.Name(), python), e.Name(), true
		}
		switch {
		case strings.HasPrefix(e.Name(), "."): // our own unfinished writes
			continue
		case !is: // notes and data beside the skills
			l.strays[e.Name()] = "its name ends neither in " + extension + " nor in " + python
			continue
		case !validBase(base):
			l.Skipped["not a skill name"]++
			l.strays[e.Name()] = "want at most 64 letters, digits, - and _ before " + extension + " or " + python
			continue
		}
		info, err := s.root.Lstat(e.Name())
		if err != nil {
			continue // removed in the meantime
		}
		if reason := refuse(info); reason != "" {
			l.Skipped[reason]++
			l.strays[e.Name()] = reason
			continue
		}
		l.Skills = append(l.Skills, Skill{Name: name, Size: info.Size(), Modified: info.ModTime(), inode: inode(info)})
	}
	slices.SortFunc(l.Skills, byName)
	return l, nil
}

func byName(a, b Skill) int { return strings.Compare(a.Name, b.Name) }

// refuse returns why a file is not a skill, or an empty string.
func refuse(info fs.FileInfo) string {
	switch {
	//defence:skill-links
	case info.Mode()&fs.ModeSymlink != 0:
		return "symbolic link"
	//defence:skill-links
	case !info.Mode().IsRegular():
		return "not a regular file"
	//defence:skill-links
	case links(info) > 1:
		return "hard link"
	case info.Size() > MaxSize:
		return "too large"
	}
	return ""
}

func links(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 1
}

func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// open opens a skill for reading. It checks the file before and after opening it: both must be the same file, with only
// one name.
func (s *Store) open(name string) (*os.File, fs.FileInfo, error) {
	if !ValidName(name) {
		return nil, nil, notAName(name)
	}
	before, err := s.root.Lstat(File(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the skill: %w", err)
	}
	if links(before) == 0 { // replaced after its name was looked up
		return nil, nil, ErrChanged
	}
	if reason := refuse(before); reason != "" {
		return nil, nil, fmt.Errorf("%w: %s is skipped (%s)", ErrNotFound, name, reason)
	}
	f, err := s.openFile(File(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, ErrChanged
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the skill: %w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	//defence:skill-links
	case !os.SameFile(before, info), links(info) == 0:
		err = ErrChanged
	case refuse(info) != "":
		err = fmt.Errorf("%w: %s is skipped (%s)", ErrNotFound, name, refuse(info))
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// openFile opens an entry of the directory that is not a symbolic link. os.Root would follow a link that stays inside:
// it opens with O_NOFOLLOW itself, but then resolves the link.
func (s *Store) openFile(entry string) (*os.File, error) {
	dir, err := s.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	flags := unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC
	//defence:skill-links
	flags |= unix.O_NOFOLLOW
	fd, err := unix.Openat(int(dir.Fd()), entry, flags, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "openat", Path: entry, Err: err}
	}
	return os.NewFile(uintptr(fd), entry), nil
}

// readTries bounds the attempts to read a skill that is being replaced.
const readTries = 5

// Read returns a skill and its source, as valid UTF-8: the pinned source if the skill is pinned. For a file that List
// skips, the error is ErrNotFound.
func (s *Store) Read(name string) (Skill, string, error) {
	if s.isPinned(name) {
		return s.pins.Read(name)
	}
	k, source, err := s.readFile(name)
	if errors.Is(err, ErrNotFound) && s.shared != nil && s.may(name) {
		return s.shared.Read(name)
	}
	return k, source, err
}

// readFile reads the directory's file of a skill, pinned or not.
func (s *Store) readFile(name string) (Skill, string, error) {
	for try := 1; ; try++ {
		k, source, err := s.read(name)
		if !errors.Is(err, ErrChanged) || try == readTries {
			return k, source, err
		}
	}
}

func (s *Store) read(name string) (Skill, string, error) {
	f, info, err := s.open(name)
	if err != nil {
		return Skill{}, "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return Skill{}, "", fmt.Errorf("reading the skill: %w", err)
	}
	if len(data) > MaxSize {
		return Skill{}, "", fmt.Errorf("%w: %s is skipped (too large)", ErrNotFound, name)
	}
	source := strings.ToValidUTF8(string(data), "\uFFFD")
	return Skill{
		Name: name, Description: describe(name, source), Size: int64(len(data)), Modified: info.ModTime(), inode: inode(info),
	}, source, nil
}

// describe reads only the head of a skill.
func (s *Store) describe(name string) string {
	if s.isPinned(name) {
		return s.pins.describe(name)
	}
	f, _, err := s.open(name)
	if errors.Is(err, ErrNotFound) && s.shared != nil {
		return s.shared.describe(name) // withShared asked whether it may be seen
	}
	if err != nil {
		return ""
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, headSize))
	if err != nil {
		return ""
	}
	return describe(name, strings.ToValidUTF8(string(head), "\uFFFD"))
}
