package proc

import (
	"strconv"
	"strings"
)

// HasIDRange reports whether one line of an id map contains all ids from first to last (user_namespaces(7)). text is
// the content of /proc/<pid>/uid_map or gid_map. Several lines that contain them together do not count, because their
// ids may belong to different owners.
func HasIDRange(text string, first, last int) bool {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		start, err1 := strconv.Atoi(f[0])
		size, err2 := strconv.Atoi(f[2])
		if err1 == nil && err2 == nil && start <= first && last < start+size {
			return true
		}
	}
	return false
}
