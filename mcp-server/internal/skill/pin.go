package skill

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/disarm"
)

// ErrPinned refuses to change a skill that a person has pinned.
var ErrPinned = errors.New("the skill is pinned")

// PinIn lets skills be pinned. Their sources are kept in a folder that no code reaches; it is made with the first pin.
func (s *Store) PinIn(dir string) { s.pins = dir }

// pin is the path of the source that a skill is pinned to.
func (s *Store) pin(name string) string { return filepath.Join(s.pins, File(name)) }

// Pinned reports whether a skill is pinned, or another one that is imported by its name.
func (s *Store) Pinned(name string) bool { return s.isPinned(name) || s.isPinned(twin(name)) }

func (s *Store) isPinned(name string) bool {
	if s.pins == "" || !ValidName(name) {
		return false
	}
	_, err := os.Lstat(s.pin(name))
	return err == nil
}

// Sum names a source: its SHA-256, in hexadecimal digits.
func Sum(source string) string {
	sum := sha256.Sum256([]byte(source))
	return hex.EncodeToString(sum[:])
}

// Pin pins a skill to a source that somebody has seen, by its Sum: tools refuse to change it, and PutBack undoes what
// code does to it. If the skill has another source by now, the error is ErrChanged.
func (s *Store) Pin(name, sum string) error {
	if s.pins == "" {
		return errors.New("skills cannot be pinned: there is no folder for it")
	}
	_, source, err := s.Read(name)
	if err == nil && Sum(source) != sum {
		err = ErrChanged
	}
	if err == nil {
		err = s.taken(name)
	}
	if err == nil && s.pinned != nil {
		return s.pinned.put(File(name), []byte(source), whatever)
	}
	if err == nil {
		err = os.MkdirAll(s.pins, 0o700)
	}
	if err == nil {
		err = atomicfile.Write(s.pin(name), []byte(source), 0o600)
	}
	if err != nil {
		return fmt.Errorf("pinning the skill: %w", err)
	}
	return nil
}

// Unpin ends a Pin.
func (s *Store) Unpin(name string) error {
	if !s.isPinned(name) {
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	if s.pinned != nil {
		return s.pinned.remove(File(name), whatever)
	}
	return os.Remove(s.pin(name))
}

// PutBack restores pinned skills to their pinned sources, removes what would be imported in their place, and returns
// the names of those that differed. It calls tell for each name before, while the skill still is as code left it.
func (s *Store) PutBack(tell func(name string)) ([]string, error) {
	if s.pins == "" || s.readOnly || disarm.Off("skill-pin") {
		return nil, nil
	}
	entries, err := os.ReadDir(s.pins)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var back []string
	for _, e := range entries {
		name := e.Name()
		if !IsPython(name) {
			name = name[:len(name)-min(len(name), len(extension))]
		}
		if !ValidName(name) || File(name) != e.Name() {
			continue // not ours
		}
		want, rerr := os.ReadFile(s.pin(name))
		if rerr == nil {
			_, have, err := s.Read(name)
			kept, other := err == nil && have == string(want), twin(name)
			taken := s.taken(name) != nil && !s.isPinned(other)
			if taken {
				tell(other)
				rerr = s.remove(other)
			}
			if !kept {
				tell(name)
				_, err = s.write(name, string(want))
				rerr = errors.Join(rerr, err)
			}
			if taken || !kept {
				back = append(back, name)
			}
		}
		err = errors.Join(err, rerr)
	}
	return back, err
}

// Restore restores a skill, whether or not it exists.
func (s *Store) Restore(name, source string) (Skill, error) {
	switch {
	case s.readOnly:
		return Skill{}, ErrReadOnly
	case !ValidName(name):
		return Skill{}, notAName(name)
	case len(source) > MaxSize:
		return Skill{}, fmt.Errorf("restoring the skill: %d bytes are more than %d", len(source), MaxSize)
	case s.Pinned(name):
		return Skill{}, ErrPinned
	}
	s.making.Lock()
	defer s.making.Unlock()
	if err := s.room(name, len(source)); err != nil {
		return Skill{}, err
	}
	return s.write(name, source)
}

// write writes a skill over whatever has its name.
func (s *Store) write(name, source string) (Skill, error) {
	for try := 1; ; try++ {
		before, _, err := s.Read(name)
		if errors.Is(err, ErrNotFound) { // nothing, or something that is not a skill
			_ = s.clear(File(name))
		}
		k, err := s.replace(name, source, before, errors.Is(err, ErrNotFound))
		if !errors.Is(err, ErrChanged) || try == readTries {
			return k, err
		}
	}
}

// remove removes whatever has the name of a skill.
func (s *Store) remove(name string) error {
	if s.mirror != nil {
		return s.mirror.remove(File(name), whatever)
	}
	return s.clear(File(name))
}

// clear removes an entry of the directory. A folder with something in it may be another user's: it is moved aside, and
// removed as far as that is possible.
func (s *Store) clear(file string) error {
	if s.root.Remove(file) == nil {
		return nil
	}
	aside := temporary + strings.ToLower(rand.Text())
	err := s.root.Rename(file, aside)
	_ = s.root.RemoveAll(aside)
	return err
}
