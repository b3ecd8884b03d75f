package proc

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Unnamed is what the files hold that processes have open and that no directory names any more, of one file system, in
// bytes. Processes that may not be looked at count nothing.
func Unnamed(pids []int, device uint64) (total int64) {
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
			if st.Nlink > 0 || seen[st.Ino] {
				continue
			}
			seen[st.Ino] = true
			total += st.Blocks * 512
		}
	}
	return total
}
