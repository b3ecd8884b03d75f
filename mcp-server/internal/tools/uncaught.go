package tools

import (
	"regexp"
	"slices"
	"strings"
)

// colours are what Deno writes for terminals even when it is told not to.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// heapDumps are where V8 begins to tell how it ran out of memory.
var heapDumps = []string{"\n<--- Last few GCs --->", "\n#\n# Fatal JavaScript ", "\n==== C stack trace"}

// errorStart is how Deno begins its words about an error, at the start of a line.
const errorStart = "error: "

// splitError parts what code printed on standard error from Deno's words about the error that ended it, which come
// last.
func splitError(stderr string) (printed, words string) {
	if at := strings.LastIndex("\n"+stderr, "\n"+errorStart); at >= 0 {
		return stderr[:at], stderr[at:]
	}
	return stderr, ""
}

// shortenError shortens what Deno prints about an error that ended a run. If a note explains the error, place and
// message are enough.
//
// Contract: text that code itself has printed stays, except for colours. Of Deno's own words, the frames of its inside
// go, advice on flags and files that do not exist here, and the heap dump of V8.
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
	lines := slices.DeleteFunc(withoutAdvice(strings.Split(words, "\n")), insideFrame.MatchString)
	if explained {
		lines[0] = errorHead.ReplaceAllString(lines[0], "")
		lines = withoutSource(lines)
	}
	return printed + strings.TrimRight(strings.Join(lines, "\n"), "\n ") + "\n"
}

var (
	// insideFrame matches a frame of Deno and V8.
	insideFrame = regexp.MustCompile(`^\s+at (?:.*\((?:ext:|node:|<anonymous>\)).*|ext:\S+)$`)
	// adviceStart begins a paragraph about package.json, npm and flags.
	adviceStart = regexp.MustCompile(`^\s+(?:info: Deno |hint: (?:Rewrite this module|If you want to use)|` +
		`docs: https://docs\.deno\.com)`)
	stackFrame = regexp.MustCompile(`^\s+at `)
	allowFlag  = regexp.MustCompile(`, run again with the --allow-[a-z-]+ flag`)
	errorHead  = regexp.MustCompile(`^error: (?:Uncaught )?(?:\(in promise\) )?`)
	caretLine  = regexp.MustCompile(`^ *[~^]+$`)
)

// withoutAdvice removes paragraphs of advice: from their first line to a blank line or a frame.
func withoutAdvice(lines []string) []string {
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

// withoutSource removes the line of code that a caret is under, and the caret.
func withoutSource(lines []string) []string {
	at := slices.IndexFunc(lines, caretLine.MatchString)
	if at < 2 { // the message comes first
		return lines
	}
	return slices.Delete(lines, at-1, at+1)
}
