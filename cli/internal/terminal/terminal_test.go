//go:build unix

package terminal_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// received is what a terminal receives when something is printed to it.
func received(t *testing.T, print func(*terminal.Stream)) string {
	t.Helper()
	master, slave := testkit.OpenTerminal(t)
	defer master.Close()
	got := make(chan string)
	go func() {
		text, _ := io.ReadAll(master) // ends with an error when the other end is closed
		got <- string(text)
	}()
	print(terminal.NewStream(slave))
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
	return <-got
}

// hostile are texts that control a terminal.
var hostile = []string{
	"\x1b[2J\x1b[H", "\x1b]0;title\x07", "\x1b]52;c;cm0gLXJmCg==\x07", "\x1bP+q544e\x1b\\", "\x1b[6n", "\x1bc", "\x1b_app\x1b\\", "\x1b^pm\x1b\\",
	"\u009b2J", "\u009d0;t\u009c", "\u0090x\u009c", "\x9b2J", "\x9d0;t\x9c", "good\rbad", "bad\b\b\bgood", "\u202eevil\u202c", "\u2066x\u2069", "a\u200bb",
	"\x00\x05\x07\x0e\x0f\x7f", "\xff\xfe", "\U000e0041", "\x1b", "\x1b[", "\x1b[0m", "\x1b]8;;http://evil.test\x07link\x1b]8;;\x07",
}

// obeyed names the first byte that a terminal would obey, or that is not UTF-8.
func obeyed(text string) string {
	for i, r := range strings.ReplaceAll(text, "\r\n", "\n") {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0xfffd || r >= 0x200b && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r > 0xe0000 {
			return fmt.Sprintf("%U at %d", r, i)
		}
	}
	return ""
}

// TestShown: a terminal receives nothing that it would obey, however it is printed.
// Promise: terminal-shows
func TestShown(t *testing.T) {
	for _, text := range hostile {
		for name, print := range map[string]func(*terminal.Stream){
			"Fprintf":     func(s *terminal.Stream) { fmt.Fprintf(s, "%s\n", text) },
			"WriteString": func(s *terminal.Stream) { _, _ = io.WriteString(s, text) },
			"byte by byte": func(s *terminal.Stream) {
				for i := range len(text) {
					_, _ = s.Write([]byte{text[i]})
				}
			},
			"in colour": func(s *terminal.Stream) {
				_, _ = s.WriteString(strings.ReplaceAll(s.Paint(terminal.Red, text), "zz", ""))
			},
			"rewritten": func(s *terminal.Stream) { s.Rewrite(text) },
		} {
			got := received(t, print)
			got = strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "", "\r\x1b[K", "").Replace(got)
			if why := obeyed(got); why != "" {
				t.Errorf("%s of %q: %s in %q", name, text, why, got)
			}
		}
	}
}

// TestColours: text painted by a stream is coloured on that stream only.
func TestColours(t *testing.T) {
	var other *terminal.Stream
	received(t, func(s *terminal.Stream) { other = s })
	got := received(t, func(s *terminal.Stream) {
		fmt.Fprintf(s, "%s %s\n", s.Paint(terminal.Green, "ok"), other.Paint(terminal.Red, "no"))
	})
	if !strings.HasPrefix(got, "\x1b[32mok\x1b[0m ") || strings.Count(got, "\x1b") != 2 {
		t.Errorf("got %q", got)
	}
}

// TestRewrite replaces the line that the cursor is on.
func TestRewrite(t *testing.T) {
	if got := received(t, func(s *terminal.Stream) { s.Rewrite("two\nlines") }); got != "\r\x1b[Ktwo lines" {
		t.Errorf("got %q", got)
	}
}

// TestStreamFails: a write that fails is an error, and only a terminal has a width.
func TestStreamFails(t *testing.T) {
	master, slave := testkit.OpenTerminal(t)
	defer master.Close()
	s := terminal.NewStream(slave)
	if _, ok := s.Width(); !ok || !s.IsTerminal() {
		t.Error("a terminal without a width")
	}
	testkit.Must(t, s.File().Close())
	if _, err := s.WriteString("lost"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed terminal: %v", err)
	}
	if _, ok := s.Width(); ok {
		t.Error("a closed terminal has a width")
	}
}

// TestPiped: a file receives every byte unchanged.
// Promise: terminal-shows
func TestPiped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	s := terminal.NewStream(f)
	text := strings.Join(hostile, "")
	n, err := io.WriteString(s, text)
	s.Rewrite("never")
	_, _ = io.WriteString(s, s.Paint(terminal.Red, "plain"))
	if err != nil || n != len(text) || s.IsTerminal() {
		t.Error(n, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != text+"plain" {
		t.Errorf("got %q, %v", got, err)
	}
}
