package catalog

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
)

var (
	// ErrUnread is the error for a rule that needs content which has not been read yet.
	ErrUnread = errors.New("the body has not been read")
	// ErrPath is the error for a path that servers may read in different ways, if a rule has a path.
	ErrPath   = errors.New("servers may read the path in different ways")
	errNumber = errors.New("the field is not a number in plain decimal notation")
	errTruth  = errors.New("servers may differ in whether the field is true")
)

// Content is the content of a request's query and body, as rules see it. Its methods fail if servers may read the
// content differently.
type Content interface {
	// Lookup returns the value of a field, and whether the field exists.
	Lookup(field string) (v FieldValue, found bool, err error)
	// Operations returns the kinds of all operations of a GraphQL document: "query", "mutation", "subscription".
	Operations() ([]string, error)
}

// FindRule returns the first rule that matches a request, or nil. The method is in upper case. The path is as
// sent: escaped and without a query. Content is nil as long as it has not been read.
//
// An "allow" rule matches only a request that every server reads in the same way. Another rule also matches a request
// that some server may read so: letters in another case, a slash or a file type at the end, a number as a string.
// Decide fails if it cannot tell; the request must then be refused.
func FindRule(rules []Rule, method, path string, c Content) (*Rule, error) {
	var p requestPath
	for i := range rules {
		r := &rules[i]
		// The cheapest condition comes first.
		if r.Methods != nil && !slices.Contains(r.Methods, method) {
			continue
		}
		if r.Path != "" {
			if p.segments == nil {
				var ok bool
				// Only a rule with a path needs a path that servers read in one way.
				if p.segments, ok = operation.SplitSegments(path); !ok {
					return nil, ErrPath
				}
			}
			if !p.matchesRule(r) {
				continue
			}
		}
		matches, err := matchesContent(r, c)
		if err != nil {
			return nil, err
		}
		if matches {
			return r, nil
		}
	}
	return nil, nil //nolint:nilnil // no rule matches
}

// DependsOnPath reports whether a decision on a request to the API's hosts depends on the path. It does if the API has
// a rule with a path other than "/**", permitted operations, a limit on a sum, or a credential in the path.
func (a *API) DependsOnPath() bool {
	return a.Only != nil || a.Limits != nil && a.Limits.Sum != nil ||
		slices.ContainsFunc(a.Rules, func(r Rule) bool { return r.Path != "" && r.Path != "/**" }) ||
		slices.ContainsFunc(a.Credentials, func(c Credential) bool {
			return slices.ContainsFunc(c.Surfaces, func(s Surface) bool { return s.Kind == SurfacePath })
		})
}

// FindCallRule returns the first rule that matches a call of an MCP server's tool, or nil. Rules treat names with the
// same identifier in code as one name, because code may call the tool by any of them. Content has the arguments. It is
// nil as long as they have not been read.
func FindCallRule(rules []Rule, tool string, c Content) (*Rule, error) {
	tool = mcpserver.AliasTool(tool)
	for i := range rules {
		r := &rules[i]
		if !slices.ContainsFunc(r.Tools, func(glob string) bool { return mcpserver.MatchTool(glob, tool) }) {
			continue
		}
		if matches, err := matchesContent(r, c); err != nil || matches {
			return r, err
		}
	}
	return nil, nil //nolint:nilnil // no rule matches
}

type requestPath struct {
	segments []operation.Segment
	folds    []string // the folded segments, made for the first rule that needs them
}

func (p *requestPath) matchesRule(r *Rule) bool {
	// To refuse too much is safe; to allow too much is not.
	loose := r.Then != ActionAllow
	pattern, n := r.segments, len(p.segments)
	if loose {
		p.foldPath()
		pattern, n = r.folds, len(p.folds)
	}
	m := len(pattern)
	switch {
	case m > 0 && pattern[m-1] == "**":
		if m--; n < m {
			return false
		}
	case n != m:
		return false
	}
	// Compare from the end: paths begin alike, and most rules do not match.
	for i := m - 1; i >= 0; i-- {
		if loose && !canBeReadAs(p.folds[i], pattern[i], i == n-1) || !loose && !isReadAs(p.segments[i], pattern[i]) {
			return false
		}
	}
	return true
}

// foldPath sets folds.
func (p *requestPath) foldPath() {
	if p.folds != nil {
		return
	}
	p.folds = make([]string, len(p.segments))
	for i, s := range p.segments {
		p.folds[i] = foldText(s.Text)
	}
	p.folds = trimLastEmpty(p.folds)
}

// isReadAs reports whether every server reads a segment as that of a pattern.
func isReadAs(s operation.Segment, want string) bool {
	return want == s.Text && s.Plain || want == "*" && s.Text != ""
}

// canBeReadAs reports whether some server may read a segment as that of a pattern. Both are folded.
func canBeReadAs(fold, want string, last bool) bool {
	return want == fold || want == "*" && fold != "" ||
		// Some frameworks accept the name of a format at the end, as in /users.json.
		last && len(fold) > len(want) && fold[len(want)] == '.' && strings.HasPrefix(fold, want)
}

// trimLastEmpty returns a path without an empty last segment.
func trimLastEmpty(path []string) []string {
	if n := len(path); n > 0 && path[n-1] == "" {
		return path[:n-1]
	}
	return path
}

// foldText returns a text without differences that some server ignores: the case and form of letters, and dots and
// spaces around the text.
func foldText(s string) string {
	// Most texts need no folding, which is slow.
	if isPlainLower(s) {
		return s
	}
	s = strings.Trim(norm.NFKC.String(s), ". ")
	if i := strings.IndexByte(s, 0); i >= 0 {
		s = s[:i] // some servers end a string at a NUL
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '\u0130', '\u0131': // Python's re matches both with an i if it ignores case
			return 'i'
		}
		least := unicode.ToLower(r)
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, unicode.ToLower(f))
		}
		return least
	}, s)
}

// isPlainLower reports whether folded leaves a text unchanged, which is the common case.
func isPlainLower(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= 'A' && c <= 'Z' || c < '-' || c == '.' && (i == 0 || i == len(s)-1) || c > '~' {
			return false
		}
	}
	return true
}

// matchesContent reports whether the query and the body match a rule.
func matchesContent(r *Rule, c Content) (bool, error) {
	if r.GraphQL == "" && r.Body == nil {
		return true, nil
	}
	// The caller reads the body only if a rule needs it.
	if c == nil {
		return false, ErrUnread
	}
	if r.GraphQL != "" {
		list, err := c.Operations()
		if err != nil {
			return false, err
		}
		matching := 0
		for _, o := range list {
			if o == r.GraphQL {
				matching++
			}
		}
		// A document with several operations is executed in part, so for "allow" all operations must match.
		return matching == len(list) || r.Then != ActionAllow && matching > 0, nil
	}
	for _, f := range r.Body {
		if ok, err := matchesField(f, c, r.Then != ActionAllow); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func matchesField(f FieldRule, c Content, loose bool) (bool, error) {
	v, found, err := c.Lookup(f.Field)
	if err != nil || !found {
		return false, err
	}
	if f.OneOf != nil {
		return matchesAny(f.OneOf, v, loose)
	}
	n, ok := ParseDecimal(v.Text)
	if !ok {
		return false, errNumber
	}
	return (f.Min == nil || n.Cmp(f.Min) >= 0) && (f.Max == nil || n.Cmp(f.Max) <= 0), nil
}

// matchesAny reports whether a value is one of a rule's values: for every server, or with loose for some server.
func matchesAny(list []FieldValue, v FieldValue, loose bool) (bool, error) {
	if !loose {
		return slices.ContainsFunc(list, func(want FieldValue) bool {
			// In a form every value is a text, so the kind is unknown.
			return want.Text == v.Text && (want.Kind == v.Kind || v.Kind == KindAny && !want.isFalsy())
		}), nil
	}
	got, is := canonicalize(v.Text)
	var unclear error
	for _, want := range list {
		text, as := canonicalize(want.Text)
		switches := want.Kind == KindBool || want.Kind == KindNumber && (text == "true" || text == "false")
		switch {
		case text == got:
			return true, nil
		// Some server may read the text as this number.
		case is == isNumeric && (as == isNumber || as == isTruth):
			unclear = errNumber
		// JavaScript takes any text that is not empty for true.
		case switches && v.Kind != KindBool && (want.Kind == KindBool || is != isNumber):
			unclear = errTruth
		}
	}
	return false, unclear
}

// isFalsy reports whether a rule's value is a boolean or 0. JavaScript takes the text of each in a form for true.
func (v FieldValue) isFalsy() bool {
	text, _ := canonicalize(v.Text)
	return v.Kind == KindBool || v.Kind == KindNumber && text == "false"
}

// textMeaning is the way in which servers may read a text.
type textMeaning uint8

const (
	isText    textMeaning = iota
	isTruth               // true or false
	isNumber              // in plain decimal notation
	isNumeric             // a number to some servers, perhaps not the same number to all
)

// canonicalize returns a value without the differences that servers may ignore. Two numbers are equal if JavaScript
// treats them as equal.
func canonicalize(value string) (string, textMeaning) {
	text, is := strings.TrimSpace(foldText(value)), isText
	// Numbers that JavaScript treats as equal get one form, such as 1.0 and 1.
	if n, ok := ParseDecimal(strings.TrimSpace(value)); ok {
		f, _ := n.Float64()
		text, is = strconv.FormatFloat(f, 'f', -1, 64), isNumber
	} else if startsWithDigit(value) {
		text, is = strings.TrimLeft(text, "+0"), isNumeric
	}
	switch text {
	case "1", "on", "yes", "t", "y", "true":
		return "true", max(is, isTruth)
	case "0", "off", "no", "f", "n", "false":
		return "false", max(is, isTruth)
	}
	return text, is
}

// startsWithDigit reports whether the first letter or digit of a text is a digit.
func startsWithDigit(text string) bool {
	word := strings.TrimLeftFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) })
	return strings.IndexFunc(word, unicode.IsNumber) == 0
}
