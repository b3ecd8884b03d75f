// Package skill stores skills: modules in one directory. Code sees them as /skills/<name>.ts, or as /skills/<name>.py
// if they are in Python. The name of a Python skill always ends in .py.
//
// Threat: sandboxed code writes to the directory. A name, a link, a size, a number of files or a description may attack
// this process or the model.
//
// Contract: all files are opened through os.Root. Only regular files with one link and a plain name count as skills.
// Every number is bounded. A description is one short line of printable text.
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

	"github.com/codeforge-mcp/codeforge/internal/convert"
)

const (
	// MaxSize bounds a skill, in bytes.
	MaxSize = 256 << 10
	// MaxPatch bounds a patch, in bytes. It allows a patch that replaces all of the largest skill.
	MaxPatch = 2*MaxSize + 64<<10
	// MaxCount bounds the listed skills, and the existing ones when a skill is created.
	MaxCount = 200
	// MaxTotal bounds all skills together, in bytes.
	MaxTotal = 16 << 20
	// maxEntries bounds the directory entries that are read.
	maxEntries = 2000
	// headSize is the part of a file that is read for its description, in bytes.
	headSize = 8 << 10
	// The extensions of skills' files. The extension .py belongs to the skill's name.
	extension = ".ts"
	python    = ".py"
)

// Errors that callers distinguish.
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
	// Skipped counts the files that are not skills, by reason.
	Skipped map[string]int
	// strays maps each file that is not a skill to the reason.
	strays map[string]string
	// hidden are the directory's files that pinned sources replace.
	hidden []Skill
}

// Store gives access to the skills of one directory. It is safe for concurrent use, even while code changes the
// directory.
type Store struct {
	root     *os.Root
	making   sync.Mutex // held from room to the end of the write
	dir      string
	readOnly bool
	pins     *Store // from PinIn or PinInDatabase
	shared   *Store // from SetShared; may filters it
	may      func(name string) bool
	mirror   *folderMirror // from OpenMirror
}

// OpenStore opens the directory. If readOnly is set, every change fails with ErrReadOnly.
func OpenStore(dir string, readOnly bool) (*Store, error) {
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

// IsReadOnly reports whether changes are refused.
func (s *Store) IsReadOnly() bool { return s.readOnly }

// IsPython reports whether a skill with this name is written in Python.
func IsPython(name string) bool { return strings.HasSuffix(name, python) }

// FileName returns the name of a skill's file.
func FileName(name string) string {
	if IsPython(name) {
		return name
	}
	return name + extension
}

// twinName returns the other name by which a Python skill is imported, or "". In imports _ stands for -, so
// open-report.py and open_report.py have one import name.
func twinName(name string) string {
	dashes, lines := strings.ReplaceAll(name, "_", "-"), strings.ReplaceAll(name, "-", "_")
	switch {
	case !IsPython(name) || dashes == lines:
		return ""
	case name == dashes:
		return lines
	case name == lines:
		return dashes
	}
	return "" // a name with both characters has no single twin
}

// checkTwin returns ErrTaken if an entry has the twin's name.
func (s *Store) checkTwin(name string) error {
	other := twinName(name)
	if other == "" {
		return nil
	}
	if _, err := s.root.Lstat(other); err != nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrTaken, other)
}

// IsValidName reports whether a skill may have the name: at most 64 letters, digits, - and _, starting with a letter or
// digit. The name of a Python skill has .py after them.
func IsValidName(name string) bool { return isValidBase(strings.TrimSuffix(name, python)) }

func isValidBase(name string) bool {
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

func explainBadName(name string) error {
	return fmt.Errorf("%w: %.80q (letters, digits, - and _, at most 64, and .py for Python)", ErrName, name)
}

// ListSkills returns the skills with their descriptions.
func (s *Store) ListSkills() (Listing, error) {
	l, err := s.scanSkills()
	if err != nil {
		return l, err
	}
	for i := range l.Skills {
		l.Skills[i].Description = s.describeSkill(l.Skills[i].Name)
	}
	return l, nil
}

// SkillNames returns the names of the skills, sorted.
func (s *Store) SkillNames() []string {
	l, err := s.scanSkills()
	if err != nil {
		return nil
	}
	return convert.Each(l.Skills, func(k Skill) string { return k.Name })
}

// scanSkills lists at most MaxCount skills, with the pinned and the shared ones. It opens no file.
func (s *Store) scanSkills() (Listing, error) {
	l, err := s.scanOwnSkills()
	if err != nil {
		return l, err
	}
	pinned, err := s.hidePinned(&l)
	if err != nil {
		return l, err
	}
	// Pinned skills come first: code must not displace them by creating many files.
	if room := max(0, MaxCount-len(pinned)); len(l.Skills) > room {
		l.Skipped["too many skills"] += len(l.Skills) - room
		for _, k := range l.Skills[room:] {
			l.strays[FileName(k.Name)] = fmt.Sprintf("there are more than %d", MaxCount)
		}
		l.Skills = l.Skills[:room]
	}
	l.Skills = append(l.Skills, pinned...)
	slices.SortFunc(l.Skills, compareNames)
	s.mirror.addSkipped(&l)
	return s.withShared(l), nil
}

// scanOwnSkills lists all skills of the directory. It opens no file.
func (s *Store) scanOwnSkills() (Listing, error) {
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
		case strings.HasPrefix(e.Name(), "."): // unfinished writes of this package
			continue
		case !is: // notes and data beside the skills
			l.strays[e.Name()] = "its name ends neither in " + extension + " nor in " + python
			continue
		case !isValidBase(base):
			l.Skipped["not a skill name"]++
			l.strays[e.Name()] = "want at most 64 letters, digits, - and _ before " + extension + " or " + python
			continue
		}
		info, err := s.root.Lstat(e.Name())
		if err != nil {
			continue // removed meanwhile
		}
		if reason := skipReason(info); reason != "" {
			l.Skipped[reason]++
			l.strays[e.Name()] = reason
			continue
		}
		l.Skills = append(l.Skills, Skill{Name: name, Size: info.Size(), Modified: info.ModTime(), inode: inodeOf(info)})
	}
	slices.SortFunc(l.Skills, compareNames)
	return l, nil
}

func compareNames(a, b Skill) int { return strings.Compare(a.Name, b.Name) }

// skipReason returns why a file is not a skill, or "".
func skipReason(info fs.FileInfo) string {
	switch {
	// A link could lead to a file outside of the directory, which code cannot read itself.
	//defence:skill-links
	case info.Mode()&fs.ModeSymlink != 0:
		return "symbolic link"
	//defence:skill-links
	case !info.Mode().IsRegular():
		return "not a regular file"
	//defence:skill-links
	case linkCount(info) > 1:
		return "hard link"
	case info.Size() > MaxSize:
		return "too large"
	}
	return ""
}

func linkCount(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 1
}

func inodeOf(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// openSkill opens a skill for reading. It checks the file before and after opening: both checks must see the same file,
// with only one name.
func (s *Store) openSkill(name string) (*os.File, fs.FileInfo, error) {
	if !IsValidName(name) {
		return nil, nil, explainBadName(name)
	}
	// Lstat, because Stat would follow a link.
	before, err := s.root.Lstat(FileName(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the skill: %w", err)
	}
	if linkCount(before) == 0 { // replaced after its name was looked up
		return nil, nil, ErrChanged
	}
	if reason := skipReason(before); reason != "" {
		return nil, nil, fmt.Errorf("%w: %s is skipped (%s)", ErrNotFound, name, reason)
	}
	f, err := s.openFile(FileName(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, ErrChanged
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the skill: %w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	// Between Lstat and open, code may have replaced the file with a link.
	//defence:skill-links
	case !os.SameFile(before, info), linkCount(info) == 0:
		err = ErrChanged
	case skipReason(info) != "":
		err = fmt.Errorf("%w: %s is skipped (%s)", ErrNotFound, name, skipReason(info))
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// openFile opens an entry of the directory that is not a symbolic link. os.Root would follow a link that stays inside:
// it opens with O_NOFOLLOW, but then resolves the link.
func (s *Store) openFile(entry string) (*os.File, error) {
	dir, err := s.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// O_NONBLOCK, because opening a FIFO that code created would block forever.
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

// ReadSkill returns a skill and its source, as valid UTF-8. If the skill is pinned, this is the pinned source. For a
// file that List skips, the error is ErrNotFound.
func (s *Store) ReadSkill(name string) (Skill, string, error) {
	if pins := s.findPin(name); pins != nil {
		k, source, err := pins.ReadSkill(name)
		// Unpin may have ended the pin meanwhile, after it wrote the source to the directory.
		if !errors.Is(err, ErrNotFound) || s.findPin(name) != nil {
			return k, source, err
		}
	}
	k, source, err := s.readFile(name)
	if errors.Is(err, ErrNotFound) && s.shared != nil && s.may(name) {
		return s.shared.ReadSkill(name)
	}
	return k, source, err
}

// readFile reads a skill's file in the directory, pinned or not.
func (s *Store) readFile(name string) (Skill, string, error) {
	for try := 1; ; try++ {
		k, source, err := s.readSkill(name)
		if !errors.Is(err, ErrChanged) || try == readTries {
			return k, source, err
		}
	}
}

func (s *Store) readSkill(name string) (Skill, string, error) {
	f, info, err := s.openSkill(name)
	if err != nil {
		return Skill{}, "", err
	}
	defer f.Close()
	// Bounded here too, because the file may grow after it was opened.
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return Skill{}, "", fmt.Errorf("reading the skill: %w", err)
	}
	if len(data) > MaxSize {
		return Skill{}, "", fmt.Errorf("%w: %s is skipped (too large)", ErrNotFound, name)
	}
	source := strings.ToValidUTF8(string(data), "\uFFFD")
	return Skill{
		Name: name, Description: describeModule(name, source), Size: int64(len(data)), Modified: info.ModTime(),
		inode: inodeOf(info),
	}, source, nil
}

// describeSkill returns a skill's description. It reads only the head of the file.
func (s *Store) describeSkill(name string) string {
	if pins := s.findPin(name); pins != nil {
		return pins.describeSkill(name)
	}
	f, _, err := s.openSkill(name)
	if errors.Is(err, ErrNotFound) && s.shared != nil {
		return s.shared.describeSkill(name) // withShared has checked that it may be seen
	}
	if err != nil {
		return ""
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, headSize))
	if err != nil {
		return ""
	}
	return describeModule(name, strings.ToValidUTF8(string(head), "\uFFFD"))
}
