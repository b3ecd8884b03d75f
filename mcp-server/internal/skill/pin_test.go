package skill_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// sumOf is what a skill is now, for PinSource.
func sumOf(t *testing.T, s *skill.Store, name string) string {
	t.Helper()
	_, source, err := s.ReadSkill(name)
	testkit.Must(t, err)
	return skill.SourceSum(source)
}

// TestPin: tools refuse to change a pinned skill, and it stays what it is whatever code makes of its file, also in a
// store that is opened later. An unpinned skill changes again.
// Promise: console-decides-what-was-shown, pinned-skills
func TestPin(t *testing.T) {
	s, dir := open(t, map[string]string{"a.ts": hello, "b.py": "x = 1\n", "c.ts": hello})
	pins := filepath.Join(t.TempDir(), "pins")
	if s.PinSource("a", sumOf(t, s, "a")) == nil {
		t.Error("it was pinned nowhere")
	}
	testkit.Must(t, s.PinIn(pins))
	seen := sumOf(t, s, "a")
	put(t, dir, "a.ts", "evil")
	if err := s.PinSource("a", seen); !errors.Is(err, skill.ErrChanged) || s.IsPinned("a") {
		t.Errorf("pinned to what nobody has seen: %v", err)
	}
	put(t, dir, "a.ts", hello)
	testkit.Must(t, s.PinSource("a", seen))
	testkit.Must(t, s.PinSource("b.py", sumOf(t, s, "b.py")))
	if !s.IsPinned("a") || !s.IsPinned("b.py") || s.IsPinned("c") || s.IsPinned("../a") {
		t.Error("not these are pinned")
	}
	if _, err := s.PatchSkill(t.Context(), "a", "<<<<<<< SEARCH\nhello\n=======\nworld\n>>>>>>> REPLACE"); !errors.Is(err, skill.ErrPinned) {
		t.Errorf("a patch: %v", err)
	}
	if err := s.DeleteSkill("a"); !errors.Is(err, skill.ErrPinned) {
		t.Errorf("a deletion: %v", err)
	}
	if _, err := s.WriteSkill("a", "x"); !errors.Is(err, skill.ErrPinned) {
		t.Errorf("a restoration: %v", err)
	}
	later, err := skill.OpenStore(dir, false)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = later.Close() })
	testkit.Must(t, later.PinIn(pins))
	path := filepath.Join(dir, "a.ts")
	for name, change := range map[string]func() error{
		"written":   func() error { return os.WriteFile(path, []byte("evil"), 0o600) },
		"deleted":   func() error { return os.Remove(path) },
		"a link":    func() error { return errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)) },
		"two names": func() error { return os.Link(path, filepath.Join(dir, "d.ts")) },
		"a folder":  func() error { return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)) },
		"too large": func() error { return os.WriteFile(path, make([]byte, skill.MaxSize+1), 0o600) },
	} {
		testkit.Must(t, os.RemoveAll(path))
		put(t, dir, "a.ts", hello)
		testkit.Must(t, change())
		for _, s := range []*skill.Store{s, later} {
			_, source, err := s.ReadSkill("a")
			files, perr := s.ReadPinned(false)
			if err != nil || perr != nil || source != hello || len(files) != 1 || files["a.ts"] != hello || !slices.Contains(s.SkillNames(), "a") {
				t.Errorf("%s: read %q, %v; runs import %q, %v", name, source, err, files, perr)
			}
		}
		_ = os.Remove(filepath.Join(dir, "d.ts"))
	}
	if files, err := later.ReadPinned(true); err != nil || len(files) != 1 || files["b.py"] != "x = 1\n" {
		t.Errorf("runs of Python import %q, %v", files, err)
	}
	testkit.Must(t, os.RemoveAll(path))
	put(t, dir, "a.ts", "evil")
	testkit.Must(t, s.Unpin("a"))
	if _, source, err := s.ReadSkill("a"); err != nil || source != hello || s.IsPinned("a") {
		t.Errorf("unpinned, it is %q, %v", source, err)
	}
	put(t, dir, "a.ts", "changed")
	if _, source, err := s.ReadSkill("a"); err != nil || source != "changed" {
		t.Errorf("changed after that, it is %q, %v", source, err)
	}
	if err := s.Unpin("a"); !errors.Is(err, skill.ErrNotFound) {
		t.Errorf("unpinned twice: %v", err)
	}
}

// TestPinUnreadable: a file that only its writer can read, renamed over a pinned skill, changes neither imports nor what
// the skill is when it is unpinned.
// Promise: pinned-skills
func TestPinUnreadable(t *testing.T) {
	s, dir := open(t, map[string]string{"a.ts": hello})
	testkit.Must(t, s.PinIn(filepath.Join(t.TempDir(), "pins")))
	testkit.Must(t, s.PinSource("a", sumOf(t, s, "a")))
	plant := filepath.Join(dir, "x")
	testkit.Must(t, os.WriteFile(plant, []byte("evil"), 0))
	testkit.Must(t, os.Rename(plant, filepath.Join(dir, "a.ts")))
	if _, source, err := s.ReadSkill("a"); err != nil || source != hello {
		t.Errorf("it is %q, %v", source, err)
	}
	testkit.Must(t, s.Unpin("a"))
	if _, source, err := s.ReadSkill("a"); err != nil || source != hello {
		t.Errorf("unpinned, it is %q, %v", source, err)
	}
}

// TestPinRoom: a run can take all pinned skills of a language.
func TestPinRoom(t *testing.T) {
	large := map[string]string{}
	for i := range sandboxapi.MaxSkills/skill.MaxSize + 1 {
		large[fmt.Sprintf("s%d.ts", i)] = strings.Repeat("x", skill.MaxSize)
	}
	large["p.py"] = "x = 1\n"
	s, _ := open(t, large)
	testkit.Must(t, s.PinIn(filepath.Join(t.TempDir(), "pins")))
	refused := 0
	for file := range large {
		name := strings.TrimSuffix(file, ".ts")
		switch err := s.PinSource(name, sumOf(t, s, name)); {
		case errors.Is(err, skill.ErrManyPins) && name != "p.py":
			refused++
		case err != nil:
			t.Errorf("%s: %v", name, err)
		}
	}
	if files, err := s.ReadPinned(false); err != nil || refused != 2 || (sandboxapi.RunRequest{Skills: files}).SkillsSize() > sandboxapi.MaxSkills {
		t.Errorf("%d were refused, %d are pinned, %v", refused, len(files), err)
	}
}

// TestPinnedChange: a change of a pinned skill's file is no change of a skill. It is reported apart.
func TestPinnedChange(t *testing.T) {
	s, dir := open(t, map[string]string{"a.ts": hello, "b-c.py": "x = 1\n"})
	testkit.Must(t, s.PinIn(filepath.Join(t.TempDir(), "pins")))
	testkit.Must(t, s.PinSource("a", sumOf(t, s, "a")))
	testkit.Must(t, s.PinSource("b-c.py", sumOf(t, s, "b-c.py")))
	before := s.TakeSnapshot()
	put(t, dir, "a.ts", "evil")
	put(t, dir, "b_c.py", "evil")
	after := s.TakeSnapshot()
	if got := fmt.Sprint(after.ChangesSince(before), after.HiddenSince(before), after.Names()); got != "[] [{a changed} {b_c.py new}] [a b-c.py]" {
		t.Error(got)
	}
}

// TestOneNamePerModule: Python imports a skill with _ for -. So no other skill takes the name of one that is there, and
// what code puts beside a pinned one is no skill.
// Promise: pinned-skills
func TestOneNamePerModule(t *testing.T) {
	s, dir := open(t, map[string]string{"open-report.py": "x = 1\n", "a_b.py": "x = 1\n", "a-b_c.py": "x = 1\n", "own.ts": hello})
	testkit.Must(t, s.PinIn(filepath.Join(t.TempDir(), "pins")))
	const create = "<<<<<<< SEARCH\n=======\nx = 2\n>>>>>>> REPLACE"
	for name, want := range map[string]error{"open_report.py": skill.ErrTaken, "a-b.py": skill.ErrTaken, "a_b_c.py": nil, "open_report": nil, "ow-n": nil} {
		if _, err := s.PatchSkill(t.Context(), name, create); !errors.Is(err, want) {
			t.Errorf("a patch of %s: %v, want %v", name, err, want)
		}
	}
	if _, err := s.WriteSkill("open_report.py", "x = 2\n"); !errors.Is(err, skill.ErrTaken) {
		t.Errorf("a restoration: %v", err)
	}
	put(t, dir, "open_report.py", "x = 3\n")
	if err := s.PinSource("open-report.py", sumOf(t, s, "open-report.py")); !errors.Is(err, skill.ErrTaken) {
		t.Errorf("pinned although something else is imported: %v", err)
	}
	path := filepath.Join(dir, "open_report.py")
	testkit.Must(t, os.Remove(path))
	testkit.Must(t, s.PinSource("open-report.py", sumOf(t, s, "open-report.py")))
	if !s.IsPinned("open_report.py") || s.IsPinned("open_report") {
		t.Error("the other name of a pinned skill is not pinned, or that of another language is")
	}
	if _, err := s.PatchSkill(t.Context(), "open_report.py", create); !errors.Is(err, skill.ErrPinned) {
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
		testkit.Must(t, os.RemoveAll(path))
		testkit.Must(t, change())
		if names := s.SkillNames(); slices.Contains(names, "open_report.py") || !slices.Contains(names, "open-report.py") {
			t.Errorf("%s: listed are %v", name, names)
		}
		if files, err := s.ReadPinned(true); err != nil || len(files) != 1 || files["open-report.py"] != "x = 1\n" {
			t.Errorf("%s: runs import %q, %v", name, files, err)
		}
		testkit.Must(t, s.Unpin("open-report.py"))
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: unpinned beside another skill of its name: %v", name, err)
		}
		testkit.Must(t, s.PinSource("open-report.py", sumOf(t, s, "open-report.py")))
	}
}

// TestRestore: a skill is what it was, whether it is there, is gone, or is not a skill any more.
func TestRestore(t *testing.T) {
	s, dir := open(t, map[string]string{"a.ts": "now"})
	testkit.Must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link.ts")))
	for _, name := range []string{"a", "gone", "link"} {
		_, err := s.WriteSkill(name, hello)
		if _, source, rerr := s.ReadSkill(name); err != nil || rerr != nil || source != hello {
			t.Errorf("%s: %v, %v, %q", name, err, rerr, source)
		}
	}
	if _, err := s.WriteSkill("../a", hello); !errors.Is(err, skill.ErrName) {
		t.Errorf("a name that is none: %v", err)
	}
	r, err := skill.OpenStore(dir, true)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	if _, err := r.WriteSkill("a", "x"); !errors.Is(err, skill.ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
}

// TestPinnedForTenants: a tenant's imports get the pinned source of a shared skill. No tool makes a private skill with its name, or
// with the other name by which Python imports it, and one from before the pin has no effect.
// Promise: pinned-skills
func TestPinnedForTenants(t *testing.T) {
	shared, _ := open(t, map[string]string{"report.ts": "pinned", "old.ts": "pinned too", "a-b.py": "pinned = 1", "free.ts": "shared"})
	testkit.Must(t, shared.PinIn(filepath.Join(t.TempDir(), "pins")))
	own, _ := open(t, map[string]string{"old.ts": "private", "a_b.py": "private = 1"})
	own.SetShared(shared, func(name string) bool { return name != "secret" })
	for name, source := range map[string]string{"report": "pinned", "old": "pinned too", "a-b.py": "pinned = 1"} {
		testkit.Must(t, shared.PinSource(name, skill.SourceSum(source)))
	}
	patch := func(old string) string { return "<<<<<<< SEARCH\n" + old + "\n=======\nhostile\n>>>>>>> REPLACE\n" }
	for name, source := range map[string]string{"report": "pinned", "old": "pinned too", "a-b.py": "pinned = 1", "a_b.py": "private = 1"} {
		if _, err := own.PatchSkill(t.Context(), name, patch(source)); !errors.Is(err, skill.ErrPinned) {
			t.Errorf("%s: update: %v", name, err)
		}
		if _, err := own.WriteSkill(name, "hostile"); !errors.Is(err, skill.ErrPinned) {
			t.Errorf("%s: write: %v", name, err)
		}
	}
	for _, name := range []string{"report", "a-b.py"} { // not a file of the tenant
		if err := own.DeleteSkill(name); !errors.Is(err, skill.ErrPinned) {
			t.Errorf("%s: delete: %v", name, err)
		}
	}
	code := `import "/skills/report.ts"; import "/skills/old.ts"; import a_b`
	got := own.ReadImported(code, 1<<20)
	if want := map[string]string{"report.ts": "pinned", "old.ts": "pinned too", "a-b.py": "pinned = 1"}; !maps.Equal(got, want) {
		t.Errorf("imports: %q", got)
	}
	// A shared skill without a pin can still be hidden, and one that the tenant may not see hides nothing.
	if _, err := own.PatchSkill(t.Context(), "free", patch("shared")); err != nil {
		t.Error(err)
	}
	own.SetShared(shared, func(string) bool { return false })
	if _, source, err := own.ReadSkill("old"); err != nil || source != "private" || own.IsPinned("old") {
		t.Errorf("a pin that is not shared: %q, %v", source, err)
	}
	// The tenant can delete its hidden skills, and only these.
	own.SetShared(shared, func(string) bool { return true })
	for _, name := range []string{"old", "a_b.py"} {
		if err := own.DeleteSkill(name); err != nil {
			t.Errorf("%s: delete a hidden skill: %v", name, err)
		}
		if err := own.DeleteSkill(name); !errors.Is(err, skill.ErrPinned) {
			t.Errorf("%s: delete it again: %v", name, err)
		}
	}
	if _, source, err := own.ReadSkill("old"); err != nil || source != "pinned too" {
		t.Errorf("after the deletion: %q, %v", source, err)
	}
}

// TestUnreadablePin: a pinned source that cannot be read is an error. The file that code can change never takes its place.
// Promise: pinned-skills
func TestUnreadablePin(t *testing.T) {
	shared, dir := open(t, map[string]string{"report.ts": "pinned"})
	pins := filepath.Join(t.TempDir(), "pins")
	testkit.Must(t, shared.PinIn(pins))
	testkit.Must(t, shared.PinSource("report", skill.SourceSum("pinned")))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "report.ts"), []byte("hostile"), 0o600))
	own, _ := open(t, map[string]string{"report.ts": "private"})
	own.SetShared(shared, func(string) bool { return true })
	testkit.Must(t, os.Truncate(filepath.Join(pins, "report.ts"), skill.MaxSize+1))
	for of, store := range map[string]*skill.Store{"operator": shared, "tenant": own} {
		if _, source, err := store.ReadSkill("report"); err == nil {
			t.Errorf("%s: read %q", of, source)
		}
		if files := store.ReadImported(`import "/skills/report.ts"`, 1<<20); len(files) != 0 {
			t.Errorf("%s: imports %q", of, files)
		}
	}
}
