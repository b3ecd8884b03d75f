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

// hostileFile is an attempt of code to get more out of /out than its own files, or to have a file cut or misread.
type hostileFile struct {
	name          string
	make          func(dir string) error
	list, leftOut string
	// defence is the one without which the attempt succeeds. Empty: more than one stops it.
	defence string
}

// hostileNames are names that code can give a file, and that are not allowed.
var hostileNames = []string{
	".a", "...", `a\b`, `C:\x`, "C:x", "a\nNote: x", "a\rb", "a\tb", "\x1b[2J", "a\x7fb", "a\u0085b", "\u202egnp", "a\u2066b", "a\u200bb", "a\u00a0b",
	"\ufeffa", "\xff", "a\xc3", "<img src=x onerror=alert(1)>", `a"b`, "a'b", "a`id`", "a&lt;b", "a|b", "a?b", "a#b", "a*b", "a%2fb", "$(id)", "a;b", "-rf",
	" a", "a ", "a.", strings.Repeat("x", 121), strings.Repeat("漢", 50),
}

// hostileFiles returns all attempts.
func hostileFiles() []hostileFile {
	write := func(path string, size int64) error {
		return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size))
	}
	shown := func(make func(dir string) error) func(dir string) error {
		return func(d string) error { return errors.Join(os.Mkdir(d+"/"+shownDir, 0o700), make(d+"/"+shownDir)) }
	}
	link := func(to string) func(dir string) error { return func(d string) error { return os.Symlink(to, d+"/1") } }
	pipe := func(d string) error { return syscall.Mkfifo(d+"/1", 0o600) }
	socket := func(d string) error { return syscall.Mknod(d+"/1", syscall.S_IFSOCK|0o600, 0) }
	files := func(count int, size int64) func(dir string) error {
		return func(d string) (err error) {
			for n := range count {
				err = errors.Join(err, write(fmt.Sprint(d, "/", n+1), size))
			}
			return err
		}
	}
	list := []hostileFile{
		{"a link to a file", link("/etc/passwd"), "", `"1" (it is a link`, "out-links"},
		{"a link to the collector's environment", link("/proc/self/environ"), "", `"1" (it is a link`, "out-links"},
		{"a relative link", func(d string) error {
			return errors.Join(os.WriteFile(d+"-secret", []byte("s"), 0o600), os.Symlink("../"+filepath.Base(d)+"-secret", d+"/1"))
		}, "", `"1" (it is a link`, "out-links"},
		{"a link to a link", func(d string) error {
			return errors.Join(os.Symlink("/etc/passwd", d+"/.a"), os.Symlink(".a", d+"/1"))
		}, "", `"1" (it is a link`, "out-links"},
		{"a link as a shown file", shown(link("/etc/passwd")), "", `"1" (it is a link`, "out-links"},
		{"a link as the shown folder", func(d string) error {
			return errors.Join(os.Mkdir(d+"-other", 0o700), os.WriteFile(d+"-other/1", nil, 0o600), os.Symlink(d+"-other", d+"/"+shownDir))
		}, "", `".shown" (it cannot be read)`, "out-links"},
		{"a link to a folder", link("/etc"), "", `"1" (it is a link`, ""},
		{"a dangling link", link("/nowhere"), "", `"1" (it is a link`, ""},
		{"a link to itself", link("1"), "", `"1" (it is a link`, ""},
		{"a pipe", pipe, "", `"1" (only files`, "out-kinds"},
		{"a pipe as a shown file", shown(pipe), "", `"1" (only files`, "out-kinds"},
		{"a socket", socket, "", `"1" (it is a link, or cannot`, ""},
		{"a folder", func(d string) error { return os.MkdirAll(d+"/1/b", 0o700) }, "", `"1" (only files`, ""},
		{"a huge sparse one", files(1, 1<<40), "", `"1" (1099511627776 bytes are too much)`, "out-size"},
		{"a byte too long", files(1, sandboxapi.MaxOut+1), "", `"1" (16777217 bytes`, "out-size"},
		{"over the sum", files(3, 6<<20), "1=6291456 2=6291456 ", `"3" (6291456 bytes`, "out-size"},
		{"a large shown one", shown(files(1, 2<<20+1)), "", `"1" (2097153 bytes`, "out-size"},
		{"over the sum, shown", shown(files(3, 1<<20)), "shown-1=1048576! shown-2=1048576! ", `"3" (1048576 bytes`, "out-size"},
		{"five shown", shown(files(5, 0)), "shown-1=0! shown-2=0! shown-3=0! shown-4=0! ", `"5" (it is one too many)`, "out-count"},
		{"101 files", files(101, 0), "100 files", `"99" (it is one too many)`, "out-count"},
		{"2000 files", files(2000, 0), "100 files", "all after the first 1000 entries", "out-count"},
	}
	for _, name := range hostileNames {
		list = append(list, hostileFile{
			name: fmt.Sprintf("the name %.20q", name), make: func(d string) error { return os.WriteFile(filepath.Join(d, name), nil, 0o600) },
			leftOut: "(its name", defence: "file-names",
		})
	}
	return list
}

// attempt collects the files of an attempt. It counts many files.
func (h hostileFile) attempt(t *testing.T) (list, leftOut string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	testkit.Must(t, errors.Join(os.Mkdir(dir, 0o700), h.make(dir)))
	list, leftOut = collect(t, dir)
	if n := strings.Count(list, "="); n > 10 {
		list = fmt.Sprint(n, " files")
	}
	return list, leftOut
}

// TestHostileFiles: code chooses names, kinds and sizes, and gets no file of the host out.
// Promise: files-are-data
func TestHostileFiles(t *testing.T) {
	for _, h := range hostileFiles() {
		t.Run(h.name, func(t *testing.T) {
			if list, leftOut := h.attempt(t); list != h.list || !strings.Contains(leftOut, h.leftOut) {
				t.Errorf("%q, %q", list, leftOut)
			}
		})
	}
}
