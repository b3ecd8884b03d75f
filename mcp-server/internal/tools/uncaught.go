package tools

import (
	"regexp"
	"slices"
	"strings"
)

// colours matches the terminal colours that Deno writes even if it is asked not to.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// heapDumps are the starts of V8's report when it runs out of memory.
var heapDumps = []string{"\n<--- Last few GCs --->", "\n#\n# Fatal JavaScript ", "\n==== C stack trace"}

// errorStart is the start of Deno's error message, at the start of a line.
const errorStart = "error: "

// splitError separates the code's output on standard error from Deno's final error message.
func splitError(stderr string) (printed, words string) {
	if at := strings.LastIndex("\n"+stderr, "\n"+errorStart); at >= 0 {
		return stderr[:at], stderr[at:]
	}
	return stderr, ""
}

// shortenError shortens Deno's message about an error that ended a run. If a note explains the error, position and
// message are enough.
//
// Contract: the code's own output stays, except for colours. From Deno's message it removes internal frames, advice on
// flags and files that do not exist here, and V8's heap dump.
func shortenError(stderr string, explained bool) string {
	stderr = colours.ReplaceAllString(stderr, "")
	for _, dump := range heapDumps {
		if at := strings.Index("\n"+stderr, dump); at >= 0 {
			stderr = strings.TrimRight(stderr[:at], "\n")
		}
	}
	printed, words := splitError(stderr)
	if words == "" {
		return stderr
	}
	words = allowFlag.ReplaceAllString(words, "")
	lines := slices.DeleteFunc(removeAdvice(strings.Split(words, "\n")), insideFrame.MatchString)
	if explained {
		lines[0] = errorHead.ReplaceAllString(lines[0], "")
		lines = removeSource(lines)
	}
	return printed + strings.TrimRight(strings.Join(lines, "\n"), "\n ") + "\n"
}

var (
	// insideFrame matches a frame of Deno and V8.
	insideFrame = regexp.MustCompile(`^\s+at (?:.*\((?:ext:|node:|<anonymous>\)).*|ext:\S+)$`)
	// adviceStart matches the start of a paragraph about package.json, npm and flags.
	adviceStart = regexp.MustCompile(`^\s+(?:info: Deno |hint: (?:Rewrite this module|If you want to use)|` +
		`docs: https://docs\.deno\.com)`)
	stackFrame = regexp.MustCompile(`^\s+at `)
	allowFlag  = regexp.MustCompile(`, run again with the --allow-[a-z-]+ flag`)
	errorHead  = regexp.MustCompile(`^error: (?:Uncaught )?(?:\(in promise\) )?`)
	caretLine  = regexp.MustCompile(`^ *[~^]+$`)
)

// removeAdvice removes paragraphs of advice, each up to a blank line or a frame.
func removeAdvice(lines []string) []string {
	var out []string
	skip := false
	for _, line := range lines {
		switch {
		case adviceStart.MatchString(line):
			skip = true
		case line == "" || stackFrame.MatchString(line):
			skip = false
		}
		if !skip {
			out = append(out, line)
		}
	}
	return out
}

// removeSource removes the caret and the line of code above it.
func removeSource(lines []string) []string {
	at := slices.IndexFunc(lines, caretLine.MatchString)
	if at < 2 { // the message comes first
		return lines
	}
	return slices.Delete(lines, at-1, at+1)
}
