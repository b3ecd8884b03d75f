package sandboxapi

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// runFrame is a line of a run's answer. After a line with a number of bytes, that many raw bytes follow. Encoding long
// text as JSON would take longer than all other work on it.
type runFrame struct {
	Event
	StdoutBytes int `json:"stdout_bytes,omitempty"`
	StderrBytes int `json:"stderr_bytes,omitempty"`
	FileBytes   int `json:"file_bytes,omitempty"`
}

const (
	// longText is the number of bytes from which a text follows its line.
	longText = 1 << 10
	// maxText bounds one text that is read, and maxLine a line, both in bytes.
	maxText = 1 << 20
	maxLine = 8 << 20
)

// writeEvent writes an event in one call of Write.
func writeEvent(w io.Writer, e Event) error {
	f, text := runFrame{Event: e}, ""
	switch {
	case e.File != nil:
		f.FileBytes, text = len(e.File.Data), string(e.File.Data)
	case len(e.Stdout) >= longText:
		f.Stdout, f.StdoutBytes, text = "", len(e.Stdout), e.Stdout
	case len(e.Stderr) >= longText:
		f.Stderr, f.StderrBytes, text = "", len(e.Stderr), e.Stderr
	}
	line, err := json.Marshal(f)
	if err != nil {
		return err
	}
	_, err = w.Write(append(append(line, '\n'), text...))
	return err
}

// readEvent reads one event of an owner's run and calls on for it.
func readEvent(r *bufio.Reader, owner string, on func(Event)) error {
	line, err := readLine(r)
	if err != nil {
		return err
	}
	var f runFrame
	if err := json.Unmarshal(line, &f); err != nil {
		return err
	}
	if f.File != nil {
		done, err := f.File.readData(r, f.FileBytes, owner)
		if err == nil {
			on(f.Event)
		}
		if done != nil {
			done()
		}
		return err
	}
	if f.Stdout, err = readText(r, f.Stdout, f.StdoutBytes); err != nil {
		return err
	}
	if f.Stderr, err = readText(r, f.Stderr, f.StderrBytes); err != nil {
		return err
	}
	on(f.Event)
	return nil
}

// readText reads the n bytes of text that follow a line. If n is 0, it returns inLine.
func readText(r io.Reader, inLine string, n int) (string, error) {
	if n == 0 {
		return inLine, nil
	}
	if n < 0 || n > maxText {
		return "", fmt.Errorf("an event with %d bytes of text, want at most %d", n, maxText)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return "", err
	}
	if utf8.Valid(text) { // many times faster than ToValidUTF8
		return string(text), nil
	}
	return strings.ToValidUTF8(string(text), "\uFFFD"), nil
}

// readLine reads a line of at most maxLine bytes.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if err == nil && line == nil {
			return part, nil
		}
		line = append(line, part...)
		switch {
		// Without a bound, one line could take all memory.
		case len(line) > maxLine:
			return nil, fmt.Errorf("an event of more than %d bytes", maxLine)
		case err == nil:
			return line, nil
		case err != bufio.ErrBufferFull: //nolint:errorlint // bufio returns this value itself
			return nil, err
		}
	}
}
