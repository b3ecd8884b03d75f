// Package testkit has helpers for the tests of all packages: rules for skipping, the paths of the tree and its tools,
// and buffers for concurrent use.
package testkit

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/python"
)

// NoSkip reports whether a test that cannot run here must fail (CODEFORGE_NO_SKIP).
func NoSkip() bool { return os.Getenv("CODEFORGE_NO_SKIP") != "" }

// IsThorough reports whether each test runs in all its modes, as `make test-all` requests through CODEFORGE_TEST_ALL.
// Otherwise a test with the same result in all modes runs in one mode.
func IsThorough() bool { return os.Getenv("CODEFORGE_TEST_ALL") != "" }

// ChooseRepeats returns how often a test repeats random cases or cases that a fuzz target extends: more often if
// IsThorough. Sequences with one seed start alike, so the longer one includes the shorter one.
func ChooseRepeats(usual, thorough int) int {
	if IsThorough() {
		return thorough
	}
	return usual
}

// SkipBecause skips a test with its reason. If NoSkip, it fails the test.
func SkipBecause(tb testing.TB, reason string) {
	tb.Helper()
	if NoSkip() {
		tb.Fatal("skips are failures here: " + reason)
	}
	tb.Skip(reason)
}

// Must ends a test on an error.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Patience is how long a test waits for an event that must happen. It guards against hanging, so it is long: a busy
// machine may stand still for seconds.
const Patience = time.Minute

// WaitFor waits until a condition holds. After Patience it fails the test. Between two looks at the condition it pauses
// for as long as the last look took, and at least 5 ms, so that an expensive look does not take a whole processor.
func WaitFor(tb testing.TB, is func() bool) {
	tb.Helper()
	for end := time.Now().Add(Patience); ; {
		began := time.Now()
		if is() {
			return
		}
		if began.After(end) {
			tb.Fatalf("the condition does not hold after %s", Patience)
		}
		time.Sleep(max(5*time.Millisecond, time.Since(began)))
	}
}

// FindRoot returns the folder of go.work at or above the working directory: the root of the source tree.
func FindRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("no go.work above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}

// RootDir is FindRoot for a test.
func RootDir(tb testing.TB) string {
	tb.Helper()
	root, err := FindRoot()
	Must(tb, err)
	return root
}

// FindDeno returns the interpreter of a source tree: DENO_PATH, else .tools/deno. If it is missing, the error is
// fs.ErrNotExist.
func FindDeno(root string) (string, error) {
	path := os.Getenv("DENO_PATH")
	if path == "" {
		path = filepath.Join(root, ".tools", "deno")
	}
	if _, err := os.Stat(path); err != nil {
		return "", &fs.PathError{Op: "finding Deno (make deno fetches it)", Path: path, Err: fs.ErrNotExist}
	}
	return path, nil
}

// FindTypeScript returns the folder of the TypeScript compiler in a source tree. If it was not fetched, the error is
// fs.ErrNotExist.
func FindTypeScript(root string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(root, ".tools", "typescript"))
	if err != nil {
		return "", &fs.PathError{Op: "finding TypeScript (make typescript fetches it)", Path: dir, Err: fs.ErrNotExist}
	}
	return dir, nil
}

// TypeScript is FindTypeScript for a test. If the compiler is missing, it skips the test.
func TypeScript(tb testing.TB) string {
	tb.Helper()
	dir, err := FindTypeScript(RootDir(tb))
	if err != nil {
		SkipBecause(tb, err.Error())
	}
	return dir
}

// DenoPath is FindDeno for a test. If Deno is missing, it skips the test.
func DenoPath(tb testing.TB) string {
	tb.Helper()
	path, err := FindDeno(RootDir(tb))
	if err != nil {
		SkipBecause(tb, err.Error())
	}
	return path
}

// UVPath returns the pinned uv. If make uv has not fetched it, it skips the test.
func UVPath(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(RootDir(tb), ".tools", "uv")
	if _, err := os.Stat(path); err != nil {
		SkipBecause(tb, "uv is missing: run make uv")
	}
	return path
}

// FindPython returns the machine's interpreter. If there is none, it skips the test.
func FindPython(tb testing.TB) python.Interpreter {
	tb.Helper()
	i, err := python.FindInterpreter(tb.Context(), python.ListCandidates(""))
	if err != nil {
		SkipBecause(tb, err.Error())
	}
	return i
}

// Buffer can be read while it is written. The zero Buffer is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns all bytes written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Reset empties the buffer.
func (b *Buffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b.Reset()
}
