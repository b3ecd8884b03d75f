package catalog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The largest files in bytes.
const (
	maxConfig     = 256 << 10
	maxCAs        = 1 << 20
	maxSecretFile = 64 << 10
)

// The bytes that one load reads of one API and of all of apis/.
const (
	maxAPIBytes = 4 << 20
	maxBytes    = 64 << 20
)

// readBudget is the number of bytes that a load may still read: of all files, of one API's files, and of documents,
// which count separately.
type readBudget struct{ all, api, documents int64 }

// errAPIBytes and errBytes are the errors for a file that would exceed the budget.
var (
	errAPIBytes = fmt.Errorf("a file of an API whose files together exceed %d MiB", maxAPIBytes>>20)
	errBytes    = fmt.Errorf("a file in apis/, whose files together exceed %d MiB", maxBytes>>20)
)

// takeBytes deducts the size of a file before it is read.
func (b *readBudget) takeBytes(n int64) error {
	switch {
	case n > b.api:
		return errAPIBytes
	case n > b.all:
		return errBytes
	}
	b.api, b.all = b.api-n, b.all-n
	return nil
}

// errNotRegular is the error for a directory, device or pipe instead of a file.
var errNotRegular = errors.New("not a regular file")

// errTooLarge is the error for a file over its limit.
var errTooLarge = errors.New("too large")

// fileOpener is the part of os.Root, or of package os, that read needs.
type fileOpener struct {
	stat func(string) (fs.FileInfo, error)
	open func(string) (*os.File, error)
	*readBudget
}

// openWithinAPIs returns an opener for apis/. No path or symbolic link can leave the folder.
func openWithinAPIs(root *os.Root, b *readBudget) fileOpener {
	return fileOpener{root.Stat, root.Open, b}
}

// readFile reads a regular file of at most limit bytes. It checks the type before it opens the file, because opening a
// pipe would block.
func (o fileOpener) readFile(name string, limit int64) ([]byte, error) {
	info, err := o.stat(name)
	if err != nil {
		return nil, err
	}
	// Opening a pipe would block the load.
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
	}
	if err := o.takeBytes(info.Size()); err != nil {
		return nil, err
	}
	f, err := o.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The file may have grown since the Stat.
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
	}
	return data, err
}

// describeReadError describes an error of read for a message, without paths of the machine.
func describeReadError(err error) string {
	var path *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "no such file"
	case errors.Is(err, fs.ErrPermission):
		return "not readable by this user"
	case errors.Is(err, errNotRegular), errors.Is(err, errTooLarge), errors.Is(err, errAPIBytes), errors.Is(err, errBytes),
		errors.Is(err, errDocuments):
		return err.Error()
	// os.Root has no error value for a path that leaves it.
	case errors.As(err, &path) && strings.Contains(path.Err.Error(), "escapes"):
		return "a path or symbolic link that leads out of apis/"
	case errors.As(err, &path):
		return path.Err.Error()
	}
	return err.Error()
}

// addReadError reports a file in config.json that cannot be read. It names the file only if the name is too short to be
// a credential in the wrong field.
func (v *configValidator) addReadError(field, name, what string, err error) {
	found, want := describeReadError(err), fmt.Sprintf("%s in apis/%s/, or an absolute path", what, v.API)
	if errors.Is(err, fs.ErrNotExist) && len(name) < minValue && filepath.IsLocal(name) {
		found, want = strconv.Quote("apis/"+v.API+"/"+filepath.ToSlash(name))+" does not exist", what+" there"
	}
	v.AddError(field, found, want)
}

// readNamed reads a file that config.json names. A relative path is relative to the API's folder, and must stay inside
// apis/.
func (v *configValidator) readNamed(name string, limit int64) ([]byte, error) {
	if filepath.IsAbs(name) {
		return fileOpener{os.Stat, os.Open, v.budget}.readFile(name, limit)
	}
	return openWithinAPIs(v.root, v.budget).readFile(filepath.Join(v.API, filepath.FromSlash(name)), limit)
}
