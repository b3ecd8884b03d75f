package output

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// want is the expected text of a whole stream.
func want(p []byte) (s string, invalid int64) {
	var b strings.Builder
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		if r == utf8.RuneError && n == 1 {
			invalid++
		}
		b.WriteRune(r)
		p = p[n:]
	}
	return b.String(), invalid
}

var texts = []string{
	"", "plain", "grüezi", "漢字😀", "\xff", "a\xffb", "\xe6\xbc", "\xe6\xbc\xa2\xe6", "\xf0\x9f\x98", "\xf0\x9f\xff\x80", "\xc3\x28",
	"\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80\x80\x80\x80", "é\xcc\x81", "\xc0\xaf", "\ufffd", "x\x00y",
}

func TestTextAtEverySplit(t *testing.T) {
	for _, s := range texts {
		for i := range len(s) + 1 {
			for j := i; j <= len(s); j++ {
				var x ValidText
				got := x.DecodePiece([]byte(s[:i])) + x.DecodePiece([]byte(s[i:j])) + x.DecodePiece([]byte(s[j:])) + x.DecodeRest()
				if w, n := want([]byte(s)); got != w || x.Invalid != n {
					t.Errorf("%q at %d and %d: %q and %d invalid, want %q and %d", s, i, j, got, x.Invalid, w, n)
				}
			}
		}
	}
}

// A complete character is returned immediately.
func TestTextHoldsBackOnlyACharacter(t *testing.T) {
	var x ValidText
	if got := x.DecodePiece([]byte("漢\xe6")); got != "漢" {
		t.Errorf("%q", got)
	}
	if got := x.DecodePiece([]byte("\xbc")); got != "" {
		t.Errorf("%q", got)
	}
	if got := x.DecodePiece([]byte("\xa2!")); got != "漢!" {
		t.Errorf("%q", got)
	}
}

func FuzzText(f *testing.F) {
	for _, s := range texts {
		f.Add([]byte(s), byte(1))
	}
	f.Fuzz(func(t *testing.T, p []byte, step byte) {
		var x ValidText
		var got strings.Builder
		for rest := p; len(rest) > 0; {
			n := min(int(step%7)+1, len(rest))
			got.WriteString(x.DecodePiece(rest[:n]))
			rest = rest[n:]
		}
		got.WriteString(x.DecodeRest())
		if w, n := want(p); got.String() != w || x.Invalid != n || !utf8.ValidString(got.String()) {
			t.Errorf("%q: %q, want %q", p, got.String(), w)
		}
	})
}

func newKeep(t *testing.T, cfg RunFilesConfig) *RunFiles {
	t.Helper()
	cfg.Dir, cfg.Inside = t.TempDir(), "/runs"
	k, err := NewRunFiles(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func TestKeep(t *testing.T) {
	k := newKeep(t, RunFilesConfig{From: 10})
	small := k.NewFile("small")
	small.Write([]byte("0123456789"))
	if path, err := small.Close(); path != "" || err != nil {
		t.Errorf("%q %v", path, err)
	}
	big := k.NewFile("big")
	for range 5 {
		big.Write([]byte("0123456789"))
	}
	path, err := big.Close()
	data, _ := os.ReadFile(filepath.Join(k.cfg.Dir, "big", FileName))
	if path != "/runs/big/stdout.txt" || err != nil || !bytes.Equal(data, bytes.Repeat([]byte("0123456789"), 5)) {
		t.Errorf("%q %v %q", path, err, data)
	}
	again := k.NewFile("big") // a run's id used twice never writes over the first one's output
	again.Write(bytes.Repeat([]byte("x"), 20))
	if path, err := again.Close(); path != "" || err == nil {
		t.Errorf("%q %v", path, err)
	}
}

// A link in the place of the file is not followed.
// TestKeepIncomplete: a file that could not be written to its end is removed.
func TestKeepIncomplete(t *testing.T) {
	k := newKeep(t, RunFilesConfig{From: 4, Runs: 2, Bytes: 1 << 20})
	f := k.NewFile("run")
	f.Write([]byte("12345"))
	f.err = errors.New("the disk is full")
	if path, err := f.Close(); path != "" || err == nil {
		t.Errorf("%q, %v", path, err)
	}
	if _, err := k.root.Stat("run"); err == nil {
		t.Error("it is still there")
	}
}

func TestKeepFollowsNoLink(t *testing.T) {
	k := newKeep(t, RunFilesConfig{})
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("untouched"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(k.cfg.Dir, "r"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(k.cfg.Dir, "r", FileName)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(victim), filepath.Join(k.cfg.Dir, "dir")); err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"r", "dir"} {
		f := k.NewFile(run)
		f.Write([]byte("overwritten"))
		if _, err := f.Close(); err == nil {
			t.Errorf("%s: no error", run)
		}
	}
	if data, _ := os.ReadFile(victim); string(data) != "untouched" {
		t.Errorf("%q", data)
	}
	if left, _ := os.ReadDir(filepath.Dir(victim)); len(left) != 1 {
		t.Errorf("%v", left)
	}
}

func TestKeepForgetsTheOldest(t *testing.T) {
	k := newKeep(t, RunFilesConfig{Runs: 3, Bytes: 25})
	for _, run := range []string{"a", "b", "c", "d", "e"} {
		f := k.NewFile(run)
		f.Write(bytes.Repeat([]byte("x"), 10))
		if _, err := f.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Millisecond)
	}
	entries, _ := os.ReadDir(k.cfg.Dir)
	if len(entries) != 2 || entries[0].Name() != "d" || entries[1].Name() != "e" {
		t.Errorf("%v", entries)
	}
}
