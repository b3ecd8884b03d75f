package database_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
)

// TestOpenFile: a new file gives the space of removed rows back. A file that cannot be migrated is closed again.
func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		db, err := database.OpenFile(dir, database.Migrations)
		testkit.Must(t, err)
		mode := 0
		testkit.Must(t, db.QueryRowContext(t.Context(), "PRAGMA auto_vacuum").Scan(&mode))
		if mode != 2 || db.Close() != nil {
			t.Errorf("auto_vacuum is %d", mode)
		}
	}
	bad := t.TempDir()
	if _, err := database.OpenFile(bad, []database.Migration{{SQLite: "CREATE"}}); err == nil {
		t.Error("a migration with a mistake is made")
	}
	if _, err := database.OpenFile(dir, nil); err == nil {
		t.Error("a newer file is opened")
	}
	open, err := filepath.Glob("/proc/self/fd/*")
	testkit.Must(t, err)
	for _, fd := range open {
		if to, _ := os.Readlink(fd); strings.HasPrefix(to, bad) || strings.HasPrefix(to, dir) {
			t.Errorf("%s is still open", to)
		}
	}
}
