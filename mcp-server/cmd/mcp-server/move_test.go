package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// TestMoveState: runs and skills are the same after a move from files to Postgres, a backup of Postgres that is restored
// into another one, and a move back to files. A target with a skill that was deleted in the source is refused. A folder
// in Postgres that is no tenant's leads nowhere.
// Promise: shared-runs
func TestMoveState(t *testing.T) {
	source, dir := testkit.NewPostgres(t), t.TempDir()
	server := start(t, 1, nil, "--history", filepath.Join(dir, "history"), "--pins", filepath.Join(dir, "pins"))
	session := server.connect(t, nil)
	call(t, session, "execute_code", map[string]any{"code": "console.log('quaggaroot')"})
	testkit.Must(t, server.stop())
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "skills"), 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "skills", "mine.ts"), []byte("export const a = 1;"), 0o600))
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "pins"), 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "pins", ".alarms.json"), []byte(`[]`), 0o600))
	move := func(p *testkit.Postgres, dir, to string) (string, error) {
		var out, log strings.Builder
		err := moveState(t.Context(), []string{
			"--history", filepath.Join(dir, "history"), "--skills", filepath.Join(dir, "skills"), "--tenants", filepath.Join(dir, "tenants"),
			"--pins", filepath.Join(dir, "pins"), to,
		}, func(name string) string { return map[string]string{"DATABASE_URL": p.URL()}[name] }, &out, &log)
		return out.String(), err
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "skills", skill.SeedMarker), nil, 0o600))
	if said, err := move(source, dir, "postgres"); err != nil || said != "1 runs and 2 files were copied to postgres. The source is unchanged.\n" {
		t.Fatalf("%q %v", said, err)
	}
	// The marker moves too: otherwise a start would bring deleted skills back. It is no skill of the target.
	testkit.Must(t, os.Remove(filepath.Join(dir, "skills", skill.SeedMarker)))
	source.Query("INSERT INTO document (folder, name, data) VALUES ('skills', 'deleted.ts', '')")
	const back = `the target has skills that the source lacks: delete them there first: ["skills deleted.ts"]`
	if _, err := move(source, dir, "postgres"); err == nil || err.Error() != back {
		t.Errorf("a deleted skill would come back: %v", err)
	}
	source.Query("DELETE FROM document WHERE name = 'deleted.ts'")
	if _, err := move(source, dir, "postgres"); err == nil || !strings.Contains(err.Error(), "the target already has runs") {
		t.Errorf("a second time: %v", err)
	}
	dump := source.RunProgram(nil, "pg_dump", "-d", "postgres", "-n", "codeforge")
	restored := testkit.NewPostgres(t)
	restored.RunProgram(dump, "psql", "-d", "postgres", "-q", "-v", "ON_ERROR_STOP=1")
	again := t.TempDir()
	for _, name := range []string{"history", "skills", "pins"} {
		testkit.Must(t, os.Mkdir(filepath.Join(again, name), 0o700))
	}
	for _, folder := range []string{"../../out", ".", "", "a/b"} {
		restored.Query("INSERT INTO document (folder, name, data) VALUES ('tenants/%s', 'a.ts', '')", folder)
	}
	deleted := filepath.Join(again, "skills", "deleted.ts")
	testkit.Must(t, os.WriteFile(deleted, []byte("export const b = 2;"), 0o600))
	if _, err := move(restored, again, "sqlite"); err == nil || err.Error() != back {
		t.Errorf("a deleted skill would come back: %v", err)
	}
	testkit.Must(t, os.Remove(deleted))
	if said, err := move(restored, again, "sqlite"); err != nil || !strings.HasPrefix(said, "1 runs and 2 files") {
		t.Fatalf("%q %v", said, err)
	}
	if _, err := os.Stat(filepath.Join(again, "skills", skill.SeedMarker)); err != nil {
		t.Errorf("the marker of the seed: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(again, "skills", "mine.ts")); string(text) != "export const a = 1;" {
		t.Errorf("%q %v", text, err)
	}
	for _, outside := range []string{filepath.Join(again, "..", "out"), filepath.Join(again, "tenants")} {
		if _, err := os.Stat(outside); err == nil {
			t.Errorf("%s is written for a folder that is no tenant's", outside)
		}
	}
	server = start(t, 1, nil, "--history", filepath.Join(again, "history"))
	op := operatorapi.Client{HTTP: server.onSocket()}
	page, err := op.Runs(t.Context(), operatorapi.RunFilter{Grep: "quaggaroot"}, "")
	if err != nil || len(page.Runs) != 1 {
		t.Fatalf("%+v %v", page, err)
	}
	if d, err := op.Run(t.Context(), page.Runs[0].ID); err != nil || !strings.Contains(d.Code.Head, "quaggaroot") {
		t.Errorf("%+v %v", d, err)
	}
}
