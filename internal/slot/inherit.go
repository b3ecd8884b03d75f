package slot

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// firstFD is the first descriptor of inherited files, after stdio.
const firstFD = 3

// File is one inherited file.
type File struct {
	Slot ID
	Kind Kind
	File *os.File
}

// InheritedFiles lists the files that this process has inherited, from LISTEN_FDS and LISTEN_FDNAMES. The protocol is
// that of sd_listen_fds(3) without LISTEN_PID, which a supervisor cannot know before it forks. If neither variable is
// set, the list is empty. If the count differs from the number of names, InheritedFiles returns an error.
func InheritedFiles(getenv func(string) string) ([]File, error) {
	count, names := getenv("LISTEN_FDS"), getenv("LISTEN_FDNAMES")
	if count == "" && names == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(count)
	list := strings.Split(names, ":")
	if err != nil || n != len(list) {
		return nil, fmt.Errorf("LISTEN_FDS=%q does not count LISTEN_FDNAMES=%q", count, names)
	}
	files := make([]File, 0, n)
	for i, name := range list {
		id, kind, err := ParseFileName(name)
		if err != nil {
			return nil, fmt.Errorf("reading LISTEN_FDNAMES: %w", err)
		}
		files = append(files, File{Slot: id, Kind: kind, File: os.NewFile(uintptr(firstFD+i), name)})
	}
	return files, nil
}

// ChildEnviron returns the variables for a child that inherits files with these names, in order, from descriptor 3
// on.
func ChildEnviron(names []string) []string {
	return []string{"LISTEN_FDS=" + strconv.Itoa(len(names)), "LISTEN_FDNAMES=" + strings.Join(names, ":")}
}
