// Package terminal is the output of the command line.
//
// Contract: text that reaches a terminal through a Stream is shown, never obeyed (package safetext); a file or a pipe
// gets exactly the bytes written. Callers need no escaping of their own: only this package's colours become control
// codes, and text from outside the process cannot spell them.
package terminal

import (
	"crypto/rand"
	"os"
	"strings"
	"sync/atomic"

	"golang.org/x/term"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
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

// Stream is standard output or standard error. Make it with NewStream. Each Write must be complete text: a character
// split over two Writes is shown as bytes.
type Stream struct {
	file     *os.File
	terminal bool
	mark     string                // starts a colour; random, so that text from outside cannot contain it
	err      atomic.Pointer[error] // the first failed write
}

// NewStream makes the stream of a file.
func NewStream(f *os.File) *Stream {
	return &Stream{file: f, terminal: term.IsTerminal(int(f.Fd())), mark: "\x1b" + rand.Text()}
}

// IsTerminal reports whether the file is a terminal.
func (s *Stream) IsTerminal() bool { return s.terminal }

// Width returns the terminal's width in columns, and false if the file is not a terminal.
func (s *Stream) Width() (int, bool) {
	width, _, err := term.GetSize(int(s.file.Fd()))
	return width, err == nil
}

// File returns the underlying file. Only code that starts a process with a separate Stream may use it.
func (s *Stream) File() *os.File { return s.file }

// Write writes text.
func (s *Stream) Write(p []byte) (int, error) {
	text := p
	//defence:terminal
	if s.terminal {
		text = []byte(s.escapeText(string(p)))
	}
	if _, err := s.file.Write(text); err != nil {
		s.err.CompareAndSwap(nil, &err)
		return 0, err
	}
	return len(p), nil
}

// Err returns the error of the first failed Write, or nil.
func (s *Stream) Err() error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

// WriteString writes text.
func (s *Stream) WriteString(text string) (int, error) { return s.Write([]byte(text)) }

// escapeText returns text that is safe for a terminal: escaped, with this stream's colours.
func (s *Stream) escapeText(text string) string {
	var b strings.Builder
	for {
		// Only the text between marks is escaped: a mark is random, so outside text cannot contain one.
		plain, rest, marked := strings.Cut(text, s.mark)
		b.WriteString(safetext.EscapeOdd(plain))
		if !marked {
			return b.String()
		}
		colour, rest, _ := strings.Cut(rest, "m")
		b.WriteString("\x1b[" + colour + "m")
		text = rest
	}
}

// Paint returns text in a colour for this stream, or plain text if the stream is not a terminal.
func (s *Stream) Paint(c Colour, text string) string {
	//defence:terminal permits
	if !s.terminal {
		return text
	}
	return s.mark + string(c) + "m" + text + s.mark + "0m"
}

// Rewrite replaces the cursor's line by text and leaves the cursor on it. If the stream is not a terminal, it does
// nothing.
func (s *Stream) Rewrite(text string) {
	if s.terminal {
		_, _ = s.file.WriteString("\r\x1b[K" + safetext.EscapeOdd(strings.ReplaceAll(text, "\n", " ")))
	}
}
