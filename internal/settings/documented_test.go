package settings_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestDocumentedCommands: a command of the docs that applies changed settings in Docker checks them first, because Compose
// stops what runs before it does; and a backup, which has keys, is outside the worktree, or ignored there.
func TestDocumentedCommands(t *testing.T) {
	root, err := testkit.FindRoot()
	testkit.Must(t, err)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		testkit.Must(t, err)
		return string(text)
	}
	row := regexp.MustCompile(`(?m)^\| apply a changed .\.env. .*$`).FindString(read("docs/start/docker.md"))
	if !strings.Contains(row, "docker compose run --rm settings && docker compose up -d") {
		t.Errorf("docs/start/docker.md, after changing .env: %q", row)
	}
	operations := read("docs/guides/backup-and-upgrade.md") + read("docs/guides/networks.md") + read("docs/guides/tenants.md")
	if strings.Contains(operations, "in Docker with `docker compose up -d`") {
		t.Error("a guide applies settings that are not checked")
	}
	_, backup, _ := strings.Cut(operations, "## Backup\n")
	backup, _, _ = strings.Cut(backup, "\n## ")
	for _, target := range regexp.MustCompile(`(?:-czf|export) (\S+)`).FindAllStringSubmatch(backup, -1) {
		if !strings.HasPrefix(target[1], "~/") && !strings.HasPrefix(target[1], "/out/") {
			t.Errorf("a backup in the worktree: %s", target[0])
		}
	}
	if strings.Contains(backup, "$PWD") || !strings.Contains(backup, "umask 077") {
		t.Errorf("%s", backup)
	}
	for _, pattern := range []string{"codeforge-backup*", "codeforge-*.tgz", "codeforge-skills*", "*.bak"} {
		if !strings.Contains(read(".gitignore"), "\n"+pattern+"\n") {
			t.Errorf(".gitignore has no %s", pattern)
		}
	}
}
