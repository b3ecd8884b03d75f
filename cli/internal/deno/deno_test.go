package deno

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	pinned := Version()
	for version, want := range map[string]string{
		pinned: "", "2.9.5": "older", "2.10.0": "is not", "3.0.0": "is not", "2.3.9": "too old", "1.46.3": "too old",
		"2.9": "older", "x.y.z": "three numbers", pinned + "+abc": "",
	} {
		warning, err := CheckVersion(version)
		got := warning
		if err != nil {
			got = err.Error()
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("Judge(%q) = %q, want %q", version, got, want)
		}
	}
}

// TestFind: where Deno is looked for, and the errors when it is missing, not Deno, or too old.
func TestFind(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the stand-ins are shell scripts")
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	write := func(path, text string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fails := func(path, want string) {
		t.Helper()
		if _, _, err := FindDeno(t.Context(), path, bin); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Find(%q): %v, want %q", path, err, want)
		}
	}
	fails("", "DENO_PATH")
	fails(filepath.Join(dir, "nowhere"), "correct DENO_PATH")
	fails(dir, "there is no Deno at") // a directory
	fails(write(filepath.Join(dir, "other"), "#!/bin/sh\necho node 1.2.3\n"), ": not Deno")
	fails(write(filepath.Join(dir, "broken"), "#!/bin/sh\nexit 1\n"), "asking")
	fails(write(filepath.Join(dir, "old"), "#!/bin/sh\necho deno 1.0.0\n"), "too old")
	tools := write(filepath.Join(dir, ".tools", "deno"), "#!/bin/sh\necho 'deno 2.9.5 (stable)'\n")
	got, warning, err := FindDeno(t.Context(), "", bin)
	if real, _ := filepath.EvalSymlinks(tools); err != nil || got != real || !strings.Contains(warning, "older") {
		t.Errorf("Find: %q, %q, %v", got, warning, err)
	}
	write(filepath.Join(bin, "deno"), "#!/bin/sh\necho 'deno 2.9.4 (stable)'\n") // the other one comes first
	if again, _, err := FindDeno(t.Context(), "", bin); err != nil || again != got {
		t.Errorf("Find: %q, %v, want %q", again, err, got)
	}
	t.Chdir(dir)
	if err := os.Symlink(tools, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if real, _, err := FindDeno(t.Context(), "link", ""); err != nil || real != got {
		t.Errorf("Find(link): %q, %v, want %q", real, err, got)
	}
}
