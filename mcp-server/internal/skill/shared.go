package skill

import (
	"slices"
	"strings"
)

// Share adds the skills of another store that may allows, for reading only. A skill of the store's own hides one that
// has the same name or is imported by it.
func (s *Store) Share(from *Store, may func(name string) bool) { s.shared, s.may = from, may }

// withShared adds the shared skills to a listing of the store's own.
func (s *Store) withShared(l Listing) Listing {
	if s.shared == nil {
		return l
	}
	more, err := s.shared.scan()
	if err != nil {
		return l
	}
	for _, k := range more.Skills {
		own := slices.ContainsFunc(l.Skills, func(o Skill) bool { return o.Name == k.Name || o.Name == twin(k.Name) })
		if !own && s.may(k.Name) && len(l.Skills) < MaxCount {
			l.Skills = append(l.Skills, k)
		}
	}
	slices.SortFunc(l.Skills, byName)
	return l
}

// Imported are the files of the skills that code may import, by name: those whose names occur in it, and in skills that
// are imported in turn, as many as fit in the bound. Names are searched for as text: one skill too many does no harm.
func (s *Store) Imported(code string, room int) map[string]string {
	files := map[string]string{}
	names := s.Names()
	for text := []string{code}; len(text) > 0; text = text[1:] {
		for _, name := range names {
			file, base := File(name), strings.TrimSuffix(name, python)
			if _, has := files[file]; has || !strings.Contains(text[0], base) &&
				!strings.Contains(text[0], strings.ReplaceAll(base, "-", "_")) {
				continue
			}
			_, source, err := s.Read(name)
			size := len(file) + len(source)
			if err != nil || size > room {
				continue // the import fails and says so
			}
			room -= size
			files[file] = source
			text = append(text, source)
		}
	}
	return files
}
