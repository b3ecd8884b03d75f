//go:build unix

package apidir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/folderlock"
)

// lockFolder locks the folder of APIs against other codeforge processes until done is called. It waits at most 10 s.
func lockFolder(dir string) (done func(), err error) {
	lock, err := folderlock.LockFolder(dir, 10*time.Second)
	switch {
	case errors.Is(err, folderlock.ErrTaken):
		return nil, fmt.Errorf("%s: another codeforge is changing it: %w", dir, err)
	case err != nil:
		return func() {}, nil //nolint:nilerr // what follows says so
	}
	return func() { _ = lock.Close() }, nil
}

// giveToOwner gives the files that root wrote to the owner of the folder of APIs, who must be able to edit them.
func giveToOwner(dir, folder string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("apis folder: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return err
	}
	for _, path := range append(files, folder) {
		if err := os.Lchown(path, int(st.Uid), int(st.Gid)); err != nil {
			return fmt.Errorf("giving the API to the owner of the folder: %w", err)
		}
	}
	return nil
}

// keepOwner gives a file the owner of another file, if this process is root.
func keepOwner(of os.FileInfo, path string) error {
	st, ok := of.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return os.Lchown(path, int(st.Uid), int(st.Gid))
}
