package clients

import (
	"bytes"
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

// ReadConfig reads a client's file, without a byte order mark. A missing file is empty.
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
	text, err := os.ReadFile(path)
	return bytes.TrimPrefix(text, []byte("\ufeff")), err // editors of Windows write one, and JSON has none
}

// ReplaceConfig replaces a client's file. before is the text that the caller has read: if the file differs from it,
// ReplaceConfig fails. If keep is not zero and the file exists, ReplaceConfig keeps a copy with this time in its name,
// and returns the copy's path.
func ReplaceConfig(path string, before, after []byte, keep time.Time) (backup string, err error) {
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
	if info, err := os.Stat(path); err != nil {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", err
		}
	} else if mode = info.Mode().Perm(); !keep.IsZero() {
		backup = path + "." + keep.Format("20060102-150405") + ".bak"
		if err := atomicfile.Create(backup, have, mode); err != nil {
			return "", fmt.Errorf("keeping a copy: %w", err)
		}
	}
	return backup, atomicfile.Write(path, after, mode)
}
