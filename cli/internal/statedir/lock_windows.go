package statedir

import (
	"io/fs"
	"os"
)

// FindHolder always returns false: embedded mode needs Linux.
func (d Dir) FindHolder() (pid int, held bool) { return 0, false }

// Remove removes the directory.
func (d Dir) Remove() error { return os.RemoveAll(d.path) }

func ownerUID(fs.FileInfo) (int, bool) { return 0, false }
