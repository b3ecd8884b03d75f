package packages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// keyPattern matches the results of sandboxapi.PackageKey.
var keyPattern = regexp.MustCompile(`^[0-9a-f]{24}$`)

// HoldPackage keeps a package until release is called.
func (s *Store) HoldPackage(pkg string) (release func()) {
	key := sandboxapi.PackageKey(pkg)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[key]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.held[key]--; s.held[key] == 0 {
			delete(s.held, key)
		}
	})
}

// RemoveUnused removes all packages except those in keep and those that are held. Their lock files stay.
func (s *Store) RemoveUnused(keep []string) (sandboxapi.Tidied, error) {
	wanted := map[string]bool{}
	for _, pkg := range keep {
		wanted[sandboxapi.PackageKey(pkg)] = true
	}
	tidied := sandboxapi.Tidied{Removed: []sandboxapi.Removed{}}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return tidied, fmt.Errorf("looking for packages: %w", err)
	}
	for _, e := range entries {
		key := e.Name()
		if !keyPattern.MatchString(key) || wanted[key] {
			continue
		}
		// Rename under the lock, delete without it: deleting a large package takes long.
		draft, used, moveErr := s.renameUnused(key)
		switch {
		case used:
			tidied.InUse++
		case moveErr != nil:
			err = errors.Join(err, moveErr)
		default:
			tidied.Removed = append(tidied.Removed, describePackage(draft))
			err = errors.Join(err, os.RemoveAll(draft))
		}
	}
	return tidied, err
}

// renameUnused renames the folder of an unused package, so that no slot can start to use it. After a crash, Open
// removes the renamed folder.
func (s *Store) renameUnused(key string) (draft string, used bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[key] > 0 {
		return "", true, nil
	}
	from := filepath.Join(s.dir, key)
	draft = from + ".removed.new"
	return draft, false, errors.Join(os.RemoveAll(draft), os.Rename(from, draft))
}

// describePackage returns the package in a folder, and its size.
func describePackage(dir string) sandboxapi.Removed {
	name, _ := os.ReadFile(filepath.Join(dir, packageName))
	r := sandboxapi.Removed{Package: string(name)}
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what cannot be read is not counted
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			r.Bytes += info.Size()
		}
		return nil
	})
	return r
}
