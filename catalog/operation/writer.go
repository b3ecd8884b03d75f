package operation

import (
	"fmt"
	"io"

	"github.com/codeforge-mcp/codeforge/internal/convert"
)

// Writer writes a file. It rejects everything that a Reader would reject.
type Writer struct {
	out   io.Writer
	size  int64
	head  Head
	count lineCounter
	err   error
}

// NewWriter writes the head, and sets its format.
func NewWriter(w io.Writer, h Head) (*Writer, error) {
	h.Format = Format
	e := &Writer{out: w, head: h}
	if err := h.checkHead(); err != nil {
		return nil, fmt.Errorf("head: %w", err)
	}
	if err := e.writeJSON(h); err != nil {
		return nil, err
	}
	return e, nil
}

// Write adds one line. After an error it only returns the same error.
func (w *Writer) Write(l Line) error {
	if w.err == nil {
		w.err = w.writeLine(l)
	}
	return w.err
}

func (w *Writer) writeLine(l Line) error {
	if err := l.checkLine(w.head); err != nil {
		return fmt.Errorf("%s: %w", l.lineLabel(), err)
	}
	if err := w.count.countLine(l, w.head); err != nil {
		return err
	}
	return w.writeJSON(l)
}

// Close reports whether the file has as many lines as its head states. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	return w.count.checkTotals(w.head)
}

func (w *Writer) writeJSON(v any) error {
	text, err := MarshalLine(v)
	if err != nil {
		return err
	}
	if w.size += int64(len(text)); w.size > MaxFile {
		return fmt.Errorf("a file larger than %d MiB", MaxFile>>20)
	}
	_, err = w.out.Write(text)
	return err
}

// MarshalLine returns a head or a line as in the file, with its line feed. It fails if the line is longer than MaxLine.
func MarshalLine(v any) ([]byte, error) {
	text, err := convert.ToJSON(v)
	if err != nil {
		return nil, fmt.Errorf("writing a line: %w", err)
	}
	if len(text) >= MaxLine {
		return nil, fmt.Errorf("a line longer than %d bytes", MaxLine)
	}
	return append(text, '\n'), nil
}
