package statedir

import (
	"io/fs"
	"os"
)

// FindHolder always returns false: embedded mode needs Linux.
func (d Dir) FindHolder() (pid int, held bool) { return 0, false }

// Lock does not lock: embedded mode needs Linux.
func (d Dir) Lock() (*os.File, error) { return os.Open(d.path) }

// Remove removes the directory.
func (d Dir) Remove() error { return os.RemoveAll(d.path) }

func ownerUID(fs.FileInfo) (int, bool) { return 0, false }
