package health

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// problemName is the name of the in-memory file in which process 1 stores the reason. Containers have a read-only root
// and no common folder for files, and this file disappears with the process.
const problemName = "codeforge-problem"

// maxProblem bounds the reason, in bytes. Engines keep 4 KiB of a healthcheck's output.
const maxProblem = 4 << 10

// publishProblem stores a reason for StartProblem until withdraw is called.
func publishProblem(reason string) (withdraw func(), err error) {
	fd, err := unix.MemfdCreate(problemName, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), problemName)
	if _, err := f.WriteString(reason[:min(len(reason), maxProblem)]); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// StartProblem returns why the daemon that is process 1 of this container could not start. It returns "" if the daemon
// has started, or if this is not a container of CodeForge.
func StartProblem() string { return readProblem("1") }

// readProblem returns the reason that a process has published.
func readProblem(pid string) string {
	dir := filepath.Join("/proc", pid, "fd")
	fds, _ := os.ReadDir(dir)
	for _, fd := range fds {
		path := filepath.Join(dir, fd.Name())
		// The link of a memfd is "/memfd:NAME (deleted)".
		if target, err := os.Readlink(path); err != nil || !strings.HasPrefix(target, "/memfd:"+problemName+" ") {
			continue
		}
		text, _ := os.ReadFile(path)
		return strings.ToValidUTF8(string(text[:min(len(text), maxProblem)]), "?")
	}
	return ""
}
