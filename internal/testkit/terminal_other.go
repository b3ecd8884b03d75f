//go:build !linux

package testkit

import (
	"os"
	"testing"
)

// OpenTerminal skips the test.
func OpenTerminal(tb testing.TB) (person, program *os.File) {
	tb.Helper()
	SkipBecause(tb, "tests open terminals on Linux only")
	return nil, nil
}
