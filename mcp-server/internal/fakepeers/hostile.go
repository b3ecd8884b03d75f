package fakepeers

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// built is a program that a test binary builds once.
var built struct {
	once sync.Once
	path string
	err  error
	out  []byte
}

// BuildHostile returns the path of the MCP server that misbehaves according to its arguments: bridge/testdata/hostile.
// Main removes the file.
func BuildHostile(tb testing.TB) string {
	tb.Helper()
	root := testkit.RootDir(tb)
	built.once.Do(func() {
		var dir string
		if dir, built.err = os.MkdirTemp("", "hostile"); built.err != nil {
			return
		}
		built.path = filepath.Join(dir, "hostile")
		cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", built.path,
			"./mcp-server/internal/bridge/testdata/hostile")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build, also under the race detector
		built.out, built.err = cmd.CombinedOutput()
	})
	if built.err != nil {
		tb.Fatalf("building the hostile server: %v\n%s", built.err, built.out)
	}
	return built.path
}

// RunTests runs the tests of a package that uses BuildHostile, and removes the built files.
func RunTests(m *testing.M) int {
	defer func() {
		if built.path != "" {
			_ = os.RemoveAll(filepath.Dir(built.path))
		}
	}()
	return m.Run()
}
