package skill

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// ErrPinned refuses a change of a skill that a person has pinned.
var ErrPinned = errors.New("the skill is pinned")

// ErrManyPins refuses a pin if all pinned sources would be too large together: a run gets all of them.
var ErrManyPins = fmt.Errorf("the pinned skills of a language have more than %d MiB in all", sandboxapi.MaxSkills>>20)

// PinIn enables pins. It stores their sources in a folder that code cannot reach.
func (s *Store) PinIn(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		s.pins, err = OpenStore(dir, false)
	}
	if err != nil {
		return fmt.Errorf("opening the folder of pins: %w", err)
	}
	return nil
}

// IsPinned reports whether a skill is pinned, or another skill that is imported by the same name.
func (s *Store) IsPinned(name string) bool { return s.isPinned(name) || s.isPinned(twinName(name)) }

func (s *Store) isPinned(name string) bool { return s.findPin(name) != nil }

// findPin returns the store with the source of a pinned skill, or nil. A pin of a shared skill binds this store too:
// its skills must not hide the pinned source.
func (s *Store) findPin(name string) *Store {
	//defence:skill-pin permits
	if s.pins == nil && s.shared == nil || !IsValidName(name) {
		return nil
	}
	if pins := s.pins; pins != nil {
		if _, err := pins.root.Lstat(FileName(name)); err == nil {
			return pins
		}
	}
	if s.shared != nil && s.may(name) {
		return s.shared.findPin(name)
	}
	return nil
}

// ReadPinned returns the sources of the pinned skills of a language, by file name. A run imports these sources.
func (s *Store) ReadPinned(python bool) (map[string]string, error) {
	//defence:skill-pin permits
	if s.pins == nil {
		return nil, nil
	}
	l, err := s.pins.scanOwnSkills()
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, k := range l.Skills {
		if IsPython(k.Name) != python {
			continue
		}
		_, source, err := s.pins.ReadSkill(k.Name)
		if errors.Is(err, ErrNotFound) {
			continue // a concurrent Unpin removed it
		}
		if err != nil {
			return nil, err
		}
		files[FileName(k.Name)] = source
	}
	return files, nil
}

// hidePinned returns the pinned skills of this store. It moves the files that pinned skills replace from Skills to
// hidden.
func (s *Store) hidePinned(l *Listing) (pinned []Skill, err error) {
	//defence:skill-pin permits
	if s.pins == nil && s.shared == nil {
		return nil, nil
	}
	if s.pins != nil {
		var own Listing
		own, err = s.pins.scanOwnSkills()
		pinned = own.Skills
	}
	l.Skills = slices.DeleteFunc(l.Skills, func(k Skill) bool {
		if !s.IsPinned(k.Name) {
			return false
		}
		l.hidden = append(l.hidden, k)
		return true
	})
	return pinned, err
}

// SourceSum returns the SHA-256 of a source, in hexadecimal digits.
func SourceSum(source string) string {
	sum := sha256.Sum256([]byte(source))
	return hex.EncodeToString(sum[:])
}

// PinSource pins a skill to the source with this SourceSum, which a person has seen. Tools then refuse to change the
// skill, and runs import this source even if code changes the file. If the skill has another source by now, the error
// is ErrChanged.
func (s *Store) PinSource(name, sum string) error {
	if s.pins == nil {
		return errors.New("skills cannot be pinned: there is no folder for it")
	}
	// The person has seen a source, and code may have changed the file since.
	_, source, err := s.ReadSkill(name)
	if err == nil && SourceSum(source) != sum {
		err = ErrChanged
	}
	if err == nil {
		err = s.checkTwin(name)
	}
	if err == nil {
		err = s.checkPinSize(name, source)
	}
	if err == nil {
		_, err = s.pins.writeOver(name, source)
	}
	if err != nil {
		return fmt.Errorf("pinning the skill: %w", err)
	}
	return nil
}

// checkPinSize returns ErrManyPins if the pinned skills would not fit into a run.
func (s *Store) checkPinSize(name, source string) error {
	files, err := s.ReadPinned(IsPython(name))
	if err != nil {
		return err
	}
	if files == nil {
		files = map[string]string{}
	}
	files[FileName(name)] = source
	if (sandboxapi.RunRequest{Skills: files}).SkillsSize() > sandboxapi.MaxSkills {
		return ErrManyPins
	}
	return nil
}

// Unpin ends a pin. First it writes the pinned source to the directory, because code may have changed the file. It also
// removes a file that Python would import instead of the skill.
func (s *Store) Unpin(name string) error {
	if pins := s.findPin(name); pins == nil || pins != s.pins {
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	_, source, err := s.pins.ReadSkill(name)
	// A file with the twin's name would be imported instead of the skill.
	if err == nil && !s.readOnly && s.checkTwin(name) != nil {
		err = s.removeEntry(twinName(name))
	}
	if err == nil && !s.readOnly {
		_, err = s.writeOver(name, source)
	}
	// The pin goes last: after an error before it, runs still import the pinned source.
	if err == nil {
		err = s.pins.removeEntry(name)
	}
	if err != nil {
		return fmt.Errorf("unpinning the skill: %w", err)
	}
	return nil
}

// WriteSkill writes a skill, whether or not it exists.
func (s *Store) WriteSkill(name, source string) (Skill, error) {
	switch {
	case s.readOnly:
		return Skill{}, ErrReadOnly
	case !IsValidName(name):
		return Skill{}, explainBadName(name)
	case len(source) > MaxSize:
		return Skill{}, fmt.Errorf("restoring the skill: %d bytes are more than %d", len(source), MaxSize)
	case s.IsPinned(name):
		return Skill{}, ErrPinned
	}
	// Two writes at once could both find room and exceed the bound together.
	s.making.Lock()
	defer s.making.Unlock()
	if err := s.checkRoom(name, len(source)); err != nil {
		return Skill{}, err
	}
	return s.writeOver(name, source)
}

// writeOver writes a skill over any entry with its name.
func (s *Store) writeOver(name, source string) (Skill, error) {
	for try := 1; ; try++ {
		before, _, err := s.readFile(name)
		create := err != nil && !errors.Is(err, ErrChanged) // no file, or one that is not a skill or cannot be read
		if create {
			// The entry may be a link or a folder that code made, which a write must not follow.
			_ = s.clearEntry(FileName(name))
		}
		k, err := s.replaceSkill(name, source, before, create)
		if !errors.Is(err, ErrChanged) || try == readTries {
			return k, err
		}
	}
}

// removeEntry removes any entry with the name of a skill.
func (s *Store) removeEntry(name string) error {
	if s.mirror != nil {
		return s.mirror.removeDocument(FileName(name), acceptAnyVersion)
	}
	return s.clearEntry(FileName(name))
}

// clearEntry removes an entry of the directory. A folder with content may belong to another user, so it is moved aside
// and removed as far as possible.
func (s *Store) clearEntry(file string) error {
	if s.root.Remove(file) == nil {
		return nil
	}
	aside := temporary + strings.ToLower(rand.Text())
	err := s.root.Rename(file, aside)
	_ = s.root.RemoveAll(aside)
	return err
}
