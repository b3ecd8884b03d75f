// Package terminal is where the command line prints.
//
// Contract: whatever reaches a terminal through a Stream is shown and not obeyed (package visible); what goes into a file
// or a pipe is byte for byte what was written. Nothing has to be remembered by who prints: only colours of this package
// are control codes, and nobody outside the process can spell them.
package terminal

import (
	"crypto/rand"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/codeforge-mcp/codeforge/internal/disarm"
	"github.com/codeforge-mcp/codeforge/internal/visible"
)

// Colour is an SGR parameter.
type Colour string

// The colours.
const (
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
	Dim    Colour = "2"
)

// Stream is standard output or standard error. Make it with Open. Each Write is whole text: a character that is split over
// two is shown as bytes.
type Stream struct {
	file     *os.File
	terminal bool
	mark     string // begins a colour; random, so that no text from outside has it
}

// Open makes the stream of a file.
func Open(f *os.File) *Stream {
	return &Stream{file: f, terminal: term.IsTerminal(int(f.Fd())), mark: "\x1b" + rand.Text()}
}

// IsTerminal reports whether somebody looks at it.
func (s *Stream) IsTerminal() bool { return s.terminal }

// Width is the terminal's, in columns; false where there is none.
func (s *Stream) Width() (int, bool) {
	width, _, err := term.GetSize(int(s.file.Fd()))
	return width, err == nil
}

// File is what lies below. Only what starts a process that has a Stream of its own may use it.
func (s *Stream) File() *os.File { return s.file }

// Write writes text.
func (s *Stream) Write(p []byte) (int, error) {
	if !s.terminal || disarm.Off("terminal") {
		return s.file.Write(p)
	}
	if _, err := s.file.WriteString(s.shown(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteString writes text.
func (s *Stream) WriteString(text string) (int, error) { return s.Write([]byte(text)) }

// shown is text as a terminal may have it.
func (s *Stream) shown(text string) string {
	var b strings.Builder
	for {
		plain, rest, marked := strings.Cut(text, s.mark)
		b.WriteString(visible.Escape(plain))
		if !marked {
			return b.String()
		}
		colour, rest, _ := strings.Cut(rest, "m")
		b.WriteString("\x1b[" + colour + "m")
		text = rest
	}
}

// Paint is text in a colour, for this stream; plain where it is no terminal.
func (s *Stream) Paint(c Colour, text string) string {
	if !s.terminal || disarm.Off("terminal") {
		return text
	}
	return s.mark + string(c) + "m" + text + s.mark + "0m"
}

// Rewrite puts text in the place of the line that the cursor is on, and leaves the cursor there. It does so on a terminal
// only.
func (s *Stream) Rewrite(text string) {
	if s.terminal {
		_, _ = s.file.WriteString("\r\x1b[K" + visible.Escape(strings.ReplaceAll(text, "\n", " ")))
	}
}
