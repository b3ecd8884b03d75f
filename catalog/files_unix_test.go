//go:build unix

package catalog_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestPipe: opening a named pipe would wait for a writer for ever.
func TestPipe(t *testing.T) {
	dir := withFine(t, map[string]string{"acme/x": ""})
	if err := syscall.Mkfifo(filepath.Join(dir, "acme", "config.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	onlyProblem(t, dir, "error: apis/acme/config.json: not a regular file; want a file of at most 262144 bytes")
}

// TestUnreadable runs as nobody where the tests run as root, who reads everything.
func TestUnreadable(t *testing.T) {
	dir := withFine(t, map[string]string{"acme/config.json": plainConfig})
	if err := os.Chmod(filepath.Join(dir, "acme", "config.json"), 0); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		const nobody = 65534
		if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
			t.Fatal(err)
		}
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Chown(path, nobody, nobody))
		})
		if err == nil {
			err = syscall.Seteuid(nobody)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := syscall.Seteuid(0); err != nil {
				t.Fatal(err)
			}
		}()
	}
	onlyProblem(t, dir, "error: apis/acme/config.json: not readable by this user; want a file of at most 262144 bytes")
}
