package quota

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// FileCount is the size of a set of files.
type FileCount struct {
	Bytes, Files int64
	// Hidden means that more files exist, in directories that are closed or too deep.
	Hidden bool
}

// CountTree adds up all files of a directory, of any owner: bytes, and files including directories. It opens
// directories that this process's user has closed. It stops after counting more than enough files.
func CountTree(dir string, enough int64) (c FileCount) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return FileCount{}
	}
	defer root.Close()
	walkEntries(root, ".", func(name string, st *unix.Statx_t) bool {
		c.Files++
		// st_blocks counts units of 512 bytes (stat(2)). A sparse file counts only its used blocks.
		c.Bytes += int64(st.Blocks) * 512
		openClosedDir(root, name, st)
		return c.Files <= enough
	}, func(string, *unix.Statx_t) { c.Hidden = true })
	return c
}

// openClosedDir opens a directory that this process's user has closed. If that fails, its content counts as hidden.
func openClosedDir(root *os.Root, name string, st *unix.Statx_t) {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && !canOpen(root, name) {
		_ = root.Chmod(name, 0o700)
	}
}

// CountWritten adds up the files that this process's user has changed in a directory since a time, and opens
// directories that the user has closed. It stops after counting more than enough files.
func CountWritten(dir string, since time.Time, enough int64) FileCount {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return FileCount{}
	}
	defer root.Close()
	own := uint32(os.Geteuid())
	return countWritten(root, func(uid uint32) bool { return uid == own }, since, enough, true)
}

// countWritten adds up the files that users have created since a time, and older files that they changed. If opens, it
// opens closed directories. It recognises a changed file by its ctime, because code can set its mtime.
func countWritten(root *os.Root, owns func(uid uint32) bool, since time.Time, enough int64, opens bool) (c FileCount) {
	seen := map[uint64]bool{}
	walkEntries(root, ".", func(name string, st *unix.Statx_t) bool {
		own, kind := owns(st.Uid), st.Mode&unix.S_IFMT
		mine := own && !birthTime(st).Before(since)
		changed := mine || own && !timeOf(st.Ctime).Before(since)
		if opens && own {
			openClosedDir(root, name, st)
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
		earlier := isTooDeep(name) && timeOf(st.Ctime).Before(since)
		c.Hidden = c.Hidden || owns(st.Uid) && !earlier
	})
	return c
}
