// Package logfile is a log file of bounded size: when it is full it is renamed to NAME.1, replacing the previous one.
package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// DefaultMax is the default size limit of a file, in bytes.
const DefaultMax = 16 << 20

// File is safe for concurrent use. One Write is never split over two files.
type File struct {
	path string
	max  int64

	mu   sync.Mutex
	f    *os.File
	size int64
}

// Open opens the file at path, mode 0600, for appending. Max 0 means DefaultMax.
func Open(path string, max int64) (*File, error) {
	if max == 0 {
		max = DefaultMax
	}
	l := &File{path: path, max: max}
	return l, l.open()
}

func (l *File) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("opening the log: %w", err)
	}
	l.f, l.size = f, info.Size()
	return nil
}

// Write appends p, which should be whole lines.
func (l *File) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(p)) > l.max {
		_ = l.f.Close()
		// It is not there if somebody removed it, or if it could not be opened after it was renamed.
		if err := os.Rename(l.path, l.path+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("rotating the log: %w", err)
		}
		if err := l.open(); err != nil {
			return 0, err
		}
	}
	n, err := l.f.Write(p)
	l.size += int64(n)
	return n, err
}

// Close closes the file.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}
