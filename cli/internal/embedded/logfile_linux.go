package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// maxLogFile is the default size limit of a file, in bytes.
const maxLogFile = 16 << 20

// logFile is a log file of bounded size. When it is full, Write renames it to NAME.1, replacing the previous one. It is
// safe for concurrent use. One Write is never split over two files.
type logFile struct {
	path string
	max  int64

	mu sync.Mutex
	f  *os.File
}

// openLogFile opens the file at path, mode 0600, for appending. max is its size limit in bytes; 0 means maxLogFile.
func openLogFile(path string, max int64) (*logFile, error) {
	max = cmp.Or(max, maxLogFile)
	l := &logFile{path: path, max: max}
	return l, l.openFile()
}

func (l *logFile) openFile() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	l.f = f
	return nil
}

// Write appends p, which should be whole lines, to the file at the path. If another program has renamed or removed that
// file, as logrotate does, Write creates it.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, current, err := l.statFile()
	if err != nil {
		return 0, err
	}
	// An empty file takes a text of any length: a new file would have no more room.
	full := size > 0 && size+int64(len(p)) > l.max
	if full || !current {
		_ = l.f.Close()
		if full && current {
			if err := os.Rename(l.path, l.path+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return 0, fmt.Errorf("rotating the log: %w", err)
			}
		}
		if err := l.openFile(); err != nil {
			return 0, err
		}
	}
	return l.f.Write(p)
}

// statFile returns the size of the open file, to which other programs may write too, and whether the path still leads
// to that file. If an earlier Write could not open a file, the size is 0.
func (l *logFile) statFile() (size int64, current bool, err error) {
	open, err := l.f.Stat()
	if errors.Is(err, os.ErrClosed) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("examining the log: %w", err)
	}
	named, err := os.Stat(l.path)
	return open.Size(), err == nil && os.SameFile(open, named), nil
}

// Close closes the file.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}
