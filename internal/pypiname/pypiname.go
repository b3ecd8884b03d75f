// Package pypiname compares names of packages as PyPI does.
package pypiname

import (
	"regexp"
	"strings"
)

// separators match characters that PyPI reads as one hyphen.
var separators = regexp.MustCompile(`[-_.]+`)

// FoldName returns the name by which an index and a lock file list a package (PEP 503), without extras: "a-b" for
// "A_b[c]".
func FoldName(name string) string {
	name, _, _ = strings.Cut(name, "[")
	return strings.ToLower(separators.ReplaceAllString(name, "-"))
}
