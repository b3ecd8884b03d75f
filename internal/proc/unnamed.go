package proc

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// unmeasured is how many bytes a removed file counts whose size the kernel does not show.
const unmeasured = 1 << 40

// RemovedBytes returns the bytes of removed files on a file system that the processes still hold. A file that only a
// mapping, or a descriptor inside an unread message, keeps alive counts as unmeasured. Processes that this user may not
// inspect count as 0.
func RemovedBytes(pids []int, device uint64) (total int64) {
	seen := map[uint64]bool{}
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid)
		fds, err := os.Open(dir + "/fd")
		if err != nil {
			continue
		}
		names, _ := fds.Readdirnames(-1)
		_ = fds.Close()
		for _, n := range names {
			var st unix.Stat_t
			if unix.Stat(dir+"/fd/"+n, &st) != nil {
				continue
			}
			if st.Mode&unix.S_IFMT == unix.S_IFSOCK && hasDescriptors(dir+"/fdinfo/"+n) {
				total += unmeasured
			}
			if st.Dev != device || st.Mode&unix.S_IFMT != unix.S_IFREG {
				continue
			}
			// Several descriptors, also of several processes, can have the same file open.
			if st.Nlink > 0 || seen[st.Ino] {
				continue
			}
			seen[st.Ino] = true
			total += st.Blocks * 512
		}
	}
	// After all descriptors: the size of a file that also has one is known.
	for _, pid := range pids {
		maps, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/maps")
		total += unmeasured * countMapped(maps, device, seen)
	}
	return total
}

// programDirs are the folders of programs and libraries in a sandbox, which code cannot change. An update of the
// machine removes files there that programs still use.
var programDirs = [...]string{"/usr/", "/lib/", "/lib64/", "/bin/", "/packages/", "/programs/"}

// countMapped counts the removed files on a device in /proc/<pid>/maps (proc_pid_maps(5)) that are not in seen, and
// adds them to seen. It skips the files of programDirs.
func countMapped(maps []byte, device uint64, seen map[uint64]bool) (n int64) {
	of := fmt.Sprintf("%02x:%02x", unix.Major(device), unix.Minor(device))
	for line := range bytes.Lines(maps) {
		f := bytes.Fields(line) // address rights offset device inode path
		if len(f) < 6 || string(f[3]) != of || !bytes.HasSuffix(line, []byte(" (deleted)\n")) {
			continue
		}
		inode, _ := strconv.ParseUint(string(f[4]), 10, 64)
		isProgram := slices.ContainsFunc(programDirs[:], func(dir string) bool { return bytes.HasPrefix(f[5], []byte(dir)) })
		if !isProgram && !seen[inode] {
			seen[inode] = true
			n++
		}
	}
	return n
}

// hasDescriptors reports whether a socket of /proc/<pid>/fdinfo holds messages with descriptors. Only unix sockets
// can.
func hasDescriptors(fdinfo string) bool {
	text, _ := os.ReadFile(fdinfo)
	_, rest, found := bytes.Cut(text, []byte("scm_fds:"))
	number, _, _ := bytes.Cut(rest, []byte{'\n'})
	return found && string(bytes.TrimSpace(number)) != "0"
}
