package output

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// collect returns the names and sizes of the files in dir, and the sentence about others.
func collect(t *testing.T, dir string) (list, leftOut string) {
	t.Helper()
	leftOut, err := CollectFiles(dir, func(f sandboxapi.File) error {
		list += fmt.Sprintf("%s=%d%v ", f.Name, len(f.Data), map[bool]string{true: "!"}[f.Shown])
		return nil
	})
	testkit.Must(t, err)
	return list, leftOut
}

func put(t *testing.T, dir, name string, size int64) {
	t.Helper()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	testkit.Must(t, os.Truncate(filepath.Join(dir, name), size))
}

func TestCollectFiles(t *testing.T) {
	dir := t.TempDir()
	if list, leftOut := collect(t, dir); list+leftOut != "" {
		t.Errorf("an empty folder: %q %q", list, leftOut)
	}
	if list, leftOut := collect(t, filepath.Join(dir, "missing")); list+leftOut != "" {
		t.Errorf("no folder: %q %q", list, leftOut)
	}
	testkit.Must(t, os.Mkdir(filepath.Join(dir, shownDir), 0o700))
	put(t, dir, "b.csv", 3)
	put(t, dir, "a.txt", 0)
	put(t, filepath.Join(dir, shownDir), "2", 2)
	put(t, filepath.Join(dir, shownDir), "1", 1)
	if list, leftOut := collect(t, dir); list != "shown-1=1! shown-2=2! a.txt=0 b.csv=3 " || leftOut != "" {
		t.Errorf("%q %q", list, leftOut)
	}
	gone := errors.New("gone")
	if _, err := CollectFiles(dir, func(sandboxapi.File) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

// TestHostileFiles: code chooses names, kinds and sizes, and gets no file of the host out.
// Promise: files-are-data
func TestHostileFiles(t *testing.T) {
	for name, row := range map[string]struct {
		make          func(dir string) error
		list, leftOut string
	}{
		"a link to a file":   {func(d string) error { return os.Symlink("/etc/passwd", d+"/a") }, "", `"a" (it is a link`},
		"a link to a folder": {func(d string) error { return os.Symlink("/etc", d+"/a") }, "", `"a" (it is a link`},
		"a dangling link":    {func(d string) error { return os.Symlink("/nowhere", d+"/a") }, "", `"a" (it is a link`},
		"a link to itself":   {func(d string) error { return os.Symlink("a", d+"/a") }, "", `"a" (it is a link`},
		"a link as the shown folder": {func(d string) error { return os.Symlink("/etc", d+"/"+shownDir) }, "",
			`".shown" (it cannot be read)`},
		"a link as a shown file": {func(d string) error {
			return errors.Join(os.Mkdir(d+"/"+shownDir, 0o700), os.Symlink("/etc/passwd", d+"/"+shownDir+"/1"))
		}, "", `"1" (it is a link`},
		"a pipe":       {func(d string) error { return syscall.Mkfifo(d+"/a", 0o600) }, "", `"a" (only files`},
		"a socket":     {func(d string) error { return syscall.Mknod(d+"/a", syscall.S_IFSOCK|0o600, 0) }, "", `"a" (it is a link, or cannot`},
		"a folder":     {func(d string) error { return os.MkdirAll(d+"/a/b", 0o700) }, "", `"a" (only files`},
		"a hidden one": {func(d string) error { return os.WriteFile(d+"/.a", nil, 0o600) }, "", `".a" (its name`},
		"a line feed":  {func(d string) error { return os.WriteFile(d+"/a\nNote: x", nil, 0o600) }, "", `"a\nNote: x" (its name`},
		"an escape":    {func(d string) error { return os.WriteFile(d+"/\x1b[2J", nil, 0o600) }, "", `"\x1b[2J" (its name`},
		"not UTF-8":    {func(d string) error { return os.WriteFile(d+"/\xff", nil, 0o600) }, "", `"\xff" (its name`},
		"markup":       {func(d string) error { return os.WriteFile(d+"/<b>", nil, 0o600) }, "", `"<b>" (its name`},
		"reversed":     {func(d string) error { return os.WriteFile(d+"/\u202egnp", nil, 0o600) }, "", `"\u202egnp" (its name`},
		"a huge sparse one": {func(d string) error {
			return errors.Join(os.WriteFile(d+"/a", nil, 0o600), os.Truncate(d+"/a", 1<<40))
		}, "", `"a" (1099511627776 bytes are too much)`},
		"over the sum": {func(d string) error {
			var errs []error
			for _, n := range []string{"a", "b", "c"} {
				errs = append(errs, os.WriteFile(d+"/"+n, nil, 0o600), os.Truncate(d+"/"+n, 6<<20))
			}
			return errors.Join(errs...)
		}, "a=6291456 b=6291456 ", `"c" (6291456 bytes`},
		"five shown": {func(d string) error {
			err := os.Mkdir(d+"/"+shownDir, 0o700)
			for n := range 5 {
				err = errors.Join(err, os.WriteFile(fmt.Sprint(d, "/", shownDir, "/", n+1), nil, 0o600))
			}
			return err
		}, "shown-1=0! shown-2=0! shown-3=0! shown-4=0! ", `"5" (it is one too many)`},
		"a large shown one": {func(d string) error {
			return errors.Join(os.Mkdir(d+"/"+shownDir, 0o700), os.WriteFile(d+"/"+shownDir+"/1", nil, 0o600),
				os.Truncate(d+"/"+shownDir+"/1", 2<<20+1))
		}, "", `"1" (2097153 bytes`},
		"2000 files": {func(d string) (err error) {
			for n := range 2000 {
				err = errors.Join(err, os.WriteFile(fmt.Sprint(d, "/f", n), nil, 0o600))
			}
			return err
		}, "", "all after the first 1000 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			testkit.Must(t, row.make(dir))
			list, leftOut := collect(t, dir)
			if name == "2000 files" {
				if n := strings.Count(list, "="); n != sandboxapi.MaxOutFiles {
					t.Errorf("%d files", n)
				}
				list = ""
			}
			if list != row.list || !strings.Contains(leftOut, row.leftOut) {
				t.Errorf("%q, %q", list, leftOut)
			}
		})
	}
}
