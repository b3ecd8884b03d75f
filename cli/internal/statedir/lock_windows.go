package statedir

import (
	"io/fs"
	"os"
)

// Holder always returns false: embedded mode needs Linux.
func (d Dir) Holder() (pid int, held bool) { return 0, false }

// Remove removes the directory.
func (d Dir) Remove() error { return os.RemoveAll(d.path) }

func owner(fs.FileInfo) (int, bool) { return 0, false }
