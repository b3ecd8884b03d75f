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
	oldest := program(t, `[ "$HOME$PWD" = /nonexistent/ ] && `+answer("cpython", "3.11.0", "/bin/sh", "/usr", "/usr/lib/python3.11", "", ""))
	if i, err := python.FindInterpreter(t.Context(), []string{oldest}); err != nil || i.Library != "/usr/lib/python3.11" {
		t.Errorf("%+v, %v", i, err)
	}
	good := program(t, answer("cpython", "3.13.1", "/bin/sh", "/usr", "/usr/lib64/python3.13", "/e/lib", "/s"))
	gone := program(t, answer("cpython", "3.12.0", "/nonexistent/python", "/usr", "/usr/lib/python3.12", "", ""))
	two := program(t, answer("cpython", "2.12.0", "/bin/sh", "/usr", "/usr/lib/python3.12", "", ""))
	odd := program(t, answer("cpython", "3.x", "/bin/sh", "/usr", "/usr/lib/python3.12", "", ""))
	relative := program(t, answer("cpython", "3.12.0", "/bin/sh", "/usr", "lib", "", ""))
	_, err := python.FindInterpreter(t.Context(), []string{old, other, broken, none, astray, gone, two, odd, relative})
	if !errors.Is(err, python.ErrNone) {
		t.Fatal(err)
	}
	for _, want := range []string{`is Python "3.10.12"; want 3.11 or newer`, `is "pypy"; want CPython`, "does not run: exit status 3",
		`is not Python: it says "hello\n"`, "which is not below /opt/p",
		"looking for the program of " + gone, `is Python "2.12.0"; want`, `is Python "3.x"; want`, "has its library at lib, which is not below /usr"} {
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

// TestListCandidates: the setting is the only candidate. Otherwise only files are candidates, and that of PATH is the last.
func TestListCandidates(t *testing.T) {
	if got := python.ListCandidates("/nonexistent/p"); !slices.Equal(got, []string{"/nonexistent/p"}) {
		t.Error(got)
	}
	path := program(t, "")
	t.Setenv("PATH", filepath.Dir(path))
	got := python.ListCandidates("")
	if len(got) == 0 || got[len(got)-1] != path {
		t.Errorf("%s is not the last of %v", path, got)
	}
	for _, p := range got {
		if info, err := os.Stat(p); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s: %v", p, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if slices.Contains(python.ListCandidates(""), path) {
		t.Errorf("%s is still a candidate", path)
	}
	if python.ListPackages(filepath.Join(path, "none")) != nil {
		t.Error("a folder that is not there has packages")
	}
}

func TestMinorVersion(t *testing.T) {
	for version, want := range map[string]string{"3.11.2": "3.11", "3.11": "3.11", "3": "3", "": ""} {
		if got := python.MinorVersion(version); got != want {
			t.Errorf("%q: %q", version, got)
		}
	}
}
