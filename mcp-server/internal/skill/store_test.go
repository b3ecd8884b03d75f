package skill_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
	"unicode"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/patch"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/skills"
)

const hello = "/** @description Says hello */\nexport const hello = 1;\n"

// open opens a store with these files.
func open(t *testing.T, files map[string]string) (*skill.Store, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		put(t, dir, name, text)
	}
	s, err := skill.OpenStore(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, dir
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestList(t *testing.T) {
	s, _ := open(t, map[string]string{"b.ts": hello, "a_1.ts": "export {}", "README.md": "no skill", ".hidden.ts": "x", "notes.ts.bak": "x"})
	l, err := s.ListSkills()
	testkit.Must(t, err)
	if len(l.Skills) != 2 || l.Skills[0].Name != "a_1" || l.Skills[1].Name != "b" || l.Skills[1].Description != "Says hello" {
		t.Errorf("got %+v", l.Skills)
	}
	if len(l.Skipped) != 0 {
		t.Errorf("skipped %v", l.Skipped)
	}
}

// TestUnreadable: a directory that cannot be read is an error, and not an empty list.
func TestUnreadable(t *testing.T) {
	s, _ := open(t, map[string]string{"a.ts": hello})
	testkit.Must(t, s.Close())
	if l, err := s.ListSkills(); err == nil {
		t.Errorf("listed %v", l)
	}
	if names := s.SkillNames(); len(names) > 0 {
		t.Errorf("names: %v", names)
	}
	if _, text, err := s.ReadSkill("a"); err == nil {
		t.Errorf("read %v", text)
	}
}

// TestHostile: what hostile code can put into the directory is neither read nor listed, and reading it fails as not
// found.
// Promise: hostile-skills
func TestHostile(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret.ts")
	testkit.Must(t, os.WriteFile(outside, []byte("outside"), 0o600))
	s, dir := open(t, map[string]string{"good.ts": hello, "large.ts": strings.Repeat("x", skill.MaxSize+1), "bad name.ts": "x", "über.ts": "x", strings.Repeat("n", 65) + ".ts": "x"})
	testkit.Must(t, os.Symlink(outside, filepath.Join(dir, "link.ts")))
	testkit.Must(t, os.Symlink("good.ts", filepath.Join(dir, "inner.ts")))
	testkit.Must(t, os.Symlink("/etc", filepath.Join(dir, "etc.ts")))
	testkit.Must(t, os.Symlink("loop.ts", filepath.Join(dir, "loop.ts")))
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "folder.ts"), 0o700))
	testkit.Must(t, syscall.Mkfifo(filepath.Join(dir, "pipe.ts"), 0o600))
	put(t, dir, "hard1.ts", hello)
	testkit.Must(t, os.Link(filepath.Join(dir, "hard1.ts"), filepath.Join(dir, "hard2.ts")))

	l, err := s.ListSkills()
	testkit.Must(t, err)
	if len(l.Skills) != 1 || l.Skills[0].Name != "good" {
		t.Errorf("listed %+v", l.Skills)
	}
	want := map[string]int{"symbolic link": 4, "not a regular file": 2, "hard link": 2, "too large": 1, "not a skill name": 3}
	if fmt.Sprint(l.Skipped) != fmt.Sprint(want) {
		t.Errorf("skipped %v, want %v", l.Skipped, want)
	}
	for _, name := range []string{"link", "inner", "etc", "loop", "folder", "pipe", "hard1", "hard2", "large", "missing"} {
		if _, text, err := s.ReadSkill(name); !errors.Is(err, skill.ErrNotFound) {
			t.Errorf("read %s: %q, %v", name, text, err)
		}
		if _, err := s.PatchSkill(t.Context(), name, "<<<<<<< SEARCH\noutside\n=======\nx\n>>>>>>> REPLACE"); !errors.Is(err, skill.ErrNotFound) {
			t.Errorf("patched %s: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/etc/passwd", "a\x00b", "-a", "_a", "a b", "a.ts", "ä", strings.Repeat("a", 65)} {
		if _, _, err := s.ReadSkill(name); !errors.Is(err, skill.ErrName) {
			t.Errorf("read %q: %v", name, err)
		}
		if err := s.DeleteSkill(name); !errors.Is(err, skill.ErrName) {
			t.Errorf("deleted %q: %v", name, err)
		}
	}
	// A link itself may be deleted, never what it points to.
	testkit.Must(t, s.DeleteSkill("link"))
	if text, err := os.ReadFile(outside); err != nil || string(text) != "outside" {
		t.Errorf("the file outside: %q, %v", text, err)
	}
	if err := s.DeleteSkill("folder"); !errors.Is(err, skill.ErrNotFound) {
		t.Errorf("deleted a folder: %v", err)
	}
}

// Promise: hostile-skills
func TestTooMany(t *testing.T) {
	s, dir := open(t, nil)
	for i := range 2500 {
		put(t, dir, fmt.Sprintf("s%05d.ts", i), "")
	}
	start := time.Now()
	l, err := s.ListSkills()
	testkit.Must(t, err)
	if len(l.Skills) != skill.MaxCount || l.Skipped["too many files"] != 1 || l.Skipped["too many skills"] == 0 {
		t.Errorf("%d skills, skipped %v", len(l.Skills), l.Skipped)
	}
	t.Logf("2500 files in %v", time.Since(start))
}

// TestRoom: the skills that update_skill and the console make have a number and a size in all, also when many are made at
// once. What is beyond is refused with both, what makes room is not.
// Promise: tenant-shares
func TestRoom(t *testing.T) {
	edit := func(s *skill.Store, name, search, replace string) error {
		_, err := s.PatchSkill(t.Context(), name, "<<<<<<< SEARCH\n"+search+"=======\n"+replace+">>>>>>> REPLACE")
		return err
	}
	full := func(err error) bool {
		return errors.Is(err, skill.ErrFull) && strings.Contains(err.Error(), "200 skills") && strings.Contains(err.Error(), "16 MiB")
	}
	s, dir := open(t, nil)
	var refused atomic.Int32
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for n := range skill.MaxCount/4 + 10 {
				if err := edit(s, fmt.Sprintf("s%d-%d", w, n), "", "x\n"); full(err) {
					refused.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if entries, _ := os.ReadDir(dir); len(entries) != skill.MaxCount || refused.Load() != 40 {
		t.Errorf("%d skills, %d refused", len(entries), refused.Load())
	}
	if _, err := s.WriteSkill("other", "x"); !full(err) {
		t.Errorf("restored: %v", err)
	}
	if err := edit(s, "s0-0", "x\n", "xx\n"); err != nil {
		t.Errorf("a change of one that is there: %v", err)
	}
	testkit.Must(t, s.DeleteSkill("s0-0"))
	if err := edit(s, "other", "", "x\n"); err != nil {
		t.Errorf("with room: %v", err)
	}
	s, dir = open(t, nil)
	large, n := strings.Repeat("x", skill.MaxSize-2)+"\n", 0
	for ; n < skill.MaxCount; n++ {
		if err := edit(s, fmt.Sprint("s", n), "", "y"+large); err != nil {
			if !full(err) {
				t.Fatal(err)
			}
			break
		}
	}
	if n != skill.MaxTotal/skill.MaxSize {
		t.Errorf("%d of the largest skills", n)
	}
	put(t, dir, "code.ts", "a\n") // code is not bounded by this
	if err := edit(s, "code", "a\n", "aa\n"); !full(err) {
		t.Errorf("one that grows: %v", err)
	}
	if err := edit(s, "s0", "y"+large, "y\n"); err != nil {
		t.Errorf("one that shrinks: %v", err)
	}
}

func TestDescribe(t *testing.T) {
	for _, c := range []struct{ name, source, want string }{
		{"JSDoc", "/**\n * @description Adds two\n *   numbers.\n *\n * More.\n * @param a\n */\nexport {}", "Adds two numbers."},
		{"line comments", "// A file.\n// @description Adds.\n// @author x\n", "Adds."},
		{"behind a shebang and a licence", "#!/usr/bin/env deno\n// MIT\n\n/* @description Adds. */", "Adds."},
		{"byte order mark", "\uFEFF// @description Adds.", "Adds."},
		{"none", "export const description = '@description no';", ""},
		{"only in the leading comment", "export {}\n// @description no", ""},
		{"never ends", "/* @description Adds.", "Adds."},
		{"control and invisible characters", "// @description a\x00b\x1b[31mc\u200b\u202ed\ufeffe\u2028f\tg", "ab[31mcde f g"},
		{"cut", "// @description " + strings.Repeat("ä", 500), strings.Repeat("ä", 199) + "…"},
		{"empty", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := skill.DescribeSource(c.source); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestPatch(t *testing.T) {
	s, dir := open(t, map[string]string{"a.ts": "const a = 1;\nconst b = 2;\n"})
	k, err := s.PatchSkill(t.Context(), "a", "<<<<<<< SEARCH\nconst b = 2;\n=======\nconst b = 3;\n>>>>>>> REPLACE")
	testkit.Must(t, err)
	if _, text, _ := s.ReadSkill("a"); text != "const a = 1;\nconst b = 3;\n" || k.Size != int64(len(text)) {
		t.Errorf("got %q, %+v", text, k)
	}
	if info, _ := os.Stat(filepath.Join(dir, "a.ts")); info.Mode().Perm() != 0o664 {
		t.Errorf("mode %v", info.Mode())
	}
	var mistake *patch.Error
	_, err = s.PatchSkill(t.Context(), "a", "<<<<<<< SEARCH\nconst a = 1;\n=======\nx\n>>>>>>> REPLACE\n<<<<<<< SEARCH\nconst c = 2;\n=======\ny\n>>>>>>> REPLACE")
	if !errors.As(err, &mistake) || mistake.Block != 2 {
		t.Errorf("got %v", err)
	}
	if _, text, _ := s.ReadSkill("a"); text != "const a = 1;\nconst b = 3;\n" {
		t.Errorf("a failed patch changed the skill: %q", text)
	}
	if _, err := s.PatchSkill(t.Context(), "new", "<<<<<<< SEARCH\n=======\n// @description New\n>>>>>>> REPLACE"); err != nil {
		t.Errorf("a new skill: %v", err)
	}
	if _, err := s.PatchSkill(t.Context(), "a", "<<<<<<< SEARCH\nconst a = 1;\n=======\n"+strings.Repeat("x", skill.MaxSize)+"\n>>>>>>> REPLACE"); !errors.As(err, &mistake) {
		t.Errorf("a skill that grows too large: %v", err)
	}
	entries, err := os.ReadDir(dir)
	testkit.Must(t, err)
	if len(entries) != 2 {
		t.Errorf("unfinished writes are left: %v", entries)
	}
}

// TestPatchRace: while code rewrites a skill all the time, a patch applies to what it read or says that the skill
// changed; it never undoes or mixes.
func TestPatchRace(t *testing.T) {
	s, dir := open(t, map[string]string{"a.ts": "version 0\n"})
	var stop atomic.Bool
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; !stop.Load(); i++ {
			tmp := filepath.Join(dir, ".w")
			_ = os.WriteFile(tmp, fmt.Appendf(nil, "version 0\nround %d\n", i), 0o600)
			_ = os.Rename(tmp, filepath.Join(dir, "a.ts"))
		}
	})
	outcomes := map[string]int{}
	defer func() {
		stop.Store(true)
		writer.Wait()
		t.Log(outcomes)
	}()
	for range 300 {
		_, err := s.PatchSkill(t.Context(), "a", "<<<<<<< SEARCH\nversion 0\n=======\nversion 0\n>>>>>>> REPLACE")
		switch {
		case err == nil:
			outcomes["patched"]++
		case errors.Is(err, skill.ErrChanged):
			outcomes["changed"]++
		default:
			t.Fatal(err)
		}
		if _, text, err := s.ReadSkill("a"); err == nil && !strings.HasPrefix(text, "version 0\n") {
			t.Fatalf("mixed: %q", text)
		}
	}
}

// TestReadRace: while code puts one thing after another in a skill's place, a read gives the skill or fails; never what
// a symbolic link leads to, inside the directory or out of it, and never more than a skill may have.
// Promise: hostile-skills
func TestReadRace(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	testkit.Must(t, os.WriteFile(outside, []byte("outside"), 0o600))
	s, dir := open(t, map[string]string{"a.ts": "good", ".inner": "inside", ".linked": "good", ".large": strings.Repeat("l", skill.MaxSize+1)})
	var stop atomic.Bool
	var writer sync.WaitGroup
	writer.Go(func() {
		path := filepath.Join(dir, "a.ts")
		tmp := filepath.Join(dir, ".w")
		for i := 0; !stop.Load(); i++ {
			_ = os.Remove(tmp)
			switch i % 8 {
			case 1:
				_ = os.Symlink(outside, tmp)
			case 3:
				_ = os.Symlink(".inner", tmp)
			case 5:
				// While it is being replaced it has one name for an instant, and may be read. It is a file of this directory
				// all the same: the kernel makes no hard link into another mount.
				_ = os.Link(filepath.Join(dir, ".linked"), tmp)
			case 7:
				_ = os.WriteFile(tmp, []byte(strings.Repeat("l", skill.MaxSize+1)), 0o600)
			default:
				_ = os.WriteFile(tmp, []byte("good"), 0o600)
			}
			_ = os.Rename(tmp, path)
		}
	})
	defer func() {
		stop.Store(true)
		writer.Wait()
	}()
	good := 0
	for end := time.Now().Add(700 * time.Millisecond); time.Now().Before(end); {
		_, text, err := s.ReadSkill("a")
		switch {
		case err == nil && (text == "good" || text == ""): // a file that is being written is empty first
			good++
		case err == nil:
			t.Fatalf("read %.20q of %d bytes", text, len(text))
		}
	}
	if good == 0 {
		t.Error("the skill was never read")
	}
}

func TestReadOnly(t *testing.T) {
	_, dir := open(t, map[string]string{"a.ts": hello})
	s, err := skill.OpenStore(dir, true)
	testkit.Must(t, err)
	defer s.Close()
	if _, err := s.PatchSkill(t.Context(), "a", "<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE"); !errors.Is(err, skill.ErrReadOnly) {
		t.Errorf("patch: %v", err)
	}
	if err := s.DeleteSkill("a"); !errors.Is(err, skill.ErrReadOnly) {
		t.Errorf("delete: %v", err)
	}
	if _, text, err := s.ReadSkill("a"); err != nil || text != hello {
		t.Errorf("read: %q, %v", text, err)
	}
}

func TestSeed(t *testing.T) {
	s, dir := open(t, map[string]string{"b.ts": "mine"})
	shipped := fstest.MapFS{"a.ts": {Data: []byte("shipped a")}, "b.ts": {Data: []byte("shipped b")}, "skills.go": {Data: []byte("no")}}
	if n, err := s.SeedSkills(shipped); err != nil || n != 1 {
		t.Errorf("first: %d, %v", n, err)
	}
	if _, text, _ := s.ReadSkill("b"); text != "mine" {
		t.Errorf("the user's skill became %q", text)
	}
	testkit.Must(t, s.DeleteSkill("a"))
	put(t, dir, "b.ts", "mine 2")
	if n, err := s.SeedSkills(shipped); err != nil || n != 0 {
		t.Errorf("again: %d, %v", n, err)
	}
	if names := s.SkillNames(); !slices.Equal(names, []string{"b"}) {
		t.Errorf("a deleted skill came back: %v", names)
	}
}

// TestKilled: what a write that was killed has left goes at the next start. A new skill has the draft as its second name
// until then, and one with two names is none.
func TestKilled(t *testing.T) {
	s, dir := open(t, nil)
	_, err := s.SeedSkills(fstest.MapFS{})
	testkit.Must(t, err)
	put(t, dir, ".codeforge-vu5nnz6xdqnbzyx2cdyqjrmhmu", "mine")
	testkit.Must(t, os.Link(filepath.Join(dir, ".codeforge-vu5nnz6xdqnbzyx2cdyqjrmhmu"), filepath.Join(dir, "new.ts")))
	testkit.Must(t, os.Mkdir(filepath.Join(dir, ".codeforge-ab5nnz6xdqnbzyx2cdyqjrmhmu"), 0o700))
	put(t, dir, ".codeforge-ab5nnz6xdqnbzyx2cdyqjrmhmu/x", "of another user")
	again, err := skill.OpenStore(dir, false)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = again.Close() })
	if _, text, err := again.ReadSkill("new"); text != "mine" {
		t.Errorf("%q, %v", text, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".codeforge-*")); err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}
	if n, err := again.SeedSkills(fstest.MapFS{"a.ts": {Data: []byte("a")}}); n != 0 || err != nil {
		t.Errorf("seeded again: %d, %v", n, err)
	}
}

func TestShipped(t *testing.T) {
	s, _ := open(t, nil)
	if n, err := s.SeedSkills(skills.Files); err != nil || n != 3 {
		t.Fatalf("%d, %v", n, err)
	}
	l, err := s.ListSkills()
	testkit.Must(t, err)
	for _, k := range l.Skills {
		if len(k.Description) < 40 {
			t.Errorf("%s: description %q", k.Name, k.Description)
		}
	}
}

func TestSince(t *testing.T) {
	s, dir := open(t, map[string]string{"a.ts": "1", "b.ts": "1", "c.ts": "1"})
	before := s.TakeSnapshot()
	put(t, dir, "a.ts", "22")
	put(t, dir, "d.ts", "1")
	testkit.Must(t, os.Remove(filepath.Join(dir, "b.ts")))
	got := fmt.Sprint(s.TakeSnapshot().ChangesSince(before))
	if want := "[{a changed} {b deleted} {d new}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := s.TakeSnapshot().ChangesSince(s.TakeSnapshot()); len(got) != 0 {
		t.Errorf("nothing changed, got %v", got)
	}
}

func TestWatch(t *testing.T) {
	s, dir := open(t, map[string]string{"a.ts": "1"})
	shared, folder := open(t, nil)
	s.SetShared(shared, func(string) bool { return true })
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan struct{}, 100)
	var watch sync.WaitGroup
	watch.Go(func() { s.WatchChanges(ctx, logline.New(t.Output(), "text", nil), func() { changed <- struct{}{} }) })
	for i := 0; len(changed) == 0; i++ { // until it watches
		if i == 60 {
			t.Fatal("a new skill was not told")
		}
		put(t, dir, "b.ts", fmt.Sprint(i))
		time.Sleep(500 * time.Millisecond)
	}
	<-changed
	began := time.Now()
	for i := range 50 { // a burst is told once or twice, or again after a pause of 200 ms
		put(t, dir, "b.ts", fmt.Sprint("x", i))
	}
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatal("a change was not told")
	}
	time.Sleep(500 * time.Millisecond)
	if n, took := len(changed), time.Since(began); n > 1+int(took/(200*time.Millisecond)) {
		t.Errorf("a burst was told %d times in %s", n+1, took)
	}
	for len(changed) > 0 {
		<-changed
	}
	put(t, folder, "shared.ts", "1")
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Error("a new shared skill was not told")
	}
	cancel()
	watch.Wait()
}

// FuzzDescribe: whatever a module says, its description is one short line of printable text.
func FuzzDescribe(f *testing.F) {
	f.Add("/** @description a\n * b */")
	f.Add("// @description \x1b[2J\u202e")
	f.Fuzz(func(t *testing.T, source string) {
		d := skill.DescribeSource(strings.ToValidUTF8(source, "\uFFFD"))
		if n := len([]rune(d)); n > 200 {
			t.Fatalf("%d characters", n)
		}
		for _, r := range d {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q holds %U", d, r)
			}
		}
	})
}

// TestImported: a tenant's run gets the skills that its code names, also through others, and those that there is room
// for: one that is too large keeps none out.
func TestImported(t *testing.T) {
	s, _ := open(t, map[string]string{
		"a-large.ts": "/** @description x */\n//" + strings.Repeat("x", 2000), "b.ts": "/** @description x */\nimport \"/skills/c.ts\";",
		"c.ts": "/** @description x */", "unused.ts": "/** @description x */",
	})
	code := `import "/skills/a-large.ts"; import "/skills/b.ts";`
	for room, want := range map[int]string{1 << 20: "a-large.ts b.ts c.ts", 1000: "b.ts c.ts", 10: ""} {
		if got := strings.Join(slices.Sorted(maps.Keys(s.ReadImported(code, room))), " "); got != want {
			t.Errorf("room for %d: %s, want %s", room, got, want)
		}
	}
}
