package tools

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// pattern is a regular expression for long texts that it hardly ever matches, and words of which a match contains at
// least one. A text without them is not given to the expression, which would take 30 ns a byte. A pattern without words
// is always tried.
type pattern struct {
	expr  *regexp.Regexp
	words []string
}

// mustCompile is regexp.MustCompile.
func mustCompile(expr string) *pattern {
	p := &pattern{expr: regexp.MustCompile(expr)}
	if tree, err := syntax.Parse(expr, syntax.Perl); err == nil { // as regexp has parsed it
		p.words = requiredWords(tree)
	}
	return p
}

// requiredWords are texts of which everything that matches contains one; nil if none are known.
func requiredWords(re *syntax.Regexp) []string {
	switch re.Op { //nolint:exhaustive // what is not named can match without a certain text
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return []string{string(re.Rune)}
		}
	case syntax.OpCapture, syntax.OpPlus:
		return requiredWords(re.Sub[0])
	case syntax.OpConcat:
		var best []string
		for _, sub := range re.Sub {
			if w := requiredWords(sub); shortestLength(w) > shortestLength(best) {
				best = w
			}
		}
		return best
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			w := requiredWords(sub)
			if w == nil {
				return nil
			}
			all = append(all, w...)
		}
		return all
	}
	return nil
}

func shortestLength(words []string) int {
	if words == nil {
		return 0
	}
	return len(slices.MinFunc(words, func(a, b string) int { return len(a) - len(b) }))
}

func (p *pattern) possible(s string) bool {
	return p.words == nil || slices.ContainsFunc(p.words, func(w string) bool { return strings.Contains(s, w) })
}

// MatchString is regexp's.
func (p *pattern) MatchString(s string) bool { return p.possible(s) && p.expr.MatchString(s) }

// FindStringSubmatch is regexp's.
func (p *pattern) FindStringSubmatch(s string) []string {
	if !p.possible(s) {
		return nil
	}
	return p.expr.FindStringSubmatch(s)
}

// FindAllStringSubmatch is regexp's.
func (p *pattern) FindAllStringSubmatch(s string, n int) [][]string {
	if !p.possible(s) {
		return nil
	}
	return p.expr.FindAllStringSubmatch(s, n)
}
