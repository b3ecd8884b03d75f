package database

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestMigrationAtOnce: processes that open a new file at the same time each find the current schema.
func TestMigrationAtOnce(t *testing.T) {
	list := []Migration{{SQLite: `CREATE TABLE a (x TEXT)`}, {SQLite: `CREATE TABLE b (x TEXT)`}}
	source := "file:" + filepath.Join(t.TempDir(), "x.db") + "?_txlock=immediate&_pragma=busy_timeout(5000)"
	dbs := make([]*DB, 6)
	for i := range dbs {
		inner, err := sql.Open("sqlite", source)
		testkit.Must(t, err)
		db := &DB{DB: inner}
		t.Cleanup(func() { _ = db.Close() })
		if have, err := db.schemaVersion(t.Context(), db, list); err != nil || have != 0 { // the version that each saw when it began
			t.Fatalf("%d, %v", have, err)
		}
		dbs[i] = db
	}
	for _, db := range dbs {
		if have, err := db.applyNext(t.Context(), list); err != nil || have == 0 {
			t.Errorf("%d, %v", have, err)
		}
	}
}
