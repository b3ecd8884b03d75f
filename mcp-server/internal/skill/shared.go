package skill

import (
	"slices"
	"strings"
)

// SetShared adds the skills of another store for which may returns true, for reading only. A skill of this store hides
// a shared one with the same name or import name, unless the shared one is pinned.
func (s *Store) SetShared(from *Store, may func(name string) bool) { s.shared, s.may = from, may }

func (s *Store) withShared(l Listing) Listing {
	if s.shared == nil {
		return l
	}
	more, err := s.shared.scanSkills()
	if err != nil {
		return l
	}
	for _, k := range more.Skills {
		own := slices.ContainsFunc(l.Skills, func(o Skill) bool { return o.Name == k.Name || o.Name == twinName(k.Name) })
		// Pinned skills have no bound: code must not displace them by creating many files.
		if !own && s.may(k.Name) && (len(l.Skills) < MaxCount || s.IsPinned(k.Name)) {
			l.Skills = append(l.Skills, k)
		}
	}
	slices.SortFunc(l.Skills, compareNames)
	return l
}

// ReadImported returns the files of the skills that code may import, by name. These are skills whose names occur in
// the code, or in such a skill, as far as they fit into room bytes. The search is by text, because an unneeded skill
// does no harm.
func (s *Store) ReadImported(code string, room int) map[string]string {
	files := map[string]string{}
	names := s.SkillNames()
	for text := []string{code}; len(text) > 0; text = text[1:] {
		for _, name := range names {
			file, base := FileName(name), strings.TrimSuffix(name, python)
			// Python imports a skill with _ for -, because the name of a module has no hyphen.
			if _, has := files[file]; has || !strings.Contains(text[0], base) &&
				!strings.Contains(text[0], strings.ReplaceAll(base, "-", "_")) {
				continue
			}
			_, source, err := s.ReadSkill(name)
			size := len(file) + len(source)
			if err != nil || size > room {
				continue // the import fails with an error
			}
			room -= size
			files[file] = source
			text = append(text, source)
		}
	}
	return files
}
