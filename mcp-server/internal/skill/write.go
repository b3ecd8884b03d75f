package skill

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/patch"
)

// fileMode is the mode of skills. The group of the slots may change them.
const fileMode = 0o664

// temporary is the start of the names of unfinished writes.
const temporary = ".codeforge-"

// PatchSkill applies SEARCH/REPLACE blocks to a skill, all or none. One block with an empty SEARCH creates a skill. The
// error is a *patch.Error if the blocks do not fit. A patch larger than MaxPatch is refused unread. If ctx ends,
// PatchSkill writes nothing.
func (s *Store) PatchSkill(ctx context.Context, name, text string) (Skill, error) {
	switch {
	case s.readOnly:
		return Skill{}, ErrReadOnly
	case s.IsPinned(name):
		return Skill{}, ErrPinned
	case len(text) > MaxPatch:
		return Skill{}, &patch.Error{Problem: fmt.Sprintf("the patch has %d bytes, %d are allowed. "+
			"Send it in parts, or rewrite the skill in execute_code.", len(text), MaxPatch)}
	}
	blocks, err := patch.ParseBlocks(ctx, text)
	if err != nil {
		return Skill{}, err
	}
	before, source, err := s.ReadSkill(name)
	create := errors.Is(err, ErrNotFound) && len(blocks) == 1 && blocks[0].Search == ""
	if err != nil && !create {
		return Skill{}, err
	}
	if _, err := s.root.Lstat(FileName(name)); s.shared != nil && err != nil {
		before, create = Skill{}, true // a shared skill stays unchanged: a new one of the same name hides it
	}
	out, err := patch.ApplyBlocks(ctx, source, blocks, MaxSize)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return Skill{}, err
	}
	// Two patches could otherwise both pass checkRoom and together exceed MaxTotal.
	s.making.Lock()
	defer s.making.Unlock()
	if err := s.checkRoom(name, len(out)); err != nil {
		return Skill{}, err
	}
	return s.replaceSkill(name, out, before, create)
}

// checkRoom returns ErrFull if a skill of this size does not fit: a new one beyond MaxCount, or a growth beyond
// MaxTotal. The caller holds making.
func (s *Store) checkRoom(name string, size int) error {
	l, err := s.scanOwnSkills()
	if err != nil {
		return err
	}
	more, total := int64(size), int64(size)
	is := false
	for _, k := range l.Skills {
		if k.Name == name {
			is, more = true, more-k.Size
			continue
		}
		total += k.Size
	}
	// A skill that shrinks always fits, so that a full store can be emptied.
	if !is && len(l.Skills) >= MaxCount || more > 0 && total > MaxTotal {
		return ErrFull
	}
	return nil
}

// replaceSkill writes a skill to a temporary file and renames it, unless the skill has changed since it was read.
func (s *Store) replaceSkill(name, source string, before Skill, create bool) (Skill, error) {
	if err := s.checkTwin(name); create && err != nil {
		return Skill{}, err
	}
	if s.mirror != nil {
		of := requireVersionOf(before)
		if create {
			of = requireAbsent
		}
		err := s.mirror.putDocument(FileName(name), []byte(source), of)
		return Skill{Name: name, Description: describeModule(name, source), Size: int64(len(source))}, err
	}
	tmp, err := writeTemporary(s.root, source)
	if err != nil {
		return Skill{}, err
	}
	// After a rename the name is gone, so this removes only a draft that was not used.
	defer func() { _ = s.root.Remove(tmp) }()
	if create {
		// Link fails if the name was taken meanwhile; Rename would replace the other file.
		if err := s.root.Link(tmp, FileName(name)); err != nil {
			return Skill{}, wrapWriteError(err, fs.ErrExist)
		}
		return Skill{Name: name, Description: describeModule(name, source), Size: int64(len(source))}, nil
	}
	now, err := s.root.Lstat(FileName(name))
	if err != nil {
		return Skill{}, wrapWriteError(err, fs.ErrNotExist)
	}
	// Code may have changed the file since it was read, and its change must not be lost.
	if inodeOf(now) != before.inode || !now.ModTime().Equal(before.Modified) || now.Size() != before.Size {
		return Skill{}, ErrChanged
	}
	if err := s.root.Rename(tmp, FileName(name)); err != nil {
		return Skill{}, fmt.Errorf("writing the skill: %w", err)
	}
	return Skill{Name: name, Description: describeModule(name, source), Size: int64(len(source))}, nil
}

func wrapWriteError(err, changed error) error {
	if errors.Is(err, changed) {
		return ErrChanged
	}
	return fmt.Errorf("writing the skill: %w", err)
}

// writeTemporary writes a new file with an unguessable name.
func writeTemporary(root *os.Root, source string) (name string, err error) {
	name = temporary + strings.ToLower(rand.Text())
	// O_EXCL and O_NOFOLLOW: code can create links in the directory.
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, fileMode)
	if err != nil {
		return "", fmt.Errorf("writing the skill: %w", err)
	}
	_, err = f.WriteString(source)
	// The umask would remove the group's right to write.
	err = errors.Join(err, f.Chmod(fileMode), f.Sync(), f.Close())
	if err != nil {
		_ = root.Remove(name)
		return "", fmt.Errorf("writing the skill: %w", err)
	}
	return name, nil
}

// removeDrafts removes the files of interrupted writes. The draft of a new skill is a second name of the skill's file.
func (s *Store) removeDrafts() {
	dir, err := s.root.Open(".")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxEntries) // later ones can wait
	for _, name := range names {
		// The seed marker has the same prefix and stays.
		if strings.HasPrefix(name, temporary) && name != SeedMarker {
			_ = s.root.Remove(name) // a folder with content stays
		}
	}
}

// DeleteSkill removes a skill, or another entry with its name, such as a link. It never removes a directory.
func (s *Store) DeleteSkill(name string) error {
	if s.readOnly {
		return ErrReadOnly
	}
	if !IsValidName(name) {
		return explainBadName(name)
	}
	// Lstat does not follow a link: the link is removed, even if its target is missing.
	info, err := s.root.Lstat(FileName(name))
	isMissing := errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir()
	switch {
	// A shared pin hides this store's file, which may go.
	case s.IsPinned(name) && (isMissing || s.pins != nil):
		return ErrPinned
	case isMissing:
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	case err == nil && s.mirror != nil:
		return s.mirror.removeDocument(FileName(name), requireUnchanged)
	case err == nil:
		err = s.root.Remove(FileName(name))
	}
	if err != nil {
		return fmt.Errorf("deleting the skill: %w", err)
	}
	return nil
}

// SeedMarker is the file that marks a directory as seeded.
const SeedMarker = ".codeforge-seeded"

// SeedSkills writes the shipped skills into a directory that has never been seeded. Existing files stay, and skills
// that the user deleted do not return. It returns the number of written skills.
func (s *Store) SeedSkills(shipped fs.FS) (int, error) {
	if s.mirror != nil {
		return s.seedDatabase(shipped)
	}
	// O_EXCL decides which of two processes seeds.
	mark, err := s.root.OpenFile(SeedMarker, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, fileMode)
	if errors.Is(err, fs.ErrExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("seeding skills: %w", err)
	}
	if err := mark.Close(); err != nil {
		return 0, fmt.Errorf("seeding skills: %w", err)
	}
	return s.seedOnce(shipped)
}

// seedDatabase is SeedSkills for a database: the marker is a document.
func (s *Store) seedDatabase(shipped fs.FS) (int, error) {
	if s.readOnly {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), firstTimeout)
	defer cancel()
	_, err := s.mirror.of.Write(ctx, SeedMarker, nil, database.Absent)
	if errors.Is(err, database.ErrConflict) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("seeding skills: %w", database.HideAddress(err))
	}
	return s.seedOnce(shipped)
}

func (s *Store) seedOnce(shipped fs.FS) (int, error) {
	files, err := fs.Glob(shipped, "*"+extension)
	if err != nil {
		return 0, fmt.Errorf("seeding skills: %w", err)
	}
	written := 0
	for _, file := range files {
		name := strings.TrimSuffix(file, extension)
		source, err := fs.ReadFile(shipped, file)
		if err != nil || !IsValidName(name) {
			return written, fmt.Errorf("seeding skill %s: %w", file, errors.Join(err, ErrName))
		}
		switch _, err := s.replaceSkill(name, string(source), Skill{}, true); {
		case err == nil:
			written++
		case !errors.Is(err, ErrChanged): // the user has a skill of that name
			return written, fmt.Errorf("seeding skill %s: %w", file, err)
		}
	}
	return written, nil
}
