package quota

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Count is what files hold.
type Count struct {
	Bytes, Files int64
	// Hidden means that there is more, in directories that are closed or too deep.
	Hidden bool
}

// Tree adds up a directory, whoever has written it: its bytes and its files, directories included. It opens directories
// that this process's user has closed, and stops when it has counted more than enough files.
func Tree(dir string, enough int64) (c Count) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Count{}
	}
	defer root.Close()
	each(root, ".", func(name string, st *unix.Statx_t) bool {
		c.Files++
		c.Bytes += int64(st.Blocks) * 512
		open(root, name, st)
		return c.Files <= enough
	}, func(string, *unix.Statx_t) { c.Hidden = true })
	return c
}

// open opens a directory that this process's user has closed. If it cannot, what the directory holds is hidden.
func open(root *os.Root, name string, st *unix.Statx_t) {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && !canOpen(root, name) {
		_ = root.Chmod(name, 0o700)
	}
}

// Written adds up what this process's user has written to a directory since a time, and opens for it what the user has
// closed. It stops when it has counted more than enough files.
func Written(dir string, since time.Time, enough int64) Count {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Count{}
	}
	defer root.Close()
	own := uint32(os.Geteuid())
	return written(root, func(uid uint32) bool { return uid == own }, since, enough, true)
}

// written adds up the files that users have created since a time, and older ones that they wrote to. It opens closed
// directories on request. A file that was written to is known by its last change: code can set the time of its content.
func written(root *os.Root, owns func(uid uint32) bool, since time.Time, enough int64, opens bool) (c Count) {
	seen := map[uint64]bool{}
	each(root, ".", func(name string, st *unix.Statx_t) bool {
		own, kind := owns(st.Uid), st.Mode&unix.S_IFMT
		mine := own && !born(st).Before(since)
		changed := mine || own && !instant(st.Ctime).Before(since)
		if opens && own {
			open(root, name, st)
		}
		if !changed || seen[st.Ino] {
			return c.Files <= enough
		}
		seen[st.Ino] = true
		if mine {
			c.Files++
		}
		if mine || kind == unix.S_IFREG {
			c.Bytes += int64(st.Blocks) * 512
		}
		return c.Files <= enough
	}, func(name string, st *unix.Statx_t) {
		earlier := deepest(name) && instant(st.Ctime).Before(since)
		c.Hidden = c.Hidden || owns(st.Uid) && !earlier
	})
	return c
}
