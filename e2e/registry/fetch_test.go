package registry

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestFetchOnce checks that a second checkout gets the files of the first without npm, and that npm fetches a package
// again if the cache lacks one of its files.
func TestFetchOnce(t *testing.T) {
	const pkg = "semver@7.7.2"
	bin := t.TempDir()
	calls := filepath.Join(bin, "calls")
	npm := "#!/bin/sh\necho \"$1\" >>" + calls + "\ncase $1 in\n" +
		`install) echo '{"packages":{"":{},"node_modules/semver":{"version":"7.7.2"}}}' >package-lock.json ;;` + "\n" +
		"pack) echo tarball >semver-7.7.2.tgz ;;\nesac\n"
	testkit.Must(t, os.WriteFile(filepath.Join(bin, "npm"), []byte(npm), 0o755)) //nolint:gosec // a program
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	cache, err := cacheDir()
	testkit.Must(t, err)
	fetch := func() {
		t.Helper()
		root := t.TempDir()
		testkit.Must(t, Fetch(root, pkg))
		if text, err := os.ReadFile(filepath.Join(Dir(root), "semver-7.7.2.tgz")); err != nil || string(text) != "tarball\n" {
			t.Errorf("%q, %v", text, err)
		}
	}
	for _, step := range []struct {
		name  string
		calls string
		lose  string
	}{
		{"the first checkout", "install\npack\n", ""},
		{"the second checkout", "install\npack\n", ""},
		{"a lost tarball", "install\npack\ninstall\npack\n", filepath.Join(cache, "semver-7.7.2.tgz")},
		{"a lost list", "install\npack\ninstall\npack\ninstall\n", mark(cache, pkg)},
	} {
		if step.lose != "" {
			testkit.Must(t, os.Remove(step.lose))
		}
		fetch()
		if text, err := os.ReadFile(calls); err != nil || string(text) != step.calls {
			t.Errorf("%s: npm ran %q, %v, want %q", step.name, text, err, step.calls)
		}
	}
}
