package jail

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// maxLinks bounds the number of links. The quota on /skills allows fewer entries.
const maxLinks = 2000

// linkSkills makes links in folder to the entries of shared, which code sees as SkillsDir, and to entries of the given
// names. Pinned skills are files in folder, and linkSkills does not replace them.
func linkSkills(folder, shared string, names []string) error {
	dir, err := os.Open(shared)
	if err != nil {
		return err
	}
	defer dir.Close()
	found, err := dir.Readdirnames(maxLinks)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for _, name := range append(found, names...) {
		// The target is the path inside the sandbox. A pinned skill takes precedence over a shared one (ErrExist).
		err := os.Symlink(path.Join(SkillsDir, name), filepath.Join(folder, name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
