package skill_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
)

// sumOf is what a skill is now, for Pin.
func sumOf(t *testing.T, s *skill.Store, name string) string {
	t.Helper()
	_, source, err := s.Read(name)
	testkit.Must(t, err)
	return skill.Sum(source)
}

// TestPin: tools refuse to change a pinned skill, and whatever code makes of its file is undone, also by a store that
// is opened later. An unpinned skill changes again.
// Promise: console-decides-what-was-shown, pinned-skills
func TestPin(t *testing.T) {
	s, dir := open(t, map[string]string{"a.ts": hello, "b.py": "x = 1\n", "c.ts": hello})
	pins := filepath.Join(t.TempDir(), "pins")
	if s.Pin("a", sumOf(t, s, "a")) == nil {
		t.Error("it was pinned nowhere")
	}
	s.PinIn(pins)
	seen := sumOf(t, s, "a")
	put(t, dir, "a.ts", "evil")
	if err := s.Pin("a", seen); !errors.Is(err, skill.ErrChanged) || s.Pinned("a") {
		t.Errorf("pinned to what nobody has seen: %v", err)
	}
	put(t, dir, "a.ts", hello)
	testkit.Must(t, s.Pin("a", seen))
	testkit.Must(t, s.Pin("b.py", sumOf(t, s, "b.py")))
	if !s.Pinned("a") || !s.Pinned("b.py") || s.Pinned("c") || s.Pinned("../a") {
		t.Error("not these are pinned")
	}
	if _, err := s.Patch(t.Context(), "a", "<<<<<<< SEARCH\nhello\n=======\nworld\n>>>>>>> REPLACE"); !errors.Is(err, skill.ErrPinned) {
		t.Errorf("a patch: %v", err)
	}
	if err := s.Delete("a"); !errors.Is(err, skill.ErrPinned) {
		t.Errorf("a deletion: %v", err)
	}
	if _, err := s.Restore("a", "x"); !errors.Is(err, skill.ErrPinned) {
		t.Errorf("a restoration: %v", err)
	}
	later, err := skill.Open(dir, false)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = later.Close() })
	later.PinIn(pins)
	path := filepath.Join(dir, "a.ts")
	for name, change := range map[string]func() error{
		"written":   func() error { return os.WriteFile(path, []byte("evil"), 0o600) },
		"deleted":   func() error { return os.Remove(path) },
		"a link":    func() error { return errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)) },
		"two names": func() error { return os.Link(path, filepath.Join(dir, "d.ts")) },
		"a folder":  func() error { return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)) },
		"too large": func() error { return os.WriteFile(path, make([]byte, skill.MaxSize+1), 0o600) },
	} {
		testkit.Must(t, change())
		back, err := later.PutBack(func(string) {})
		if _, source, rerr := later.Read("a"); err != nil || rerr != nil || source != hello || !slices.Equal(back, []string{"a"}) {
			t.Errorf("%s: put back %v, %v; now %q, %v", name, back, err, source, rerr)
		}
		_ = os.Remove(filepath.Join(dir, "d.ts"))
	}
	put(t, dir, "c.ts", "changed")
	if back, err := s.PutBack(func(string) {}); len(back) != 0 || err != nil {
		t.Errorf("nothing pinned was changed: %v, %v", back, err)
	}
	testkit.Must(t, s.Unpin("a"))
	put(t, dir, "a.ts", "changed")
	if back, _ := s.PutBack(func(string) {}); len(back) != 0 {
		t.Error("an unpinned skill was put back")
	}
	if err := s.Unpin("a"); !errors.Is(err, skill.ErrNotFound) {
		t.Errorf("unpinned twice: %v", err)
	}
}

// TestOneNamePerModule: Python imports a skill with _ for -. So no other skill takes the name of one that is there, and
// nothing that code puts beside a pinned one is imported in its place.
// Promise: pinned-skills
func TestOneNamePerModule(t *testing.T) {
	s, dir := open(t, map[string]string{"open-report.py": "x = 1\n", "a_b.py": "x = 1\n", "a-b_c.py": "x = 1\n", "own.ts": hello})
	s.PinIn(filepath.Join(t.TempDir(), "pins"))
	const create = "<<<<<<< SEARCH\n=======\nx = 2\n>>>>>>> REPLACE"
	for name, want := range map[string]error{"open_report.py": skill.ErrTaken, "a-b.py": skill.ErrTaken, "a_b_c.py": nil, "open_report": nil, "ow-n": nil} {
		if _, err := s.Patch(t.Context(), name, create); !errors.Is(err, want) {
			t.Errorf("a patch of %s: %v, want %v", name, err, want)
		}
	}
	if _, err := s.Restore("open_report.py", "x = 2\n"); !errors.Is(err, skill.ErrTaken) {
		t.Errorf("a restoration: %v", err)
	}
	put(t, dir, "open_report.py", "x = 3\n")
	if err := s.Pin("open-report.py", sumOf(t, s, "open-report.py")); !errors.Is(err, skill.ErrTaken) {
		t.Errorf("pinned although something else is imported: %v", err)
	}
	path := filepath.Join(dir, "open_report.py")
	testkit.Must(t, os.Remove(path))
	testkit.Must(t, s.Pin("open-report.py", sumOf(t, s, "open-report.py")))
	if !s.Pinned("open_report.py") || s.Pinned("open_report") {
		t.Error("the other name of a pinned skill is not pinned, or that of another language is")
	}
	if _, err := s.Patch(t.Context(), "open_report.py", create); !errors.Is(err, skill.ErrPinned) {
		t.Errorf("a patch beside a pinned skill: %v", err)
	}
	if err := s.Unpin("open_report.py"); !errors.Is(err, skill.ErrNotFound) {
		t.Errorf("unpinned by its other name: %v", err)
	}
	for name, change := range map[string]func() error{
		"a file":   func() error { return os.WriteFile(path, []byte("evil = 1\n"), 0o600) },
		"a link":   func() error { return os.Symlink("/etc/passwd", path) },
		"a folder": func() error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
	} {
		testkit.Must(t, change())
		var told []string
		back, err := s.PutBack(func(name string) { told = append(told, name) })
		_, rerr := os.Lstat(path)
		if err != nil || !errors.Is(rerr, os.ErrNotExist) || !slices.Equal(back, []string{"open-report.py"}) || !slices.Equal(told, []string{"open_report.py"}) {
			t.Errorf("%s: put back %v, told %v, %v; now %v", name, back, told, err, rerr)
		}
	}
	if back, err := s.PutBack(func(string) {}); len(back) != 0 || err != nil {
		t.Errorf("nothing was changed: %v, %v", back, err)
	}
}

// TestRestore: a skill is what it was, whether it is there, is gone, or is not a skill any more.
func TestRestore(t *testing.T) {
	s, dir := open(t, map[string]string{"a.ts": "now"})
	testkit.Must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link.ts")))
	for _, name := range []string{"a", "gone", "link"} {
		_, err := s.Restore(name, hello)
		if _, source, rerr := s.Read(name); err != nil || rerr != nil || source != hello {
			t.Errorf("%s: %v, %v, %q", name, err, rerr, source)
		}
	}
	if _, err := s.Restore("../a", hello); !errors.Is(err, skill.ErrName) {
		t.Errorf("a name that is none: %v", err)
	}
	r, err := skill.Open(dir, true)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	if _, err := r.Restore("a", "x"); !errors.Is(err, skill.ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
}
