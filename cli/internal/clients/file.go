package clients

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
)

// maxFile bounds a client's file, in bytes.
const maxFile = 16 << 20

// ReadConfig reads a client's file. A missing file is empty.
func ReadConfig(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, maxFile)
	}
	return os.ReadFile(path)
}

// ReplaceWithBackup replaces a client's file and keeps a copy of the old one. It returns the copy's path, or "" if
// there was no file. before is the text that the caller has read: if the file differs from it, Write fails.
func ReplaceWithBackup(path string, before, after []byte, now time.Time) (backup string, err error) {
	// A rename would replace the link instead of its target.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	have, err := ReadConfig(path)
	if err != nil {
		return "", err
	}
	if string(have) != string(before) {
		return "", fmt.Errorf("%s has just been changed by another program: try again", path)
	}
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
		backup = path + "." + now.Format("20060102-150405") + ".bak"
		if err := writeNew(backup, have, mode); err != nil {
			return "", fmt.Errorf("keeping a copy: %w", err)
		}
	} else if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	return backup, atomicfile.Write(path, after, mode)
}

// ReplaceConfig replaces an existing client's file without a copy. before is as for Write.
func ReplaceConfig(path string, before, after []byte) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	have, err := ReadConfig(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil || string(have) != string(before) {
		return fmt.Errorf("%s has just been changed by another program: try again", path)
	}
	return atomicfile.Write(path, after, info.Mode().Perm())
}

// writeNew writes a file that must not exist.
func writeNew(path string, text []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Chmod(mode), f.Close())
}
