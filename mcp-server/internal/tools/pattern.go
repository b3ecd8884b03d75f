package tools

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// rarePattern is a regular expression for long texts that it rarely matches. Every match contains at least one of its
// words. A text without these words skips the expression, which would take 30 ns per byte. A pattern without words is
// always tried.
type rarePattern struct {
	expr  *regexp.Regexp
	words []string
}

// mustCompile is regexp.MustCompile for a pattern.
func mustCompile(expr string) *rarePattern {
	p := &rarePattern{expr: regexp.MustCompile(expr)}
	if tree, err := syntax.Parse(expr, syntax.Perl); err == nil { // regexp parses in the same way
		p.words = findRequiredWords(tree)
	}
	return p
}

// findRequiredWords returns texts of which each match contains at least one, or nil if none are known.
func findRequiredWords(re *syntax.Regexp) []string {
	switch re.Op { //nolint:exhaustive // what is not named can match without a certain text
	case syntax.OpLiteral:
		// Folded literals match several spellings, which strings.Contains would miss.
		if re.Flags&syntax.FoldCase == 0 {
			return []string{string(re.Rune)}
		}
	case syntax.OpCapture, syntax.OpPlus:
		return findRequiredWords(re.Sub[0])
	case syntax.OpConcat:
		var best []string
		for _, sub := range re.Sub {
			// Longer words are rarer in most texts.
			if w := findRequiredWords(sub); shortestLength(w) > shortestLength(best) {
				best = w
			}
		}
		return best
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			w := findRequiredWords(sub)
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

func (p *rarePattern) mayMatch(s string) bool {
	return p.words == nil || slices.ContainsFunc(p.words, func(w string) bool { return strings.Contains(s, w) })
}

// MatchString is Regexp.MatchString.
func (p *rarePattern) MatchString(s string) bool { return p.mayMatch(s) && p.expr.MatchString(s) }

// FindStringSubmatch is Regexp.FindStringSubmatch.
func (p *rarePattern) FindStringSubmatch(s string) []string {
	if !p.mayMatch(s) {
		return nil
	}
	return p.expr.FindStringSubmatch(s)
}

// FindAllStringSubmatch is Regexp.FindAllStringSubmatch.
func (p *rarePattern) FindAllStringSubmatch(s string, n int) [][]string {
	if !p.mayMatch(s) {
		return nil
	}
	return p.expr.FindAllStringSubmatch(s, n)
}
