// Package jsonread reads JSON including the properties that encoding/json drops: positions, the order of keys, and
// repeated keys.
//
// Threat: text of an unknown author.
//
// Contract: the depth and the number of values are bounded, and a number is a number by RFC 8259. The caller decides
// how to treat bytes that are not UTF-8, and equal keys. Errors quote no text, because it may contain a credential.
//
// Scanner reads text in pieces, for bodies that stream. Parse makes a tree of a whole text. Spans lists the members of
// one object or list without parsing their values.
package jsonread

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"
)

// ErrorKind is the kind of a mistake.
type ErrorKind uint8

// The kinds.
const (
	BadGrammar ErrorKind = iota
	TooDeep
	MoreText // after the value
	BadLine  // with Scanner.Lines: several values on a line, or a line break in or before a value
)

// Error is a mistake at one position of a text.
type Error struct {
	Kind        ErrorKind
	Offset      int // in bytes
	Found, Want string
	// Line counts lines and Column counts characters, both from 1. A Scanner leaves them 0.
	Line, Column int
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("byte %d: %s; want %s", e.Offset, e.Found, e.Want)
	}
	return fmt.Sprintf("line %d, column %d: %s; want %s", e.Line, e.Column, e.Found, e.Want)
}

// locateError adds the line and the column to an *Error.
func locateError(err error, text string) error {
	if e, ok := errors.AsType[*Error](err); ok {
		before := text[:min(e.Offset, len(text))]
		e.Line = strings.Count(before, "\n") + 1
		e.Column = utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	}
	return err
}

// scanEvents scans a text. take gets each event with the offset of its byte. For EndNumber this is the next byte.
func scanEvents(text string, s *Scanner, take func(e ScanEvent, at int) error) error {
	p := []byte(text) // without a copy: Scan neither keeps nor changes it
	for at := 0; at < len(p); {
		n, e, err := s.Scan(p[at:])
		if at += n; e == EndNumber {
			err = take(e, at)
		} else if e != 0 {
			err = take(e, at-1)
		}
		if err != nil {
			return err
		}
	}
	e, err := s.End()
	if err == nil && e != 0 {
		err = take(e, len(text))
	}
	return err
}

// checkUTF8 fails at the first byte that is not UTF-8.
func checkUTF8(text string) error {
	if utf8.ValidString(text) {
		return nil
	}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 {
			return &Error{Offset: i, Found: "bytes that are not UTF-8", Want: "the file saved as UTF-8"}
		}
		i += n
	}
	return nil
}

// unquoteString returns the value of a JSON string. Invalid UTF-8 and unpaired surrogates become U+FFFD.
func unquoteString(raw string) string {
	// Most strings have no escapes: return a part of the text without a copy.
	if plain := raw[1 : len(raw)-1]; strings.IndexByte(plain, '\\') < 0 && utf8.ValidString(plain) {
		return plain
	}
	var s string
	_ = json.Unmarshal([]byte(raw), &s) // the scanner has checked the string
	return s
}

// Span is a member of an object or list, with its position in a text.
type Span struct {
	Key        string // empty in a list
	Start, End int    // of the value, in bytes
}

// errStop ends a scan early.
var errStop = errors.New("stop")

// ListSpans lists the members of the object or list in text, including repeated keys. It reads only as far as the
// caller iterates. If the text is not an object or a list, the last pair has an error. A mistake after a member is
// reported after that member.
func ListSpans(text string) iter.Seq2[Span, error] {
	return func(yield func(Span, error) bool) {
		var s Scanner
		var m Span
		key := 0
		end := func(at int) error {
			if m.End = at; !yield(m, nil) {
				return errStop
			}
			return nil
		}
		err := scanEvents(text, &s, func(e ScanEvent, at int) error {
			switch depth := s.Depth(); {
			case depth == 1 && e == EndNumber:
				return end(at)
			case depth == 2 && e&(BeginObject|BeginList) != 0, depth == 1 && e&(BeginString|BeginNumber|BeginWord) != 0:
				m.Start = at
			case depth == 1 && e&BeginKey != 0:
				key = at
			case depth == 1 && e&EndKey != 0:
				m.Key = unquoteString(text[key : at+1])
			case depth == 1 && e&(EndObject|EndList|EndString|EndWord) != 0:
				return end(at + 1)
			// A text that is only a scalar has no members.
			case depth == 0 && e&(BeginString|BeginNumber|BeginWord) != 0:
				return &Error{Offset: at, Found: "a value alone", Want: "an object or a list"}
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(Span{}, locateError(err, text))
		}
	}
}

// Decode reads one JSON value into a struct. It rejects unknown fields and any text after the value.
func Decode(r io.Reader, to any) error {
	d := json.NewDecoder(r)
	// A misspelt field must not be ignored.
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	// json.Decoder stops after the first value.
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text after the object")
	}
	return nil
}
