package proc

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// RemovedBytes returns the bytes of removed files on a file system that the processes still have open. Processes that
// this user may not inspect count as 0.
func RemovedBytes(pids []int, device uint64) (total int64) {
	seen := map[uint64]bool{}
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		fds, err := os.Open(dir)
		if err != nil {
			continue
		}
		names, _ := fds.Readdirnames(-1)
		_ = fds.Close()
		for _, n := range names {
			var st unix.Stat_t
			if unix.Stat(dir+"/"+n, &st) != nil || st.Dev != device || st.Mode&unix.S_IFMT != unix.S_IFREG {
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
	return total
}
