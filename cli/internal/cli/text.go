package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

// countNoun returns a number and its noun, in the plural unless n is 1.
func countNoun(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// printJSON prints indented JSON.
func printJSON(w io.Writer, v any) error { return encodeJSON(w, v, "  ") }

// printJSONLine prints JSON on one line.
func printJSONLine(w io.Writer, v any) error { return encodeJSON(w, v, "") }

func encodeJSON(w io.Writer, v any, indent string) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", indent)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printValue prints a value as JSON, or with print for a person. Unless well, the command fails without further output.
func printValue(e *Env, asJSON bool, v any, well bool, print func()) error {
	if !asJSON {
		print()
	} else if err := printJSON(e.Stdout, v); err != nil {
		return err
	}
	if !well {
		return silentError(ExitFailed)
	}
	return nil
}

// textPainter colours text for one stream, unless NO_COLOR is set.
type textPainter func(terminal.Colour, string) string

func newPainter(e *Env, s *terminal.Stream) textPainter {
	if e.Getenv("NO_COLOR") != "" || e.Getenv("TERM") == "dumb" {
		return func(_ terminal.Colour, text string) string { return text }
	}
	return s.Paint
}

// printList prints a list as JSON, or each element with show. For an empty list it prints the sentence empty.
func printList[T any](e *Env, asJSON bool, list []T, empty string, show func(T)) error {
	return printValue(e, asJSON, list, true, func() {
		if len(list) == 0 {
			fmt.Fprintln(e.Stdout, empty)
		}
		for _, one := range list {
			show(one)
		}
	})
}

// printEach prints a line for each text, after a prefix.
func printEach(w io.Writer, prefix string, list []string) {
	for _, text := range list {
		fmt.Fprintf(w, "%s%s\n", prefix, safetext.OneLine(text))
	}
}

// quoteWord returns a word of a shell's command line, for a user to copy.
func quoteWord(s string) string {
	if s = safetext.OneLine(s); regexp.MustCompile(`^[\w@%+=:,./-]+$`).MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// joinWithOr returns "a, b or c".
func joinWithOr(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
