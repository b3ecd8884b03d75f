package skill_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
	"github.com/codeforge-mcp/codeforge/skills"
)

// create is a patch that creates a skill.
func create(source string) string { return "<<<<<<< SEARCH\n=======\n" + source + "\n>>>>>>> REPLACE" }

// replace is a patch that replaces a line.
func replaceLine(old, line string) string {
	return "<<<<<<< SEARCH\n" + old + "\n=======\n" + line + "\n>>>>>>> REPLACE"
}

// inDatabase is a real Postgres with a folder of skills.
func inDatabase(t *testing.T) (*testkit.Postgres, database.Documents) {
	t.Helper()
	p := testkit.NewPostgres(t)
	db, err := database.OpenPostgres(secret.New(p.URL()))
	testkit.Must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	testkit.Must(t, db.Migrate(t.Context(), database.Migrations))
	return p, database.Documents{DB: db, Folder: "skills"}
}

// mirror opens a store of a folder that follows it.
func mirror(t *testing.T, of database.Documents) (*skill.Store, *testkit.Buffer) {
	t.Helper()
	log := &testkit.Buffer{}
	s, err := skill.OpenMirror(t.Context(), t.TempDir(), of, false, logline.New(log, "text", nil))
	testkit.Must(t, err)
	testkit.Must(t, s.PinInDatabase(t.Context(), t.TempDir(), "pins"))
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { s.Follow(ctx) })
	t.Cleanup(func() { stop(); following.Wait(); _ = s.Close() })
	return s, log
}

func source(s *skill.Store, name string) string {
	_, text, err := s.ReadSkill(name)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(text, "\n")
}

// TestManyDocuments: a list is bounded in number and in the length of names, even if others write to the table.
// Promise: shared-skills
func TestManyDocuments(t *testing.T) {
	t.Parallel()
	p, b := inDatabase(t)
	p.Query("INSERT INTO document (folder, name, data) SELECT 'skills', 'n' || n || '.ts', '' FROM generate_series(1, 20000) AS n")
	p.Query("INSERT INTO document (folder, name, data) VALUES ('skills', repeat('a', 100000), '')")
	list, err := b.List(t.Context())
	if err != nil || len(list) != 10_000 || list[0].Name != "n1.ts" {
		t.Errorf("%d documents, %v", len(list), err)
	}
}

// TestMirror: what one store saves, changes, pins and deletes reaches another at once, and one that starts later.
func TestMirror(t *testing.T) {
	t.Parallel()
	_, b := inDatabase(t)
	one, _ := mirror(t, b)
	two, _ := mirror(t, b)
	_, err := one.PatchSkill(t.Context(), "a", create("export const a = 1;"))
	testkit.Must(t, err)
	if got := source(one, "a"); got != "export const a = 1;" {
		t.Errorf("its own: %q", got)
	}
	testkit.WaitFor(t, func() bool { return source(two, "a") == "export const a = 1;" })
	began := time.Now()
	const rounds = 5
	for n := range rounds {
		name := fmt.Sprint("b", n)
		_, err := one.PatchSkill(t.Context(), name, create("x"))
		testkit.Must(t, err)
		testkit.WaitFor(t, func() bool { return source(two, name) == "x" })
		testkit.Must(t, one.DeleteSkill(name))
	}
	// Without a notification each change waits for the next poll, two seconds after the last.
	if took := time.Since(began); took > rounds*time.Second {
		t.Errorf("%d changes took %s", rounds, took)
	}
	_, err = two.PatchSkill(t.Context(), "a", replaceLine("export const a = 1;", "export const a = 2;"))
	testkit.Must(t, err)
	testkit.WaitFor(t, func() bool { return strings.Contains(source(one, "a"), "a = 2;") })
	if three, _ := mirror(t, b); !strings.Contains(source(three, "a"), "a = 2;") {
		t.Error("one that starts later has another one")
	}
	testkit.Must(t, one.PinSource("a", sumOf(t, one, "a")))
	testkit.WaitFor(t, func() bool { return two.IsPinned("a") })
	if err := two.DeleteSkill("a"); !errors.Is(err, skill.ErrPinned) {
		t.Error(err)
	}
	testkit.Must(t, two.Unpin("a"))
	testkit.WaitFor(t, func() bool { return !one.IsPinned("a") })
	testkit.Must(t, one.DeleteSkill("a"))
	testkit.WaitFor(t, func() bool { return len(two.SkillNames()) == 0 })
}

// TestMirrorConflict: of two changes to the same version one succeeds; the other is refused and sees the new version.
func TestMirrorConflict(t *testing.T) {
	t.Parallel()
	_, b := inDatabase(t)
	one, _ := mirror(t, b)
	_, err := one.PatchSkill(t.Context(), "a", create("x"))
	testkit.Must(t, err)
	// This one does not follow: it learns of a change when it is refused.
	two, err := skill.OpenMirror(t.Context(), t.TempDir(), b, false, logline.New(t.Output(), "text", nil))
	testkit.Must(t, err)
	for _, c := range []struct {
		name        string
		first, then func() error
	}{
		{"two changes", func() error { _, err := one.PatchSkill(t.Context(), "a", replaceLine("x", "by one")); return err }, func() error { _, err := two.PatchSkill(t.Context(), "a", replaceLine("x", "by two")); return err }},
		{"two new ones", func() error { _, err := one.PatchSkill(t.Context(), "b", create("by one")); return err }, func() error { _, err := two.PatchSkill(t.Context(), "b", create("by two")); return err }},
		{"a deletion of what was changed", func() error {
			_, err := one.PatchSkill(t.Context(), "b", replaceLine("by one", "by one again"))
			return err
		}, func() error { return two.DeleteSkill("b") }},
		{"a change of what was deleted", func() error { return one.DeleteSkill("a") }, func() error { _, err := two.PatchSkill(t.Context(), "a", replaceLine("by one", "by two")); return err }},
	} {
		testkit.Must(t, c.first())
		if err := c.then(); !errors.Is(err, skill.ErrChanged) {
			t.Errorf("%s: %v", c.name, err)
		}
		if a, b := source(one, "a")+source(one, "b"), source(two, "a")+source(two, "b"); a != b {
			t.Errorf("%s: %q and %q", c.name, a, b)
		}
	}
	// A restoration replaces any version.
	_, err = one.PatchSkill(t.Context(), "b", replaceLine("by one again", "once more"))
	testkit.Must(t, err)
	_, err = two.WriteSkill("b", "restored")
	testkit.Must(t, err)
	testkit.WaitFor(t, func() bool { return source(one, "b") == "restored" })
}

// TestMirrorRace: stores that count in one skill at the same time lose no count.
// Promise: shared-skills
func TestMirrorRace(t *testing.T) {
	t.Parallel()
	_, b := inDatabase(t)
	first, _ := mirror(t, b)
	_, err := first.PatchSkill(t.Context(), "a", create("begin"))
	testkit.Must(t, err)
	const writers, each = 6, 10 // two on each store
	var group sync.WaitGroup
	var s *skill.Store
	for i := range writers {
		if i%2 == 0 {
			s, _ = mirror(t, b)
		}
		s := s
		group.Go(func() {
			for n := range each {
				line := fmt.Sprintf("%d by %d", n, i)
				for {
					_, err := s.PatchSkill(t.Context(), "a", replaceLine("begin", "begin\n"+line))
					if errors.Is(err, skill.ErrChanged) {
						continue
					}
					if err != nil {
						t.Error(err)
					}
					break
				}
			}
		})
	}
	group.Wait()
	last, _ := mirror(t, b)
	if got := strings.Count(source(last, "a"), " by "); got != writers*each {
		t.Errorf("%d of %d changes are left", got, writers*each)
	}
}

// TestMirrorAway: while the database does not answer, the copy is read and reported as old, changes fail, and nothing
// waits; once it answers, everything works again without a restart.
func TestMirrorAway(t *testing.T) {
	t.Parallel()
	server, b := inDatabase(t)
	one, log := mirror(t, b)
	_, err := one.PatchSkill(t.Context(), "a", create("x"))
	testkit.Must(t, err)
	server.Stop()
	if _, err := one.PatchSkill(t.Context(), "a", replaceLine("x", "y")); !errors.Is(err, skill.ErrUnavailable) {
		t.Error(err)
	}
	if err := one.DeleteSkill("a"); !errors.Is(err, skill.ErrUnavailable) {
		t.Error(err)
	}
	testkit.WaitFor(t, func() bool { return strings.Contains(one.DatabaseProblem(), "has not been read since") })
	if got := source(one, "a"); got != "x" || len(one.SkillNames()) != 1 {
		t.Errorf("what was known: %q", got)
	}
	fresh, _ := mirror(t, b)
	if fresh.DatabaseProblem() == "" {
		t.Error("one that starts meanwhile says nothing")
	}
	server.Start()
	testkit.WaitFor(t, func() bool {
		return one.DatabaseProblem() == "" && fresh.DatabaseProblem() == "" && source(fresh, "a") == "x"
	})
	_, err = one.PatchSkill(t.Context(), "a", replaceLine("x", "y"))
	testkit.Must(t, err)
	for _, want := range []string{"cannot be read; the copy stays in use", "can be read again"} {
		// Once for the skills and once for the pins. Each is logged after DatabaseProblem has changed.
		testkit.WaitFor(t, func() bool { return strings.Count(log.String(), want) == 2 })
	}
}

// TestMirrorHangs: a database that does not answer delays no reader, and a change only for a bounded time.
func TestMirrorHangs(t *testing.T) {
	t.Parallel()
	_, b := inDatabase(t)
	s, _ := mirror(t, b)
	_, err := s.PatchSkill(t.Context(), "a", create("x"))
	testkit.Must(t, err)
	tx, err := b.DB.BeginTx(t.Context(), nil)
	testkit.Must(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.Exec(`LOCK TABLE document IN ACCESS EXCLUSIVE MODE`)
	testkit.Must(t, err)
	changed := make(chan error, 1)
	go func() {
		_, err := s.PatchSkill(t.Context(), "a", replaceLine("x", "y"))
		changed <- err
	}()
	reads := 0
	for end, done := time.Now().Add(20*time.Second), false; !done; time.Sleep(50 * time.Millisecond) {
		if got := source(s, "a"); got != "x" || len(s.SkillNames()) != 1 || s.IsPinned("a") {
			t.Fatalf("%q", got)
		}
		if l, err := s.ListSkills(); err != nil || len(l.Skills) != 1 || len(s.ReadImported("a", 1000)) != 1 {
			t.Fatal(l, err)
		}
		select {
		case err := <-changed:
			done = true
			if reads < 10 { // a reader that waits for the change reads once
				t.Errorf("%d reads while a change waited", reads)
			}
			if !errors.Is(err, skill.ErrUnavailable) {
				t.Error(err)
			}
		default:
			if reads++; time.Now().After(end) {
				t.Fatal("a change hangs")
			}
		}
	}
}

// TestMirrorHostile: hostile documents are bounded and counted like hostile files, and keep no skill out.
// Promise: shared-skills
func TestMirrorHostile(t *testing.T) {
	t.Parallel()
	_, of := inDatabase(t)
	put := func(name string, size int) {
		_, err := of.Write(t.Context(), name, bytes.Repeat([]byte("x"), size), database.Any)
		testkit.Must(t, err)
	}
	for _, name := range []string{
		"good.ts", "good_2.py", "README.md", "-x.ts", "a b.ts", "ü.ts", "..ts", "folder/x.ts", strings.Repeat("x", 65) + ".ts", "../../x.ts",
		"line\nfeed.ts", ".hidden.ts", "<b>&.ts",
	} {
		put(name, 10)
	}
	put("large.ts", 10<<20)
	s, log := mirror(t, of)
	if names := strings.Join(s.SkillNames(), " "); names != "good good_2.py" {
		t.Errorf("skills: %s\n%s", names, log)
	}
	l, err := s.ListSkills()
	if want := map[string]int{"too large": 1, "not a skill name": 8}; err != nil || !maps.Equal(l.Skipped, want) {
		t.Errorf("%v %v", l.Skipped, err)
	}
	for i := range 300 {
		put(fmt.Sprintf("many-%d.ts", i), 1)
	}
	many, _ := mirror(t, of)
	if l, err = many.ListSkills(); err != nil || len(l.Skills) != skill.MaxCount || l.Skipped["too many skills"] != 102 {
		t.Errorf("%d %v %v", len(l.Skills), l.Skipped, err)
	}
}

// TestMirrorSeed: the shipped skills are seeded into a database once, by whichever store is first.
func TestMirrorSeed(t *testing.T) {
	t.Parallel()
	_, b := inDatabase(t)
	one, _ := mirror(t, b)
	n, err := one.SeedSkills(skills.Files)
	testkit.Must(t, err)
	if n == 0 || len(one.SkillNames()) != n {
		t.Errorf("%d of %v", n, one.SkillNames())
	}
	testkit.Must(t, one.DeleteSkill(one.SkillNames()[0]))
	two, _ := mirror(t, b)
	if more, err := two.SeedSkills(skills.Files); err != nil || more != 0 || len(two.SkillNames()) != n-1 {
		t.Errorf("%d %v %v", more, err, two.SkillNames())
	}
}

// TestMirrorPinned: a pinned skill that others overwrote in the database is what it was, for runs too.
// Promise: pinned-skills
func TestMirrorPinned(t *testing.T) {
	t.Parallel()
	_, b := inDatabase(t)
	one, _ := mirror(t, b)
	two, _ := mirror(t, b)
	_, err := one.PatchSkill(t.Context(), "a", create("good"))
	testkit.Must(t, err)
	testkit.Must(t, one.PinSource("a", sumOf(t, one, "a")))
	testkit.WaitFor(t, func() bool { return two.IsPinned("a") && source(two, "a") == "good" })
	_, err = b.Write(t.Context(), "a.ts", []byte("evil"), database.Any)
	testkit.Must(t, err)
	_, err = b.Write(t.Context(), "z.ts", []byte("last"), database.Any)
	testkit.Must(t, err)
	for _, s := range []*skill.Store{one, two} {
		testkit.WaitFor(t, func() bool { return source(s, "z") == "last" })
		if got := s.ReadImported(`import "/skills/a.ts"`, sandboxapi.MaxSkills); source(s, "a") != "good" || got["a.ts"] != "good\n" {
			t.Errorf("%q, runs import %q", source(s, "a"), got)
		}
	}
	testkit.Must(t, two.Unpin("a"))
	text, _, err := b.Read(t.Context(), "a.ts")
	if err != nil || string(text) != "good\n" {
		t.Errorf("%q %v", text, err)
	}
}
