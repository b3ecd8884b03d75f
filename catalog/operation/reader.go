package operation

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// Reader reads a file line by line, in the memory of one line. It rejects everything that a Writer would not write, so
// every Line keeps the promises of its type for any author of the file.
type Reader struct {
	in    *bufio.Reader
	left  int64 // the number of bytes that the file may still have
	line  int   // the number of the last line read
	head  Head
	count lineCounter
	err   error
}

// NewReader reads the head.
func NewReader(r io.Reader) (*Reader, error) { return newReader(r, MaxFile) }

func newReader(r io.Reader, most int64) (*Reader, error) {
	d := &Reader{in: bufio.NewReaderSize(r, MaxLine+1), left: most}
	text, err := d.readText()
	if errors.Is(err, io.EOF) {
		err = errors.New("an empty file; want a head")
	}
	if err == nil {
		err = decodeStrict(text, &d.head)
	}
	if err == nil {
		err = d.head.checkHead()
	}
	if err != nil {
		return nil, d.wrapError(err)
	}
	return d, nil
}

// Head returns the first line.
func (r *Reader) Head() Head { return r.head }

// Next returns the next line. After the last line it returns io.EOF, if the number of lines matches the head. Any other
// error names the line and ends the reading; later calls return it again.
func (r *Reader) Next() (Line, error) {
	if r.err != nil {
		return Line{}, r.err
	}
	l, err := r.readLine()
	switch {
	case errors.Is(err, io.EOF):
		if err = r.count.checkTotals(r.head); err == nil {
			err = io.EOF
		}
	case err != nil:
		err = r.wrapError(err)
	}
	if err != nil {
		r.err = err
		return Line{}, err
	}
	return l, nil
}

func (r *Reader) readLine() (Line, error) {
	text, err := r.readText()
	if err != nil {
		return Line{}, err
	}
	var l Line
	if err := decodeStrict(text, &l); err != nil {
		return Line{}, err
	}
	if err := l.checkLine(r.head); err != nil {
		return Line{}, err
	}
	return l, r.count.countLine(l, r.head)
}

// wrapError adds the line number to an error.
func (r *Reader) wrapError(err error) error { return fmt.Errorf("line %d: %w", r.line, err) }

// readText returns the next line without its line feed. The text is valid until the next call.
func (r *Reader) readText() ([]byte, error) {
	text, err := r.in.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(text) == 0 {
		return nil, io.EOF
	}
	r.line++
	// The size of a stream is unknown in advance.
	r.left -= int64(len(text))
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("longer than %d bytes", MaxLine)
	// A file without a last line feed was cut off while it was written.
	case errors.Is(err, io.EOF):
		return nil, errors.New("no line feed at its end: the file is cut off")
	case err != nil:
		return nil, err
	case r.left < 0:
		return nil, fmt.Errorf("a file larger than %d MiB", MaxFile>>20)
	case !utf8.Valid(text):
		return nil, errors.New("a character that is not UTF-8")
	}
	return text[:len(text)-1], nil
}

// decodeStrict reads one JSON object into a struct that must name all keys.
func decodeStrict(text []byte, to any) error {
	if err := jsonread.Decode(bytes.NewReader(text), to); err != nil {
		return fmt.Errorf("not a line of this format: %w", err)
	}
	return nil
}
