package broker

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"
)

const (
	// maxPattern is the longest pattern that is compiled, in bytes. maxProgram bounds its instructions, because a short
	// pattern such as "(a{999}){9}" can have many.
	maxPattern = 256
	maxProgram = 2000
	// patternWork is the work that compiling a pattern counts as.
	patternWork = 1000
)

// numberLimits are the keywords that compare a number with another.
var numberLimits = []struct {
	word, want string
	holds      func(n, limit float64) bool
}{
	{"minimum", "at least", func(n, limit float64) bool { return n >= limit }},
	{"maximum", "at most", func(n, limit float64) bool { return n <= limit }},
	{"exclusiveMinimum", "more than", func(n, limit float64) bool { return n > limit }},
	{"exclusiveMaximum", "less than", func(n, limit float64) bool { return n < limit }},
	{"multipleOf", "a multiple of", func(n, limit float64) bool {
		q := n / limit
		return limit <= 0 || math.Abs(q-math.Round(q)) <= 1e-9*max(1, math.Abs(q)) // 0.07 is a multiple of 0.01
	}},
}

func (c *argumentChecker) checkNumber(s map[string]any, value json.Number, path string) {
	n, err := value.Float64()
	if err != nil {
		return
	}
	for _, l := range numberLimits {
		if limit, ok := s[l.word].(float64); ok && !l.holds(n, limit) {
			c.addMistake(path, "found %.40s, want %s %s", value, l.want, formatJSON(limit))
		}
	}
}

// checkLength checks the keywords minOF and maxOF.
func (c *argumentChecker) checkLength(s map[string]any, of string, n int, path string) {
	if least, ok := s["min"+of].(float64); ok && float64(n) < least {
		c.addMistake(path, "found a length of %d, want at least %s", n, formatJSON(least))
	}
	if most, ok := s["max"+of].(float64); ok && float64(n) > most {
		c.addMistake(path, "found a length of %d, want at most %s", n, formatJSON(most))
	}
}

// checkText checks a string's length and pattern.
func (c *argumentChecker) checkText(s map[string]any, value, path string) {
	// Only long texts cost work here: counting the runes of a text is fast.
	if !c.spendWork(len(value) >> 10) {
		return
	}
	c.checkLength(s, "Length", utf8.RuneCountInString(value), path)
	source, _ := s["pattern"].(string)
	p := c.compilePattern(source)
	if p.matcher == nil {
		return
	}
	// Matching takes time in proportion to the program times the text, so this product counts as work.
	//defence:pattern-work
	if !c.spendWork(p.size * (1 + len(value)) / 64) {
		return
	}
	if !p.matcher.MatchString(value) {
		c.addMistake(path, "found %.80s, want a match of %s", formatJSON(value), source)
	}
}

// sizedPattern is a compiled pattern and its number of instructions. A pattern without a matcher is not checked.
type sizedPattern struct {
	matcher *regexp.Regexp
	size    int
}

// compilePattern compiles a pattern once. It returns a pattern without a matcher if the pattern is too large, or if
// only JavaScript understands it.
func (c *argumentChecker) compilePattern(source string) sizedPattern {
	p, ok := c.patterns[source]
	if ok || source == "" || len(source) > maxPattern || !c.spendWork(patternWork) {
		return p
	}
	if tree, err := syntax.Parse(source, syntax.Perl); err == nil {
		program, err := syntax.Compile(tree.Simplify())
		// The instructions are counted before regexp.Compile, which would build a large program first.
		//defence:pattern-work permits
		if err == nil && len(program.Inst) <= maxProgram {
			p.size = len(program.Inst)
			p.matcher, _ = regexp.Compile(source) // syntax.Parse accepted it
		}
	}
	c.patterns[source] = p
	return p
}

// checkArray checks an array's length and items.
func (c *argumentChecker) checkArray(s map[string]any, value []any, path string, depth int) {
	if !c.spendWork(len(value)) {
		return
	}
	c.checkLength(s, "Items", len(value), path)
	if s["uniqueItems"] == true {
		c.checkUnique(value, path)
	}
	items, ok := s["items"].(map[string]any)
	for i, item := range value {
		if !ok || c.isDone() {
			return
		}
		c.checkValue(items, item, extend(path, fmt.Sprintf("[%d]", i)), depth+1)
	}
}

// checkUnique requires that an array has each simple value at most once.
func (c *argumentChecker) checkUnique(value []any, path string) {
	seen := map[any]bool{}
	for i, item := range value {
		if !isSimple(item) {
			continue
		}
		if seen[item] {
			c.addMistake(extend(path, fmt.Sprintf("[%d]", i)), "found %.80s again, want each item once", formatJSON(item))
			return
		}
		seen[item] = true
	}
}
