// Package testkit is what tests of all packages share: when a test may be skipped, where the tree and its tools are,
// and buffers that are read while they are written.
package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/python"
)

// NoSkip reports whether a test that cannot run here is a failure (CODEFORGE_NO_SKIP).
func NoSkip() bool { return os.Getenv("CODEFORGE_NO_SKIP") != "" }

// IsThorough reports whether each test runs in all modes in which it exists, as `make test-all` asks by setting
// CODEFORGE_TEST_ALL. Otherwise a test that cannot have another result in another mode runs in one mode.
func IsThorough() bool { return os.Getenv("CODEFORGE_TEST_ALL") != "" }

// ChooseRepeats returns how often a test repeats random cases, or cases that a fuzz target extends: more often if
// IsThorough. Sequences with one seed begin alike, so the fewer cases are among the others.
func ChooseRepeats(usual, thorough int) int {
	if IsThorough() {
		return thorough
	}
	return usual
}

// Skip skips a test with its reason, or fails it where nothing may be skipped.
func Skip(tb testing.TB, reason string) {
	tb.Helper()
	if NoSkip() {
		tb.Fatal("skips are failures here: " + reason)
	}
	tb.Skip(reason)
}

// Must ends a test at an error.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Patience is how long a test waits for what must happen. It guards against hanging, so it is long: a busy machine may
// stand still for seconds.
const Patience = time.Minute

// WaitFor waits until a condition holds, or Patience ends.
func WaitFor(tb testing.TB, is func() bool) {
	tb.Helper()
	for end := time.Now().Add(Patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("the condition does not hold after %s", Patience)
		}
	}
}

// FindRoot is the folder of go.work above the working directory: the root of the source tree.
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

// Root is FindRoot for a test.
func Root(tb testing.TB) string {
	tb.Helper()
	root, err := FindRoot()
	Must(tb, err)
	return root
}

// FindDeno is the interpreter of a source tree: DENO_PATH, else .tools/deno. The error is fs.ErrNotExist where there is
// none.
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

// FindTypeScript is the folder of TypeScript's compiler in a source tree. The error is fs.ErrNotExist where it was not
// fetched.
func FindTypeScript(root string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(root, ".tools", "typescript"))
	if err != nil {
		return "", &fs.PathError{Op: "finding TypeScript (make typescript fetches it)", Path: dir, Err: fs.ErrNotExist}
	}
	return dir, nil
}

// TypeScript is FindTypeScript for a test, which is skipped where there is none.
func TypeScript(tb testing.TB) string {
	tb.Helper()
	dir, err := FindTypeScript(Root(tb))
	if err != nil {
		Skip(tb, err.Error())
	}
	return dir
}

// Deno is FindDeno for a test, which is skipped where there is none.
func Deno(tb testing.TB) string {
	tb.Helper()
	path, err := FindDeno(Root(tb))
	if err != nil {
		Skip(tb, err.Error())
	}
	return path
}

// Python is the machine's interpreter. The test is skipped where there is none.
func Python(tb testing.TB) python.Interpreter {
	tb.Helper()
	i, err := python.Find(tb.Context(), python.Candidates(""))
	if err != nil {
		Skip(tb, err.Error())
	}
	return i
}

// Buffer is a buffer that is read while it is written. The zero Buffer is empty.
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

// String is everything written so far.
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

// FreePort returns a port that is free at the moment. It is below the ports that the kernel gives to connections, which
// could take it before the caller listens there.
func FreePort() (int, error) {
	var failed error
	for range 100 {
		port := 10_000 + rand.IntN(20_000)                              //nolint:gosec // no secret
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port)) //nolint:noctx // closed at once
		if err == nil {
			return port, l.Close()
		}
		failed = err
	}
	return 0, failed
}
