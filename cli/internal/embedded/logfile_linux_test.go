package embedded

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestBounds: neither file exceeds the limit, no write is split, and the newest line is kept.
func TestBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := openLogFile(path, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 200 {
				_, _ = fmt.Fprintf(f, "writer %d line %03d\n", w, i)
			}
		})
	}
	wg.Wait()
	_, _ = f.Write([]byte("the last line....\n"))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, path + ".1"} {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 1000 {
			t.Errorf("%s has %d bytes", p, len(text))
		}
		for _, line := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
			if len(line) != len("writer 0 line 000") {
				t.Errorf("%s: broken line %q", p, line)
			}
		}
	}
	if text, _ := os.ReadFile(path); !bytes.HasSuffix(text, []byte("the last line....\n")) {
		t.Error("the newest line is not in the file")
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
}

// TestAppend: the lines of an earlier start are kept.
func TestAppend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for range 2 {
		f, err := openLogFile(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.Write([]byte("line\n"))
		_ = f.Close()
	}
	if text, _ := os.ReadFile(path); string(text) != "line\nline\n" {
		t.Errorf("got %q", text)
	}
}

// TestGone: a file that somebody removes while it is written, to make room, is begun anew when it would be full.
func TestGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := openLogFile(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, _ = f.Write(append(bytes.Repeat([]byte("x"), 98), '\n'))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"one\n", "two\n"} {
		if _, err := f.Write([]byte(line)); err != nil {
			t.Error(err)
		}
	}
	if text, _ := os.ReadFile(path); string(text) != "one\ntwo\n" {
		t.Errorf("got %q", text)
	}
}

// TestRotatedByOthers: after another program has renamed or truncated the file, lines arrive in the file at the path,
// and a file that another program has filled is rotated with the next line.
func TestRotatedByOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := openLogFile(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	line := func(text string) {
		t.Helper()
		if _, err := fmt.Fprintln(f, text); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(path, want string) {
		t.Helper()
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; want %q", filepath.Base(path), text, err, want)
		}
	}
	line("first")
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	line("second")
	holds(path+".old", "first\n")
	holds(path, "second\n")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	line("third")
	holds(path, "third\n")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 200), 0o600); err != nil {
		t.Fatal(err)
	}
	line("fourth")
	holds(path, "fourth\n")
}
