// Package atomicfile replaces files as a whole: a reader always finds either the old content or the new one.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// Write replaces or creates the file at path. After Write returns nil, the content survives a loss of power. Until the
// rename, the new content is in a file of mode 0600 in the same folder.
func Write(path string, data []byte, mode fs.FileMode) error {
	return Fill(path, mode, func(w *os.File) error {
		_, err := w.Write(data)
		return err
	})
}

// Fill is Write for content that the function write produces.
func Fill(path string, mode fs.FileMode, write func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	// After the rename this name is gone, and Remove has no effect.
	defer os.Remove(f.Name())
	err = write(f)
	// Sync before Rename: otherwise a crash could leave the new name with an empty file.
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	// The rename itself is durable only when its folder is.
	return SyncDir(filepath.Dir(path))
}

// Create creates a file and its folder. It returns an error that matches fs.ErrExist if there is a file already.
func Create(path string, data []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // only the files in it are secret
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil { // an incomplete file would block the next try
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// SyncDir makes a folder's list of files durable, on systems that support it.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" { // Windows cannot flush folders
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); !errors.Is(err, syscall.EINVAL) { // some file systems cannot flush folders either
		return err
	}
	return nil
}
