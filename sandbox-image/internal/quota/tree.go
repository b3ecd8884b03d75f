package quota

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Count is the size of a set of files.
type Count struct {
	Bytes, Files int64
	// Hidden means that more files exist, in directories that are closed or too deep.
	Hidden bool
}

// Tree adds up all files of a directory, of any owner: bytes, and files including directories. It opens directories
// that this process's user has closed. It stops after counting more than enough files.
func Tree(dir string, enough int64) (c Count) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Count{}
	}
	defer root.Close()
	each(root, ".", func(name string, st *unix.Statx_t) bool {
		c.Files++
		// st_blocks counts units of 512 bytes (stat(2)). A sparse file counts only its used blocks.
		c.Bytes += int64(st.Blocks) * 512
		open(root, name, st)
		return c.Files <= enough
	}, func(string, *unix.Statx_t) { c.Hidden = true })
	return c
}

// open opens a directory that this process's user has closed. If that fails, its content counts as hidden.
func open(root *os.Root, name string, st *unix.Statx_t) {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && !canOpen(root, name) {
		_ = root.Chmod(name, 0o700)
	}
}

// Written adds up the files that this process's user has changed in a directory since a time, and opens directories
// that the user has closed. It stops after counting more than enough files.
func Written(dir string, since time.Time, enough int64) Count {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Count{}
	}
	defer root.Close()
	own := uint32(os.Geteuid())
	return written(root, func(uid uint32) bool { return uid == own }, since, enough, true)
}

// written adds up the files that users have created since a time, and older files that they changed. If opens, it opens
// closed directories. It recognises a changed file by its ctime, because code can set its mtime.
func written(root *os.Root, owns func(uid uint32) bool, since time.Time, enough int64, opens bool) (c Count) {
	seen := map[uint64]bool{}
	each(root, ".", func(name string, st *unix.Statx_t) bool {
		own, kind := owns(st.Uid), st.Mode&unix.S_IFMT
		mine := own && !born(st).Before(since)
		changed := mine || own && !instant(st.Ctime).Before(since)
		if opens && own {
			open(root, name, st)
		}
		// Hard links are one file with several names.
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
		// A directory that is too deep and unchanged was there before the run.
		earlier := deepest(name) && instant(st.Ctime).Before(since)
		c.Hidden = c.Hidden || owns(st.Uid) && !earlier
	})
	return c
}
