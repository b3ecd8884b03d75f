package typed

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

const (
	// importTime bounds one import. The largest document is one of 20 MB, and takes a second.
	importTime = time.Minute
	// leastImported is how many of 100 documents are imported, by the advice of a refusal if need be.
	leastImported = 97
)

// wants is how the last line of a refusal ends: what was found, and what would be right.
var wants = regexp.MustCompile(`^codeforge: .{5,600}; want .{3,700}$`)

// TestDocuments: real documents of many makers are imported, or refused with a reason that says what to do, and the
// types of all of their operations compile strictly.
// Promise: documents-are-data
func TestDocuments(t *testing.T) {
	root, err := world.Root()
	testkit.Must(t, err)
	dir := t.TempDir()
	base := filepath.Join(documentsDir(root), "api")
	imported, advised, refused := 0, 0, map[string]int{}
	err = filepath.WalkDir(base, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".json" {
			return err
		}
		last, ok := tryImport(t, dir, fmt.Sprintf("api%d", imported), path)
		if !ok && strings.Contains(last, "--server") {
			advised++
			last, ok = tryImport(t, dir, fmt.Sprintf("api%d", imported), path, "--server", "https://advised.test")
		}
		if ok {
			imported++
			return nil
		}
		if !wants.MatchString(last) {
			t.Errorf("%s: %s", path, last)
		}
		_, want, _ := strings.Cut(last, "; ")
		refused[want]++
		return nil
	})
	if err != nil {
		testkit.SkipBecause(t, "the documents could not be fetched from npm")
	}
	total := imported
	for why, n := range refused {
		total += n
		t.Logf("%d refused: %s", n, why)
	}
	t.Logf("%d of %d documents are imported, %d of them with --server as the first refusal said", imported, total, advised)
	if total < 300 || imported*100 < leastImported*total {
		t.Errorf("%d of %d documents are imported; want %d of 100", imported, total, leastImported)
	}
	check := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout", "60m", "-run", "^TestDeclarations$", "-v", //nolint:gosec // the tree's own
		"./mcp-server/internal/apidoc", "-imported", filepath.Join(dir, "apis"))
	check.Dir = root
	out, err := check.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if at := strings.Index(string(out), "compile strictly"); at >= 0 {
		t.Log(string(out[strings.LastIndex(string(out[:at]), "\n")+1:at]) + "compile strictly")
	}
}

// tryImport imports a document and returns the last line that was printed.
func tryImport(t *testing.T, dir, name, path string, args ...string) (last string, ok bool) {
	t.Helper()
	program, err := world.Program("codeforge")
	testkit.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), importTime)
	defer cancel()
	args = append([]string{"api", "add", name, "--openapi", path, "--scheme", "none", "--apis", "apis"}, args...)
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // the product
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1], err == nil
}
