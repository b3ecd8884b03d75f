package python_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/python"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// A program that answers as Python would, or not.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python3")
	testkit.Must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755))
	return path
}

func TestFind(t *testing.T) {
	answer := func(lines ...string) string { return "printf '" + strings.Join(lines, `\n`) + `\n'` }
	old := program(t, answer("cpython", "3.10.12", "/bin/sh", "/usr", "/usr/lib/python3.10", "", ""))
	other := program(t, answer("pypy", "3.11.1", "/bin/sh", "/usr", "/usr/lib/pypy", "", ""))
	broken, none := program(t, "exit 3"), program(t, "echo hello")
	astray := program(t, answer("cpython", "3.12.0", "/bin/sh", "/opt/p", "/usr/lib/python3.12", "", ""))
	good := program(t, answer("cpython", "3.13.1", "/bin/sh", "/usr", "/usr/lib64/python3.13", "/e/lib", "/s"))
	_, err := python.FindInterpreter(t.Context(), []string{old, other, broken, none, astray})
	if !errors.Is(err, python.ErrNone) {
		t.Fatal(err)
	}
	for _, want := range []string{`is Python "3.10.12"; want 3.11 or newer`, `is "pypy"; want CPython`, "does not run: exit status 3",
		`is not Python: it says "hello\n"`, "which is not below /opt/p"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %s", err, want)
		}
	}
	i, err := python.FindInterpreter(t.Context(), []string{old, good})
	if err != nil || i.Version != "3.13.1" || i.Library != "/usr/lib64/python3.13" || i.Environment != "/e/lib" || i.System != "/s" {
		t.Errorf("%+v %v", i, err)
	}
	if _, err := python.FindInterpreter(t.Context(), nil); !errors.Is(err, python.ErrNone) {
		t.Error(err)
	}
}

func TestPackages(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"requests-2.28.1.egg-info", "Requests-2.31.dist-info", "PyYAML-6.0.dist-info", "requests", "x.py"} {
		testkit.Must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	if got := python.ListPackages(dir); !slices.Equal(got, []string{"pyyaml", "requests"}) {
		t.Error(got)
	}
}
