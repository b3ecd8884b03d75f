package cli

import (
	"encoding/json"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// quoteIfOdd quotes text from outside that could play tricks on a terminal.
func quoteIfOdd(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	return strconv.Quote(s)
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// printJSON prints indented JSON.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Colours, as SGR parameters.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	dim    = "2"
)

// painter colours text on a terminal, unless NO_COLOR is set.
type painter bool

func newPainter(e *Env, f *os.File) painter {
	return painter(e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd())))
}

func (p painter) paint(colour, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

// printJSONLine prints JSON on one line.
func printJSONLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
