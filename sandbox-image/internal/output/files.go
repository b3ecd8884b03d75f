package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// shownDir is the folder below a run's folder in which show of package runner writes the files 1, 2 and so on.
const shownDir = ".shown"

// maxEntries bounds the entries of a folder that are read, and maxReasons the files that a sentence names.
const (
	maxEntries = 1000
	maxReasons = 5
)

// fileCollector reads the files of a run's folder.
type fileCollector struct {
	send    func(sandboxapi.File) error
	reasons []string // why files were left out
}

// CollectFiles reads the files that a run left in its folder: first the shown ones, then those directly in the folder,
// by name. It returns sentences about the files that it left out. Call it when no process of the slot is left.
//
// Threat: code chose all names, types and sizes. CollectFiles follows no link, opens only regular files, and reads at
// most the limits of package sandboxapi.
func CollectFiles(dir string, send func(sandboxapi.File) error) (leftOut string, err error) {
	c := fileCollector{send: send}
	err = c.collectFolder(filepath.Join(dir, shownDir), true, sandboxapi.MaxShown, sandboxapi.MaxShownBytes)
	if err == nil {
		err = c.collectFolder(dir, false, sandboxapi.MaxOutFiles, sandboxapi.MaxOut)
	}
	if len(c.reasons) == 0 {
		return "", err
	}
	more := ""
	if n := len(c.reasons) - maxReasons; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return "Not kept: " + strings.Join(c.reasons[:min(len(c.reasons), maxReasons)], ", ") + more + ".", err
}

// collectFolder sends at most so many files of a folder, with at most so many bytes together.
func (c *fileCollector) collectFolder(dir string, shown bool, files int, bytes int64) error {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	//defence:out-links
	flags |= unix.O_NOFOLLOW
	fd, err := unix.Open(dir, flags, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	folder := os.NewFile(uintptr(fd), dir) //nolint:gosec // a descriptor
	var names []string
	if err == nil {
		defer folder.Close()
		names, err = folder.Readdirnames(maxEntries + 1)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.leaveOut(filepath.Base(dir), "it cannot be read")
		return nil
	}
	if len(names) > maxEntries {
		c.reasons = append(c.reasons, fmt.Sprintf("all after the first %d entries", maxEntries))
		names = names[:maxEntries]
	}
	slices.Sort(names)
	for _, name := range names {
		f := sandboxapi.File{Name: name, Shown: shown}
		if shown {
			f.Name = "shown-" + name
		} else if name == shownDir {
			continue
		}
		switch {
		case !sandboxapi.IsFileName(f.Name):
			c.leaveOut(name, "its name is not allowed")
			continue
		//defence:out-count
		case files == 0:
			c.leaveOut(name, "it is one too many")
			continue
		}
		var reason string
		if f.Data, reason = readRegular(fd, name, bytes); reason != "" {
			c.leaveOut(name, reason)
			continue
		}
		files, bytes = files-1, bytes-int64(len(f.Data))
		if err := c.send(f); err != nil {
			return err
		}
	}
	return nil
}

// leaveOut notes why a file is left out. Code chose the name.
func (c *fileCollector) leaveOut(name, reason string) {
	c.reasons = append(c.reasons, strconv.QuoteToASCII(name[:min(len(name), 40)])+" ("+reason+")")
}

// readRegular reads a regular file of at most room bytes. Otherwise it returns the reason.
func readRegular(dir int, name string, room int64) ([]byte, string) {
	// O_NONBLOCK: opening a pipe would wait for its writer.
	flags := unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	// A link could lead to any file that sandboxd can read.
	//defence:out-links
	flags |= unix.O_NOFOLLOW
	fd, err := unix.Openat(dir, name, flags, 0)
	if err != nil {
		return nil, "it is a link, or cannot be read"
	}
	f := os.NewFile(uintptr(fd), name) //nolint:gosec // a descriptor
	defer f.Close()
	info, err := f.Stat()
	switch {
	//defence:out-kinds
	case err != nil || !info.Mode().IsRegular():
		return nil, "only files directly in /out are kept"
	// Without this check, the user would take the first part of a file for the whole.
	//defence:out-size
	case info.Size() > room:
		return nil, fmt.Sprintf("%d bytes are too much", info.Size())
	}
	data, err := io.ReadAll(io.LimitReader(f, room))
	if err != nil {
		return nil, "it cannot be read"
	}
	return data, ""
}
