package strictjson

import (
	"fmt"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/convert"
)

// Severity tells whether a Problem prevents loading.
type Severity uint8

const (
	// Error: the API is not loaded, or its last good version stays. This is the zero severity.
	Error Severity = iota
	// Warning: the API is loaded, but the mistake should be fixed.
	Warning
)

// String returns "error" or "warning".
func (s Severity) String() string {
	if s == Warning {
		return "warning"
	}
	return "error"
}

// Problem is one mistake in a file. It never contains a credential.
type Problem struct {
	// API is the name of the folder in apis/. Empty means that the mistake is not in a single API.
	API string
	// File is the path as a user knows it, for example "apis/stripe/config.json".
	File string
	// Field is the place in the file, for example "credentials.STRIPE_AUTH_TOKEN.in[1]". Empty means the whole file.
	Field string
	// Found describes the wrong text.
	Found string
	// Want describes a right text.
	Want     string
	Severity Severity
}

// String returns "apis/<name>/config.json: field: found; want ...", without empty parts.
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

// Problems are all mistakes of one load.
type Problems []Problem

// Errors returns the problems that prevent an API from being loaded.
func (ps Problems) Errors() Problems { return ps.filterSeverity(Error) }

// Warnings returns the problems that do not prevent loading.
func (ps Problems) Warnings() Problems { return ps.filterSeverity(Warning) }

func (ps Problems) filterSeverity(s Severity) Problems {
	var out Problems
	for _, p := range ps {
		if p.Severity == s {
			out = append(out, p)
		}
	}
	return out
}

// String returns one line per problem.
func (ps Problems) String() string {
	lines := convert.Each(ps, Problem.String)
	return strings.Join(lines, "\n")
}

// MoreMistakes fills in p as the last problem of a shortened list.
func MoreMistakes(p Problem, count int) Problem {
	p.Found, p.Want = fmt.Sprintf("%d more mistakes", count), "the ones above fixed first"
	return p
}
