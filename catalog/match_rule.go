package catalog

import (
	"errors"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
)

var (
	// ErrUnread is for a rule that asks for content which has not been read yet.
	ErrUnread = errors.New("the body has not been read")
	// ErrPath is for a path that servers may read in different ways, where a rule asks for one.
	ErrPath   = errors.New("servers may read the path in different ways")
	errNumber = errors.New("the field is no number in plain decimal notation")
)

// Content is what rules read of a request's query and body. Its methods fail where servers may differ in what it says.
type Content interface {
	// Lookup is the value of a field, and whether there is one.
	Lookup(field string) (v FieldValue, found bool, err error)
	// Operations are the kinds of all operations of a GraphQL document: "query", "mutation", "subscription".
	Operations() ([]string, error)
}

// Decide returns the first rule that matches a request, or nil. The method is in upper case, the path as it is sent,
// escaped and without a query. Content is nil as long as it has not been read.
//
// A rule that allows matches only what every server reads as its conditions say. One that refuses also matches what a
// server may read so: letters in another case, a slash or a file type at the end, a number as a string. It fails if
// that cannot be told: a request is to be refused then.
func Decide(rules []Rule, method, path string, c Content) (*Rule, error) {
	var segments []operation.Segment
	for i := range rules {
		r := &rules[i]
		if r.Methods != nil && !slices.Contains(r.Methods, method) {
			continue
		}
		if r.Path != "" {
			ok := segments != nil
			if !ok {
				segments, ok = operation.Segments(path)
			}
			if !ok {
				return nil, ErrPath
			}
			if !onPath(r, segments) {
				continue
			}
		}
		matches, err := onContent(r, c)
		if err != nil {
			return nil, err
		}
		if matches {
			return r, nil
		}
	}
	return nil, nil //nolint:nilnil // no rule matches
}

// onPath reports whether a path is one of a rule.
func onPath(r *Rule, path []operation.Segment) bool {
	pattern := r.segments
	loose := r.Then != ActionAllow
	if loose {
		if n := len(path); n > 0 && path[n-1].Text == "" {
			path = path[:n-1]
		}
		if n := len(pattern); n > 0 && pattern[n-1] == "" {
			pattern = pattern[:n-1]
		}
	}
	for i, want := range pattern {
		switch {
		case want == "**":
			return true
		case i >= len(path):
			return false
		case want == "*":
			if path[i].Text == "" {
				return false
			}
		case want == path[i].Text && (loose || path[i].Plain):
		case !loose || !alike(want, path[i].Text, i == len(path)-1):
			return false
		}
	}
	return len(path) == len(pattern)
}

// alike reports whether a server may take a segment for another one: in another case or form of its letters, with dots
// or spaces around it, or, at the end of the path, with the name of a format.
func alike(want, got string, last bool) bool {
	want, got = folded(want), folded(got)
	if want == got {
		return true
	}
	stem, _, dotted := strings.Cut(got, ".")
	return last && dotted && want == stem
}

// folded is text without the differences between letters that some server ignores.
func folded(s string) string {
	s = strings.Trim(norm.NFKC.String(s), ". ")
	if i := strings.IndexByte(s, 0); i >= 0 {
		s = s[:i] // where a string ends for some
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '\u0130', '\u0131': // Python's re takes both for an i if it ignores case
			return 'I'
		}
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, s)
}

// onContent reports whether the query and the body are as a rule says.
func onContent(r *Rule, c Content) (bool, error) {
	if r.GraphQL == "" && r.Body == nil {
		return true, nil
	}
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
		return matching == len(list) || r.Then != ActionAllow && matching > 0, nil
	}
	for _, f := range r.Body {
		if ok, err := onField(f, c, r.Then != ActionAllow); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// onField reports whether a field is there and as a rule says.
func onField(f FieldRule, c Content, loose bool) (bool, error) {
	v, found, err := c.Lookup(f.Field)
	if err != nil || !found {
		return false, err
	}
	if f.OneOf != nil {
		return slices.ContainsFunc(f.OneOf, func(want FieldValue) bool {
			if loose {
				return canonical(want.Text) == canonical(v.Text)
			}
			return want.Text == v.Text && (v.Kind == want.Kind || v.Kind == KindAny) // "false" is true to JavaScript
		}), nil
	}
	n, ok := Decimal(v.Text)
	if !ok {
		return false, errNumber
	}
	return (f.Min == nil || n.Cmp(f.Min) >= 0) && (f.Max == nil || n.Cmp(f.Max) <= 0), nil
}

// canonical is a value without the differences that servers may ignore.
func canonical(value string) string {
	value = strings.ToLower(strings.TrimSpace(folded(value)))
	switch value {
	case "1", "on", "yes", "t", "y":
		return "true"
	case "0", "off", "no", "f", "n":
		return "false"
	}
	if n, ok := Decimal(value); ok {
		return n.RatString()
	}
	return value
}
