package strictjson

import (
	"fmt"
	"slices"
	"strings"
)

// Severity says what a Problem means for what the file configures.
type Severity uint8

const (
	// Error: it is not loaded (or its last good version stays). The zero severity.
	Error Severity = iota
	// Warning: it is loaded, but something about it should be fixed.
	Warning
)

// String is "error" or "warning".
func (s Severity) String() string {
	if s == Warning {
		return "warning"
	}
	return "error"
}

// Problem is one mistake in a file. It never holds a credential value.
type Problem struct {
	// API is the folder's name in apis/. Empty: the mistake is not in one API.
	API string
	// File is the path as a user knows it, e.g. "apis/stripe/config.json".
	File string
	// Field is where in the file, e.g. "credentials.STRIPE_AUTH_TOKEN.in[1]". Empty: the file as a whole.
	Field string
	// Found is what is there.
	Found string
	// Want is what would be right.
	Want     string
	Severity Severity
}

// String is "apis/<name>/config.json: field: found; want what is right", without the parts that are empty.
func (p Problem) String() string {
	parts := slices.DeleteFunc([]string{p.File, p.Field, p.Found}, func(s string) bool { return s == "" })
	text := strings.Join(parts, ": ")
	switch {
	case p.Want == "":
		return text
	case strings.HasSuffix(p.Want, "?"): // did you mean ...?
		return text + "; " + p.Want
	}
	return text + "; want " + p.Want
}

// Problems is every mistake of one load.
type Problems []Problem

// Errors are those that keep an API from being loaded.
func (ps Problems) Errors() Problems { return ps.of(Error) }

// Warnings are those that do not.
func (ps Problems) Warnings() Problems { return ps.of(Warning) }

func (ps Problems) of(s Severity) Problems {
	var out Problems
	for _, p := range ps {
		if p.Severity == s {
			out = append(out, p)
		}
	}
	return out
}

// String is one line per problem.
func (ps Problems) String() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// MoreMistakes fills in p as the last problem of a list that was cut.
func MoreMistakes(p Problem, count int) Problem {
	p.Found, p.Want = fmt.Sprintf("%d more mistakes", count), "the ones above fixed first"
	return p
}
