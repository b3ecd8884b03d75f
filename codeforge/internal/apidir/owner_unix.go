//go:build unix

package apidir

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// sameOwner gives the files that root wrote to the owner of the folder of APIs, who must be able to edit them.
func sameOwner(dir, folder string) error {
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
	for _, path := range []string{folder, filepath.Join(folder, "config.json")} {
		if err := os.Lchown(path, int(st.Uid), int(st.Gid)); err != nil {
			return fmt.Errorf("giving the API to the owner of the folder: %w", err)
		}
	}
	return nil
}
