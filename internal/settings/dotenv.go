package settings

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxDotenv bounds a .env file, in bytes.
const maxDotenv = 1 << 20

// ReadFile reads a .env file with Compose's grammar:
//   - NAME=value lines, with an optional "export", and # comments
//   - single quotes, whose text is literal
//   - double quotes with \n \r \t \" \\ \$
//   - ${NAME} and ${NAME:-default} outside single quotes
//   - quoted values over several lines
//
// For a missing file, errors.Is(err, fs.ErrNotExist) is true. The error names every bad line, but quotes no value.
func ReadFile(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxDotenv+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	// A wrong path may name a huge file.
	if len(data) > maxDotenv {
		return nil, fmt.Errorf("reading %s: larger than %d bytes", path, maxDotenv)
	}
	// Editors on Windows write CR LF and a byte order mark.
	text := strings.TrimPrefix(strings.ReplaceAll(string(data), "\r\n", "\n"), "\ufeff")
	p := dotenvParser{rest: text, line: 1, vars: map[string]string{}}
	for p.rest != "" {
		if err := p.readAssignment(); err != nil {
			p.errs = append(p.errs, fmt.Errorf("%s:%d: %w", path, p.at, err))
			// Continue after a bad line, so that all bad lines are reported at once.
			p.skipLine()
		}
	}
	return p.vars, errors.Join(p.errs...)
}

// dotenvParser is the state of parsing a file.
type dotenvParser struct {
	rest     string
	line, at int // the current line, and the first line of the assignment
	vars     map[string]string
	errs     []error
}

func (p *dotenvParser) skipLine() {
	_, p.rest, _ = strings.Cut(p.rest, "\n")
	p.line++
}

// readAssignment reads one line, or several lines of a quoted value.
func (p *dotenvParser) readAssignment() error {
	p.at = p.line
	p.rest = strings.TrimLeft(p.rest, " \t")
	if p.rest == "" || p.rest[0] == '#' || p.rest[0] == '\n' {
		p.skipLine()
		return nil
	}
	head, _, _ := strings.Cut(p.rest, "\n")
	name, _, ok := strings.Cut(head, "=")
	if !ok {
		return errors.New("a line without \"=\": want NAME=value")
	}
	offset := len(name) + 1
	name = strings.TrimSpace(name)
	if after, ok := strings.CutPrefix(name, "export "); ok {
		name = strings.TrimSpace(after)
	}
	if !isValidName(name) {
		return errors.New("not a variable's name before \"=\": want letters, digits and _, not starting with a digit")
	}
	p.rest = strings.TrimLeft(p.rest[offset:], " \t")
	value, err := p.readValue()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	p.vars[name] = value
	return nil
}

func isValidName(s string) bool {
	for i := range len(s) {
		b := s[i]
		letter := b == '_' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
		if !letter && (i == 0 || b < '0' || b > '9') {
			return false
		}
	}
	return s != ""
}

func (p *dotenvParser) readValue() (string, error) {
	if p.rest != "" && (p.rest[0] == '\'' || p.rest[0] == '"') {
		return p.readQuoted(p.rest[0])
	}
	raw, _, _ := strings.Cut(p.rest, "\n")
	if i := findComment(raw); i >= 0 {
		raw = raw[:i]
	}
	value, err := p.expandNames(strings.TrimRight(raw, " \t"))
	if err != nil {
		return "", err
	}
	p.skipLine()
	return value, nil
}

// findComment returns the start of an unquoted value's comment, or -1: a # at the start or after white space.
func findComment(s string) int {
	for i := range len(s) {
		if s[i] == '#' && (i == 0 || s[i-1] == ' ' || s[i-1] == '\t') {
			return i
		}
	}
	return -1
}

func (p *dotenvParser) readQuoted(quote byte) (string, error) {
	end := 1
	for end < len(p.rest) && p.rest[end] != quote {
		// An escaped quote does not end the value.
		if p.rest[end] == '\\' && quote == '"' {
			end++
		}
		end++
	}
	if end >= len(p.rest) {
		return "", fmt.Errorf("a value without its closing %c", quote)
	}
	raw, rest := p.rest[1:end], p.rest[end+1:]
	tail, _, _ := strings.Cut(rest, "\n")
	// A comment may follow a quoted value.
	if tail = strings.TrimSpace(tail); tail != "" && tail[0] != '#' {
		return "", errors.New("text after the closing quote")
	}
	value, err := raw, error(nil)
	if quote == '"' {
		value, err = p.expandQuoted(raw)
	}
	if err != nil {
		return "", err
	}
	p.line += strings.Count(raw, "\n")
	p.rest = rest
	p.skipLine()
	return value, nil
}
